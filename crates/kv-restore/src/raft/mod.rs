//! Snapshots of somebody's Raft state machine that lives in a [`Store`](pop_store::Store), for
//! [`openraft`].
//!
//! What Raft carries is a [`Reference`] of some hundred bytes; the rows move beside it, in
//! sessions of this crate. A state machine forwards the part of snapshots to [`Snapshots`]:
//!
//! | when openraft | call |
//! |---|---|
//! | asks `applied_state` | [`Snapshots::applied`] |
//! | applies an entry | [`Snapshots::mark`], into the batch that holds its effect |
//! | wants a builder | [`Snapshots::builder`] |
//! | asks `get_current_snapshot` | [`Snapshots::current`] |
//! | sends `full_snapshot` | send vote, meta and [`RaftSnapshot::reference`] to the follower, and keep the snapshot until it has answered |
//! | (the follower, when that comes) | [`Snapshots::receive`] |
//! | calls `install_snapshot` | [`Snapshots::install`] |
//!
//! The rows are staged before Raft hears of them, so that `install_snapshot` only switches:
//! nothing that moves slowly, breaks or hangs on its way holds up what is being applied, and
//! it fails as an answer to the leader, which tries again. Only a switch that fails is fatal
//! for the node, as openraft has it: it must be opened anew, and then holds the old content
//! or the new one.

mod applied;
mod receive;
mod reference;
mod snapshots;
mod space;

pub use receive::ReceiveError;
pub use reference::{RaftSnapshot, Reference};
pub use snapshots::{Builder, Snapshots};
pub use space::Space;
