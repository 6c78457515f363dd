//! A recording: the workload's process under the recorder, and what came of it.

use std::{
    fs,
    ops::Range,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use anyhow::{Context, Result, bail, ensure};
use pop_powerloss_trace::{Event, decode, variables};

use crate::{
    disk::Disk,
    marks::{Mark, ReplaceMark},
};

/// Where a recording is made.
#[derive(Debug)]
pub(crate) struct Place {
    /// The folder of the store.
    pub(crate) folder: PathBuf,
    /// The record.
    pub(crate) log: PathBuf,
    /// The marks.
    pub(crate) marks: PathBuf,
}

impl Place {
    /// In `base`, which is there.
    ///
    /// # Errors
    ///
    /// If the folder can't be made.
    pub(crate) fn make(base: &Path) -> Result<Self> {
        // The recorder compares paths as text.
        let base = base.canonicalize()?;
        let folder = base.join("store");
        fs::create_dir(&folder)?;
        Ok(Self {
            folder,
            log: base.join("record"),
            marks: base.join("marks"),
        })
    }

    /// Runs `workload` under the recorder.
    ///
    /// # Errors
    ///
    /// If it can't be started or fails.
    pub(crate) fn record(&self, recorder: &Path, workload: &mut Command) -> Result<()> {
        ensure!(
            recorder.is_file(),
            "the recorder {} is not there: build it with `cargo build -p pop-powerloss-recorder`",
            recorder.display()
        );
        let status = workload
            .env("LD_PRELOAD", recorder)
            .env(variables::FOLDER, &self.folder)
            .env(variables::LOG, &self.log)
            .env(variables::MARKS, &self.marks)
            .status()
            .context("the workload can't be started")?;
        ensure!(status.success(), "the workload failed: {status}");
        Ok(())
    }
}

/// A record, read.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) log: Arc<Vec<u8>>,
    pub(crate) events: Vec<Event<Range<usize>>>,
    /// The marks, each with the number of events up to it, itself included.
    pub(crate) marks: Vec<(usize, Mark)>,
}

impl Record {
    /// Reads a record.
    ///
    /// # Errors
    ///
    /// If it can't be read or is empty.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let log = fs::read(path).with_context(|| format!("{} can't be read", path.display()))?;
        let mut record = Self {
            log: Arc::new(log),
            events: Vec::new(),
            marks: Vec::new(),
        };
        let mut at = 0;
        while let Some((event, next)) = decode(&record.log, at) {
            at = next;
            if let Event::Mark { data } = &event {
                let line = record.log.get(data.clone()).unwrap_or_default();
                record
                    .marks
                    .push((record.events.len() + 1, Mark::parse(line)?));
            }
            record.events.push(event);
        }
        if record.events.is_empty() {
            bail!("nothing was recorded: was the recorder loaded?");
        }
        Ok(record)
    }

    /// What was said in the first `count` events.
    pub(crate) fn marks_before(&self, count: usize) -> Vec<Mark> {
        let marks = self.marks.iter().take_while(|(at, _)| *at <= count);
        marks.map(|(_, mark)| mark.clone()).collect()
    }

    /// From where a content began to take the place of another one to where that was answered,
    /// in numbers of events.
    pub(crate) fn switches(&self) -> Vec<Range<usize>> {
        let mut switches = Vec::new();
        let mut begun = None;
        for (at, mark) in &self.marks {
            match mark {
                Mark::Replace(ReplaceMark::Publishing { .. }) => begun = Some(*at),
                Mark::Replace(ReplaceMark::Published { .. }) => {
                    switches.extend(begun.take().map(|begun| begun..*at));
                }
                _ => {}
            }
        }
        switches
    }

    /// Checks that the record explains every byte of `folder`, from `start` on: a change that went past the
    /// recorder would make every verdict worthless.
    ///
    /// # Errors
    ///
    /// If it does not.
    pub(crate) fn check_explains(&self, start: Disk, folder: &Path) -> Result<()> {
        self.follow(start, self.events.len())?.check_is(folder)
    }

    /// The disk after the first `count` events from `start` on.
    ///
    /// # Errors
    ///
    /// If the record can't be followed.
    pub(crate) fn follow(&self, mut start: Disk, count: usize) -> Result<Disk> {
        for event in self.events.get(..count).unwrap_or_default() {
            start.follow(event)?;
        }
        Ok(start)
    }
}
