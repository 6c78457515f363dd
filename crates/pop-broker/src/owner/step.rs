//! The two steps that end a handover by hand. Each says whether it was done before, so that a
//! command that was killed when it was done can be typed again.

use std::sync::Arc;

use pop_model::StoredValue;
use pop_store::{Durability, Store, WriteBatch};

use super::{
    NotOwner, Owner, Receipt, Retired, Rows, Standing, adopted, put_owner,
    record::{OWNER, RETIRED, UNDONE},
};
use crate::{BrokerError, space::SEALS};

/// Whether a step changed anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It was done.
    Done,
    /// It was done before, as by a command that was killed before it said so.
    DoneBefore,
}

/// Makes what was handed over this folder's own, because its source is retired.
///
/// # Errors
///
/// A receipt of something else, a folder that waits for none and took over nothing, or the
/// store's.
pub(crate) async fn finish(
    store: &Arc<dyn Store>,
    receipt: Option<Receipt>,
) -> Result<Step, BrokerError> {
    let rows = Rows::read(store).await?;
    let (seal, digest, step) = match (rows.standing(), rows.taken()) {
        (Standing::Awaiting { seal, receipt }, _) => (seal, receipt, Step::Done),
        (Standing::Own(_), Some((seal, receipt))) => {
            (seal.clone(), receipt.to_owned(), Step::DoneBefore)
        }
        (Standing::Retired(retired, _), _) => return Err(NotOwner::from(retired.as_ref()).into()),
        _ => return Err(NotOwner::Nothing("this folder waits for no receipt").into()),
    };
    if receipt.is_some_and(|it| it.digest() != digest) {
        let snapshot = seal.snapshot;
        return Err(NotOwner::Receipt { snapshot }.into());
    }
    if step == Step::Done {
        let mut batch = WriteBatch::new();
        put_owner(&mut batch, &adopted(&seal));
        store.write(batch, Durability::Synced).await?;
    }
    Ok(step)
}

/// Takes a retired folder back into service, with an epoch above that of the owner that it
/// was handed to: the epoch, and whether it was taken back just now.
///
/// # Errors
///
/// A folder that is not retired and was not taken back, or the store's.
pub(crate) async fn undo(store: &Arc<dyn Store>) -> Result<(u64, Step), BrokerError> {
    let rows = Rows::read(store).await?;
    let retired = match (rows.standing(), rows.undone) {
        (Standing::Retired(retired, _), _) => *retired,
        (Standing::Own(owner), Some(undone)) if owner.epoch == above(&undone) => {
            return Ok((owner.epoch, Step::DoneBefore));
        }
        _ => return Err(NotOwner::Nothing("this folder was not handed over").into()),
    };
    let owner = Owner {
        epoch: above(&retired),
        adopted: rows.owner.adopted,
    };
    let mut batch = WriteBatch::new();
    batch.put(SEALS, OWNER, owner.encode());
    batch.delete(SEALS, RETIRED);
    batch.put(SEALS, UNDONE, retired.encode());
    store.write(batch, Durability::Synced).await?;
    Ok((owner.epoch, Step::Done))
}

/// The epoch of a folder that is taken back.
fn above(retired: &Retired) -> u64 {
    retired.epoch.saturating_add(1)
}
