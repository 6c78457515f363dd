//! Whose the content of a folder is, and so whether it may be served.
//!
//! What was installed from elsewhere is not served before it was *adopted*: a copy by its
//! first open, which makes everything that was leased at its source void; what was handed
//! over only with the receipt of its source. A folder whose content went elsewhere is
//! *retired*. All of it is decided from three rows, so that no order of crashes can make
//! two owners.

mod receipt;
mod record;
mod step;

use kv_restore::{Epoch, Seal, SnapshotId, Target};
use pop_model::StoredValue;
use pop_store::{Durability, Store, WriteBatch, table::get_value};
use std::sync::Arc;

pub(crate) use receipt::Receipt;
pub use record::Retired;
pub(crate) use record::{Filling, Owner};
pub use step::Step;
pub(crate) use step::{finish, undo};

use crate::space::{SEALS, SPACE, SpaceMeta};
use record::{BEGUN, Begun, FILLING, OWNER, RETIRED, UNDONE};

/// What the rows of a folder say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The content is its own.
    Own(Owner),
    /// A copy was installed and never served; what makes it the folder's own.
    Copy(Owner),
    /// What was handed over was installed, and the source is not known to be retired.
    Awaiting {
        seal: Seal,
        /// The digest of its receipt.
        receipt: String,
    },
    /// The content has another owner; it was of this epoch.
    Retired(Box<Retired>, Epoch),
}

/// A folder that may not be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotOwner {
    /// Its content went elsewhere.
    #[error(
        "this folder was handed over to {to} at {at} (epoch {epoch}) and is not served any more. \
         Should the new owner still wait for the receipt of snapshot {snapshot}, it is {receipt}: \
         give it to `pop-broker handover finish`. To serve this folder after all, make sure that \
         the new owner never serves again, and run `pop-broker handover undo`"
    )]
    Retired {
        /// Where.
        to: String,
        /// Since when.
        at: String,
        /// The epoch of the new owner.
        epoch: u64,
        /// What went.
        snapshot: SnapshotId,
        /// What lets it begin.
        receipt: String,
    },
    /// Its content came from a source that may still be served.
    #[error(
        "this folder holds snapshot {snapshot} of a handover that was cut off: its source may \
         still serve. Run the same `pop-broker bootstrap` again; or, if the source is retired, \
         start it to be told the receipt and give that to `pop-broker handover finish`"
    )]
    Awaiting {
        /// What came.
        snapshot: SnapshotId,
    },
    /// A receipt of something else.
    #[error("that is not the receipt of snapshot {snapshot}, which this folder waits for")]
    Receipt {
        /// What came.
        snapshot: SnapshotId,
    },
    /// Nothing is to be finished or undone.
    #[error("{0}")]
    Nothing(&'static str),
}

/// What lets a folder be served, and what its open has to write for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Admission {
    pub(crate) epoch: u64,
    /// Of a copy: what makes it this folder's own.
    pub(crate) adopt: Option<Owner>,
}

/// Decides from the rows alone. What was installed last counts: a mark beside it speaks of
/// what was there before.
fn decide(owner: Owner, retired: Option<Retired>, seal: Option<(Seal, SpaceMeta)>) -> Standing {
    match (seal, retired) {
        (Some((seal, meta)), _) if owner.adopted != Some(seal.snapshot) => match meta.handover {
            Some(receipt) => Standing::Awaiting { seal, receipt },
            // An operator may put what is older in the place of what is newer, and goes on
            // counting from there.
            None => Standing::Copy(Owner {
                epoch: owner.epoch.max(seal.epoch.0),
                ..adopted(&seal)
            }),
        },
        (_, Some(retired)) => Standing::Retired(Box::new(retired), Epoch(owner.epoch)),
        (_, None) => Standing::Own(owner),
    }
}

/// All that a folder says of whose its content is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rows {
    owner: Owner,
    retired: Option<Retired>,
    // The last mark that was taken back.
    undone: Option<Retired>,
    seal: Option<(Seal, SpaceMeta)>,
    filling: Option<Filling>,
}

impl Rows {
    /// Reads them. A store without a keyspace for seals has none, and is nobody else's.
    ///
    /// # Errors
    ///
    /// The store's, or rows that can't be read.
    pub(crate) async fn read(store: &Arc<dyn Store>) -> pop_store::Result<Self> {
        if !store.keyspaces().contains(&SEALS) {
            return Ok(Self::default());
        }
        let owner: Option<Owner> = get_value(store.as_ref(), SEALS, &OWNER).await?;
        let target = Target::new(Arc::clone(store)).with_seals(SEALS);
        let seal = match target.installed(SPACE).await? {
            None => None,
            Some(seal) => {
                let meta = SpaceMeta::from_bytes(&seal.meta);
                let meta = meta.map_err(|error| {
                    pop_store::Error::new(pop_store::ErrorKind::Incompatible, store.name(), "open")
                        .with_detail(format!("what was installed: {error}"))
                })?;
                Some((seal, meta))
            }
        };
        Ok(Self {
            owner: owner.unwrap_or_default(),
            retired: get_value(store.as_ref(), SEALS, &RETIRED).await?,
            undone: get_value(store.as_ref(), SEALS, &UNDONE).await?,
            seal,
            filling: get_value(store.as_ref(), SEALS, &FILLING).await?,
        })
    }

    pub(crate) fn standing(&self) -> Standing {
        decide(self.owner, self.retired.clone(), self.seal.clone())
    }

