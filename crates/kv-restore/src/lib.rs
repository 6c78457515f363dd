#![doc = include_str!("../README.md")]

// In reading order: what is moved, what is said, the two ends as pure machines, the slot
// and the guard of a space, the tasks around them, what they stand on, how they fail.
mod ids;

pub mod frame;
pub mod machine;
pub mod registry;

mod policy;
mod session;

mod driver;
mod dumper;
mod restorer;

mod source;
mod target;
pub mod transport;

#[cfg(feature = "openraft")]
pub mod raft;

mod admission;
mod backoff;
mod digest;
mod error;
mod limiter;
mod mutant;

pub use admission::Admission;
pub use backoff::Backoff;
pub use digest::{Digest, digest, digest_within};
pub use dumper::{DumpStats, Dumper, Offer, Served};
pub use error::{Damage, ErrorKind, Failure, Phase, RestoreError, Retry, Switch};
pub use frame::AbortCode;
pub use ids::{
    Epoch, PeerId, Position, Resume, Seal, SessionId, SnapshotId, SnapshotRef, StreamId,
};
pub use limiter::Limiter;
pub use machine::{Options, Stop, receiver::Installed};
pub use mutant::Mutant;
pub use policy::{Request, fence};
pub use registry::Outcome;
pub use restorer::{Chance, Closed, RestoreStats, Restorer, RestorerOptions};
pub use session::{Asked, Progress, Session};
pub use target::Target;
