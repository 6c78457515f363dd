//! Conveniences over any store. They hold no policy and no backend overrides them.

use std::fmt::Debug;

use crate::{
    Durability, Durable, Entry, Error, Keyspace, Result, Scan, Store, Unsettled, WriteBatch,
};

/// What every [`Store`] can do besides its own methods.
pub trait StoreExt: Store {
    /// Writes `batch` and, if it is committed, returns the proof for `work`.
    ///
    /// # Errors
    ///
    /// [`Unsettled`] hands `work` back, with the error of the write.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops only the answer: the write may still happen.
    fn settle<W: Debug + Send>(
        &self,
        work: W,
        batch: WriteBatch,
        durability: Durability,
    ) -> impl Future<Output = Result<Durable<W>, Unsettled<W>>> + Send {
        async move {
            match self.write(batch, durability).await {
                Ok(()) => Ok(Durable::new(work)),
                Err(error) => Err(Unsettled { work, error }),
            }
        }
    }

    /// Makes everything that is committed durable.
    ///
    /// # Errors
    ///
    /// Those of [`Store::write`].
    fn sync(&self) -> impl Future<Output = Result<()>> + Send {
        self.write(WriteBatch::new(), Durability::Synced)
    }

    /// Walks `scan` in pages, handing each to `visit` until it returns `false`.
    ///
    /// The pages are read one after another, so that a concurrent write may be seen by a
    /// later page; take a [`snapshot`](Store::snapshot) where that matters. Forward scans only.
    ///
    /// # Errors
    ///
    /// Those of [`Store::scan`], or the first error of `visit`.
    fn for_each_page<E: From<Error> + Send>(
        &self,
        keyspace: Keyspace,
        mut scan: Scan,
        mut visit: impl FnMut(Vec<Entry>) -> Result<bool, E> + Send,
    ) -> impl Future<Output = Result<(), E>> + Send {
        async move {
            loop {
                let page = self.scan(keyspace, scan.clone()).await?;
                let Some(last) = page.last() else {
                    return Ok(());
                };
                scan.start = successor(&last.key);
                if !visit(page)? {
                    return Ok(());
                }
            }
        }
    }
}

impl<S: Store + ?Sized> StoreExt for S {}

/// The smallest key above `key`.
pub(crate) fn successor(key: &[u8]) -> bytes::Bytes {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next.into()
}
