//! What strangers, peers that break off, and peers that say nothing do to the data port:
//! each is turned away or given up in its time, gives back what it had, and is named in the
//! log; and nobody else notices.
//!
//! Connections are pipes in memory and tokio's clock is paused, so that times cost nothing.

mod rig;

mod first_words;
mod holders;
mod sessions;