    /// Whether what was installed last came from there, over the data port.
    pub(crate) fn came_from(&self, url: &str) -> bool {
        let (Some((seal, _)), Some(filling)) = (&self.seal, &self.filling) else {
            return false;
        };
        let given = [Some(filling.snapshot), filling.before];
        filling.from == url && given.contains(&Some(seal.snapshot))
    }

    /// The note that a folder is about to be filled with this from there.
    pub(crate) fn filling(&self, snapshot: SnapshotId, from: String) -> Filling {
        let seal = self.seal.as_ref().map(|(seal, _)| seal.snapshot);
        Filling {
            snapshot,
            before: seal.filter(|_| self.came_from(&from)),
            from,
        }
    }

    /// What was handed over to this folder and became its own, and the digest of its receipt.
    pub(crate) fn taken(&self) -> Option<(&Seal, &str)> {
        let (seal, meta) = self.seal.as_ref()?;
        let receipt = meta.handover.as_deref()?;
        (self.owner.adopted == Some(seal.snapshot)).then_some((seal, receipt))
    }
}

/// Reads where a store stands.
///
/// # Errors
///
/// The store's, or rows that can't be read.
pub(crate) async fn standing(store: &Arc<dyn Store>) -> pop_store::Result<Standing> {
    Ok(Rows::read(store).await?.standing())
}

/// Notes on the side of a source which handover it begins, so that it can say later that it
/// took that back. On `Ok` that survives a power cut.
pub(crate) async fn note_begun(store: &dyn Store, snapshot: SnapshotId) -> pop_store::Result<()> {
    let mut begun = begun(store).await?;
    begun.add(snapshot);
    let mut batch = WriteBatch::new();
    batch.put(SEALS, BEGUN, begun.encode());
    store.write(batch, Durability::Synced).await
}

/// Whether this handover was begun by whoever owns the content now.
///
/// # Errors
///
/// The store's, or a row that can't be read.
pub(crate) async fn has_begun(store: &dyn Store, snapshot: SnapshotId) -> pop_store::Result<bool> {
    Ok(begun(store).await?.has(snapshot))
}

async fn begun(store: &dyn Store) -> pop_store::Result<Begun> {
    let begun = get_value(store, SEALS, &BEGUN).await?;
    Ok(begun.unwrap_or_default())
}

/// Notes where a folder is about to be filled from. On `Ok` that survives a power cut.
pub(crate) async fn note_filling(store: &dyn Store, filling: &Filling) -> pop_store::Result<()> {
    let mut batch = WriteBatch::new();
    batch.put(SEALS, FILLING, filling.encode());
    store.write(batch, Durability::Synced).await
}

impl Standing {
    /// Whether it may be served, and as what.
    pub(crate) fn admit(&self) -> Result<Admission, NotOwner> {
        match self {
            Self::Own(owner) => Ok(Admission {
                epoch: owner.epoch,
                adopt: None,
            }),
            Self::Copy(owner) => Ok(Admission {
                epoch: owner.epoch,
                adopt: Some(*owner),
            }),
            Self::Awaiting { seal, .. } => Err(NotOwner::Awaiting {
                snapshot: seal.snapshot,
            }),
            Self::Retired(retired, _) => Err(retired.as_ref().into()),
        }
    }

    /// Below this epoch nothing may be installed here.
    pub(crate) fn epoch(&self) -> Epoch {
        Epoch(match self {
            Self::Own(owner) | Self::Copy(owner) => owner.epoch,
            Self::Awaiting { seal, .. } => seal.epoch.0,
            Self::Retired(retired, _) => retired.epoch,
        })
    }

    /// What a copy of the content is of. One that has another owner, or is not known to have
    /// none, does not pass for that owner's.
    pub(crate) fn content_epoch(&self) -> Epoch {
        match self {
            Self::Own(owner) | Self::Copy(owner) => Epoch(owner.epoch),
            Self::Awaiting { seal, .. } => Epoch(seal.epoch.0.saturating_sub(1)),
            Self::Retired(_, epoch) => *epoch,
        }
    }
}

fn adopted(seal: &Seal) -> Owner {
    Owner {
        epoch: seal.epoch.0,
        adopted: Some(seal.snapshot),
    }
}

/// Adds what makes the content of a folder its own, and takes away what was said of the
/// content before.
pub(crate) fn put_owner(batch: &mut WriteBatch, owner: &Owner) {
    batch.put(SEALS, OWNER, owner.encode());
    for of_before in [RETIRED, UNDONE, BEGUN, FILLING] {
        batch.delete(SEALS, of_before);
    }
}

/// Marks a folder as not to be served any more. On `Ok` the mark survives a power cut.
pub(crate) async fn retire(store: &dyn Store, retired: &Retired) -> pop_store::Result<()> {
    let mut batch = WriteBatch::new();
    batch.put(SEALS, RETIRED, retired.encode());
    store.write(batch, Durability::Synced).await
}

impl From<&Retired> for NotOwner {
    fn from(retired: &Retired) -> Self {
        let nanos = retired.at_unix_ms.rem_euclid(1_000) * 1_000_000;
        let at = prost_types::Timestamp {
            seconds: retired.at_unix_ms.div_euclid(1_000),
            nanos: i32::try_from(nanos).unwrap_or_default(),
        };
        Self::Retired {
            to: retired.to.clone(),
            at: at.to_string(),
            epoch: retired.epoch,
            snapshot: retired.snapshot,
            receipt: Receipt(retired.receipt).text(),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
