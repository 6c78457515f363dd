//! What is left to an operator when a handover was cut off between its two marks. Each may
//! be killed at any moment, and is typed again.

use crate::{
    BrokerError, OpenStore,
    owner::{self, NotOwner, Receipt},
};

pub use crate::owner::Step;

/// Whether a text can be a receipt at all.
#[must_use]
pub fn is_receipt(text: &str) -> bool {
    Receipt::read(text).is_some()
}

/// Makes what was handed over the folder's own, with the receipt that its source told; or
/// without one, if the source is gone for good.
///
/// # Errors
///
/// A receipt of something else, a folder that waits for none and took over nothing, or the
/// store's.
pub async fn finish(opener: &dyn OpenStore, receipt: Option<&str>) -> Result<Step, BrokerError> {
    let read = |text: &str| {
        let unreadable = "a receipt has 32 hexadecimal digits, as the source tells it at its start";
        Receipt::read(text).ok_or(NotOwner::Nothing(unreadable))
    };
    let receipt = receipt.map(read).transpose()?;
    let store = opener.open().await?;
    let finished = owner::finish(&store, receipt).await;
    store.close().await?;
    finished
}

/// Takes a folder back that was handed over, and returns its epoch, which is above that of
/// the broker that it was handed to.
///
/// # Errors
///
/// A folder that was not handed over, or the store's.
pub async fn undo(opener: &dyn OpenStore) -> Result<(u64, Step), BrokerError> {
    let store = opener.open().await?;
    let undone = owner::undo(&store).await;
    store.close().await?;
    undone
}
