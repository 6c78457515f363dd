//! Cuts the power at each chosen moment, opens what is left and judges it.

use std::{
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError, mpsc},
    thread,
    time::Duration,
};

use anyhow::Result;
use pop_broker::stores::Backend;
use pop_store::testkit::Random;
use tokio::{runtime::Builder, time::timeout};

use crate::{cut::Cut, disk::Disk, marks::Mark, record::Record, work::Workload};

/// Within this an open answers and everything is delivered, whatever was left (P5).
const ANSWERED_WITHIN: Duration = Duration::from_secs(60);

/// What is checked, and how.
#[derive(Debug)]
pub(crate) struct Check<'a> {
    pub(crate) backend: Backend,
    pub(crate) workload: Workload,
    /// Without what the store looks at before it opens the engine.
    pub(crate) engine_alone: bool,
    pub(crate) record: &'a Record,
    /// The disk before the first event of the record.
    pub(crate) start: Disk,
    /// What was said before the record.
    pub(crate) said: Vec<Mark>,
    /// Where what is left is laid out.
    pub(crate) base: &'a Path,
    pub(crate) threads: usize,
}

/// A cut after which a promise was broken.
#[derive(Clone, Debug)]
pub(crate) struct Conviction {
    pub(crate) cut: Cut,
    pub(crate) violations: Vec<String>,
    /// What was left, untouched by any open.
    pub(crate) folder: PathBuf,
}

struct Case {
    cut: Cut,
    disk: Disk,
    marks: Vec<Mark>,
}

impl Check<'_> {
    /// Judges all `cuts`, which are in their order.
    ///
    /// # Errors
    ///
    /// If the record can't be followed or what is left can't be laid out.
    pub(crate) fn run(&self, cuts: &[Cut]) -> Result<Vec<Conviction>> {
        // A disk shares its content with the one it was copied from, yet a few are enough.
        let (cases, inbox) = mpsc::sync_channel(self.threads);
        let inbox = Mutex::new(inbox);
        let found = Mutex::new(Vec::new());
        thread::scope(|scope| {
            let workers: Vec<_> = (0..self.threads)
                .map(|_| {
                    scope.spawn(|| -> Result<()> {
                        loop {
                            let case = inbox.lock().unwrap_or_else(PoisonError::into_inner).recv();
                            let Ok(case) = case else { return Ok(()) };
                            if let Some(conviction) = self.judge(&case)? {
                                let mut found = found.lock();
                                let found = found.as_mut().unwrap_or_else(|it| it.get_mut());
                                found.push(conviction);
                            }
                        }
                    })
                })
                .collect();
            let followed = self.follow(cuts, &cases);
            drop(cases);
            for worker in workers {
                worker
                    .join()
                    .map_err(|_| anyhow::anyhow!("a checking thread panicked"))??;
            }
            followed
        })?;
        let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
        found.sort_by_key(|it: &Conviction| it.cut);
        Ok(found)
    }

    fn follow(&self, cuts: &[Cut], cases: &mpsc::SyncSender<Case>) -> Result<()> {
        let mut disk = self.start.clone();
        let mut followed = 0;
        for cut in cuts {
            for event in self
                .record
                .events
                .get(followed..cut.events)
                .unwrap_or_default()
            {
                disk.follow(event)?;
            }
            followed = cut.events;
            let case = Case {
                cut: *cut,
                disk: disk.clone(),
                marks: [self.said.clone(), self.record.marks_before(cut.events)].concat(),
            };
            if cases.send(case).is_err() {
                // A worker failed, and says why.
                return Ok(());
            }
        }
        Ok(())
    }

    fn judge(&self, case: &Case) -> Result<Option<Conviction>> {
        let folder = tempfile::Builder::new()
            .prefix("cut")
            .tempdir_in(self.base)?;
        let lay_out = |path: &Path| {
            std::fs::create_dir(path)?;
            case.disk
                .lay_out_after_cut(path, &mut Random::new(case.cut.seed))
        };
        let opened = folder.path().join("opened");
        lay_out(&opened)?;
        let violations = self.open_and_judge(&opened, case)?;
        if violations.is_empty() {
            return Ok(None);
        }
        let left = folder.path().join("left");
        lay_out(&left)?;
        let _ = folder.keep();
        Ok(Some(Conviction {
            cut: case.cut,
            violations,
            folder: left,
        }))
    }

    /// What is wrong with the store in `folder`, after all the marks of the case.
    fn open_and_judge(&self, folder: &Path, case: &Case) -> Result<Vec<String>> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let workload = self.workload;
        let opener = workload.opener(self.backend, folder);
        let opener = opener.engine_alone(self.engine_alone);
        let marks = case.marks.clone();
        let chance = case.cut.seed;
        let outcome = runtime.block_on(async move {
            // In a task of its own, whose panic is a verdict too.
            let judged = tokio::spawn(async move { workload.judge(opener, &marks, chance).await });
            timeout(ANSWERED_WITHIN, judged).await
        });
        // An open that hangs does so on a thread that can't be stopped.
        runtime.shutdown_background();
        Ok(match outcome {
            Err(_) => vec![format!("P5: not at an end after {ANSWERED_WITHIN:?}")],
            Ok(Err(panic)) => vec![format!("it panicked: {panic}")],
            Ok(Ok(Err(error))) => vec![format!("{error:#}")],
            Ok(Ok(Ok(violations))) => violations,
        })
    }
}
