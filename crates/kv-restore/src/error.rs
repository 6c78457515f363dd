//! Where a copy failed, and what that leaves behind.

use pop_store::{Error, Keyspace};

use crate::Digest;

/// The step that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Taking the source's snapshot.
    Snapshot,
    /// Beginning to load the target.
    Begin,
    /// Reading the source.
    Read,
    /// Loading the target.
    Load,
    /// Switching the target to what was loaded.
    Publish,
    /// Reading the target back.
    Verify,
}

impl std::fmt::Display for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Snapshot => "taking a snapshot of the source",
            Self::Begin => "beginning to load the target",
            Self::Read => "reading the source",
            Self::Load => "loading the target",
            Self::Publish => "publishing what was loaded",
            Self::Verify => "reading the target back",
        })
    }
}

/// A copy that did not come to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// A store refused or failed. Before `Publish` the target has its old content.
    #[error("copy failed while {phase}: {error}")]
    Store {
        /// The step.
        phase: Phase,
        /// The store's error.
        #[source]
        error: Error,
    },
    /// The source's keys are not strictly ascending: it can't be trusted. The target has
    /// its old content.
    #[error(
        "copy failed while reading the source: the keys of keyspace {keyspace} are not in order"
    )]
    Order {
        /// Where.
        keyspace: Keyspace,
    },
    /// The target holds other rows than the source, and serves them: restore again.
    #[error(
        "copy failed while reading the target back: the source has digest {source_digest}, the target {target_digest}"
    )]
    Differs {
        /// Of what was read.
        source_digest: Digest,
        /// Of what is there.
        target_digest: Digest,
    },
}
