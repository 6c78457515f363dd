//! The proof that a write is settled, which nothing outside this crate can make.

use crate::Error;

/// Proof that the write of `W` is committed in its store.
///
/// State that must not move before its write is settled takes a `Durable<W>` where a
/// plain `W` would do the arithmetic: "clear before the outcome is known" does not
/// compile. Only [`StoreExt::settle`](crate::StoreExt::settle) makes one, from an `Ok` of
/// [`Store::write`](crate::Store::write):
///
/// ```compile_fail
/// let forged = pop_store::Durable { work: 7 };
/// ```
///
/// Committed and not yet synced is enough for the gate: by prefix durability no later
/// write, such as the offset that depends on this one, can survive a crash without it.
#[derive(Debug)]
#[must_use = "the proof is there to be shown to the state that waits for it"]
pub struct Durable<W> {
    work: W,
}

impl<W> Durable<W> {
    pub(crate) fn new(work: W) -> Self {
        Self { work }
    }

    /// What was settled.
    pub fn work(&self) -> &W {
        &self.work
    }

    /// What was settled, by value; the proof is used up.
    pub fn into_work(self) -> W {
        self.work
    }
}

impl<A, B> Durable<(A, B)> {
    /// The proofs of two works that one write settled.
    pub fn split(self) -> (Durable<A>, Durable<B>) {
        let (first, second) = self.work;
        (Durable::new(first), Durable::new(second))
    }
}

impl<W> Durable<Vec<W>> {
    /// The proof of each work that one write settled.
    pub fn into_each(self) -> impl Iterator<Item = Durable<W>> {
        self.work.into_iter().map(Durable::new)
    }
}

/// A write that did not settle, with the work that it was for.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Unsettled<W: std::fmt::Debug> {
    /// The work, handed back so that its state can go on.
    pub work: W,
    /// Why; [`Error::outcome`] says whether the write may have happened.
    #[source]
    pub error: Error,
}
