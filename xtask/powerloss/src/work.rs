//! The workloads: what runs under the recorder, and how what is left of it is judged.

use std::{
    collections::HashMap,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::Result;
use pop_broker::{Broker, stores::Backend};

use crate::{
    broker, judge,
    marks::{Mark, Marks, ReplaceMark},
    raw, replace,
    stores::Opener,
};

/// A clean restart in between writes what only an open and a close write.
const LIVES: u32 = 2;

/// Which workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Workload {
    /// Batches on the store alone.
    Store,
    /// Messages through the broker.
    Broker,
    /// Contents that take the place of others, on the store alone.
    Replace,
}

impl Workload {
    pub(crate) const ALL: [Self; 3] = [Self::Store, Self::Broker, Self::Replace];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Broker => "broker",
            Self::Replace => "replace",
        }
    }

    /// Works on an empty folder, with a clean restart in between: for `time`, or until what
    /// it does is done.
    ///
    /// # Errors
    ///
    /// Those of the product: nothing fails on a healthy disk.
    pub(crate) async fn run(
        self,
        backend: Backend,
        folder: &Path,
        marks: Marks,
        time: Duration,
    ) -> Result<()> {
        let marks = Arc::new(marks);
        let opener = self.opener(backend, folder);
        match self {
            Self::Store => {
                let mut numbers = HashMap::new();
                for _ in 0..LIVES {
                    let store = opener.store().await?;
                    let stop = stop_after(time / LIVES);
                    raw::work(&store, &marks, &mut numbers, &stop).await?;
                    store.close().await?;
                }
            }
            Self::Broker => {
                let progress = Arc::default();
                for _ in 0..LIVES {
                    let stop = stop_after(time / LIVES);
                    broker::work(opener.clone(), &marks, &progress, &stop).await?;
                }
            }
            Self::Replace => replace::work(&opener, &marks).await?,
        }
        Ok(())
    }

    /// Opens what a power cut left, and closes it.
    ///
    /// # Errors
    ///
    /// Those of the product.
    pub(crate) async fn recover(self, backend: Backend, folder: &Path) -> Result<()> {
        let opener = self.opener(backend, folder);
        match self {
            Self::Store | Self::Replace => opener.store().await?.close().await?,
            Self::Broker => {
                let broker = Broker::open(Arc::new(opener), broker::options()).await?;
                broker.shutdown().await?;
            }
        }
        Ok(())
    }

    /// What is to be said before a recovery: its open keeps no content that was begun.
    pub(crate) fn ended_by_recovery(self) -> Option<Mark> {
        let version = replace::LEFT;
        (self == Self::Replace).then_some(Mark::Replace(ReplaceMark::Ending { version }))
    }

    /// The store of `backend` in `folder`, as this workload has it.
    pub(crate) fn opener(self, backend: Backend, folder: &Path) -> Opener {
        match self {
            Self::Store | Self::Broker => Opener::new(backend, folder),
            Self::Replace => replace::opener(backend, folder),
        }
    }

    /// What is wrong with what a power cut left of a store. Where there is more than one way
    /// to go on, `chance` takes one.
    ///
    /// # Errors
    ///
    /// If the product refuses or fails: that is a verdict as well.
    pub(crate) async fn judge(
        self,
        opener: Opener,
        marks: &[Mark],
        chance: u64,
    ) -> Result<Vec<String>> {
        let mut violations = Vec::new();
        match self {
            Self::Broker => judge::judge(opener.clone(), marks, &mut violations).await?,
            Self::Replace => {
                replace::judge(&opener, marks, chance.is_multiple_of(2), &mut violations).await?;
            }
            Self::Store => {
                let store = opener.store().await?;
                let survivors = raw::survivors(&*store, &mut violations).await?;
                raw::judge(marks, &survivors, &mut violations);
                store.close().await?;
            }
        }
        let litter = opener.litter()?;
        violations.extend(litter.iter().map(|it| format!("litter: {it} is left")));
        Ok(violations)
    }
}

fn stop_after(time: Duration) -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let later = Arc::clone(&stop);
    tokio::spawn(async move {
        tokio::time::sleep(time).await;
        later.store(true, Ordering::Relaxed);
    });
    stop
}
