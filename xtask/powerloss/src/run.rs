//! A whole check: each workload recorded once, and cut under each model.

use std::{
    ops::Range,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, anyhow, ensure};
use pop_powerloss_trace::SyncCall;
use pop_store::testkit::Random;

use crate::{
    CheckFlags,
    check::{Check, Conviction},
    cut::{self, Cut, EachStep},
    disk::{Disk, Model, Rules},
    marks::Mark,
    record::{Place, Record},
    work::Workload,
};

const SHOWN_MAX: usize = 10;
// What is known is rare: more of it is something new.
const KNOWN_ONE_IN: usize = 50;

/// Does what the flags say.
///
/// # Errors
///
/// If a promise is broken, or none is where one should be.
pub(crate) fn check(flags: &CheckFlags) -> Result<()> {
    let base = tempfile::Builder::new()
        .prefix("pop-powerloss")
        .tempdir_in(scratch())?;
    let broken = check_in(flags, base.path());
    if flags.must_convict {
        ensure!(
            broken? > 0,
            "{}: no promise was broken, and one should be",
            flags.store
        );
        return Ok(());
    }
    let outcome = match broken {
        Ok(0) => return Ok(()),
        Ok(count) => Err(anyhow!("promises broken after {count} cuts")),
        Err(error) => Err(error),
    };
    let kept = base.keep();
    outcome.with_context(|| {
        let (store, kept) = (flags.store, kept.display());
        format!("{store}: all is kept in {kept}, and --record checks a record again")
    })
}

/// How many cuts broke a promise.
fn check_in(flags: &CheckFlags, base: &Path) -> Result<usize> {
    let mut broken = 0;
    for workload in chosen(&flags.workload, &Workload::ALL) {
        let folder = base.join(workload.name());
        std::fs::create_dir(&folder)?;
        let record = match &flags.record {
            Some(path) => Record::read(path)?,
            None => record(flags, workload, &folder)?,
        };
        for model in chosen(&flags.model, &Model::ALL) {
            let run = Run {
                flags,
                workload,
                rules: rules(flags, model),
                folder: &folder,
            };
            broken += run.check(&record)?;
        }
    }
    Ok(broken)
}

fn rules(flags: &CheckFlags, model: Model) -> Rules {
    let mut rules = Rules::of(model);
    rules.range_counts = flags.range_counts;
    let ignored = flags.ignore_fdatasync.iter();
    rules.ignored = ignored.map(|end| (SyncCall::Data, end.clone())).collect();
    rules
}

/// Memory where there is some: what is laid out lives for a moment.
fn scratch() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        memory.to_owned()
    } else {
        std::env::temp_dir()
    }
}

fn chosen<T: Copy>(asked: &[T], all: &[T]) -> Vec<T> {
    match asked {
        [] => all.to_vec(),
        asked => asked.to_vec(),
    }
}

fn record(flags: &CheckFlags, workload: Workload, folder: &Path) -> Result<Record> {
    let place = Place::make(folder)?;
    run_recorded(flags, workload, &place, false)?;
    let record = Record::read(&place.log)?;
    let start = Disk::new(Rules::of(Model::Ext4), record.log.clone());
    record.check_explains(start, &place.folder)?;
    ensure!(
        !record.marks.is_empty(),
        "the workload was promised nothing"
    );
    Ok(record)
}

/// Runs the workload, or only its recovery, in a process under the recorder.
fn run_recorded(
    flags: &CheckFlags,
    workload: Workload,
    place: &Place,
    recover: bool,
) -> Result<()> {
    let recorder = flags.recorder.as_deref();
    let recorder = recorder.context("give --recorder, the preloaded library, or --record")?;
    let mut command = Command::new(std::env::current_exe()?);
    command
        .arg("work")
        .args(["--store", flags.store.name(), "--workload", workload.name()])
        .arg("--folder")
        .arg(&place.folder)
        .arg("--marks")
        .arg(&place.marks)
        .args(["--millis", &flags.millis.to_string()])
        .args(recover.then_some("--recover"));
    place.record(recorder, &mut command)
}

/// What came of some cuts.
struct Verdict {
    convictions: Vec<Conviction>,
    /// How many more would be, and are refused as is known.
    known: usize,
}

impl Verdict {
    fn is_clean(&self) -> bool {
        self.convictions.is_empty() && self.known == 0
    }
}

/// A record, cut under one model.
struct Run<'a> {
    flags: &'a CheckFlags,
    workload: Workload,
    rules: Rules,
    folder: &'a Path,
}

impl Run<'_> {
    /// Cuts the record, and the recoveries after some of its cuts; returns how many cuts
    /// broke a promise.
    fn check(&self, record: &Record) -> Result<usize> {
        let flags = self.flags;
        let random = &mut Random::new(flags.seed);
        let start = Disk::new(self.rules.clone(), record.log.clone());
        let cuts = match flags.each_step {
            true => self.each_step(record, random),
            false => self.choose(record, flags.cuts, random),
        };
        let verdict = self.judge(record, start.clone(), Vec::new(), &cuts)?;
        self.show(record, cuts.len(), &verdict);
        let mut broken = verdict.convictions.len();
        if flags.recorder.is_some() && broken == 0 {
            let firsts = self.choose(record, flags.recoveries, random);
            for cut in &firsts {
                // What does not open has no recovery to record.
                if flags.known.is_some() {
                    let cuts = std::slice::from_ref(cut);
                    let verdict = self.judge(record, start.clone(), Vec::new(), cuts)?;
                    if verdict.known > 0 {
                        println!(
                            "powerloss: after {} events it refused as is known, and no \
                             recovery is looked at",
                            cut.events
                        );
                        continue;
                    }
                }
                broken += self.check_recovery(record, start.clone(), *cut)?;
            }
            println!(
                "powerloss:   and in the recoveries after {} cuts: {broken} broken",
                firsts.len()
            );
        }
        Ok(broken)
    }

    /// Says what it leaves out.
    fn each_step(&self, record: &Record, random: &mut Random) -> Vec<Cut> {
        let how = EachStep {
            layouts: self.flags.layouts,
            writes_max: self.flags.writes,
        };
        let steps = how.of(&record.events, &record.switches(), random);
        println!(
            "powerloss: step by step, and after {} of {} writes: {} outside of switches are left \
             out",
            steps.writes - steps.left_out,
            steps.writes,
            steps.left_out
        );
        steps.cuts
    }

    fn choose(&self, record: &Record, count: usize, random: &mut Random) -> Vec<Cut> {
        match &self.flags.within_appends {
            Some(name) => {
                let length = |data: &Range<usize>| data.len() as u64;
                let moments = cut::within_appends(&record.events, name, length);
                cut::choose_among(&moments, count, random)
            }
            None => cut::choose(&record.events, count, random),
        }
    }

    fn judge(
        &self,
        record: &Record,
        start: Disk,
        said: Vec<Mark>,
        cuts: &[Cut],
    ) -> Result<Verdict> {
        let check = Check {
            backend: self.flags.store,
            workload: self.workload,
            engine_alone: self.flags.engine_alone,
            record,
            start,
            said,
            base: self.folder,
            threads: self.flags.threads,
        };
        let is_known = |it: &Conviction| {
            let known = self.flags.known.as_deref();
            known.is_some_and(|known| it.violations.iter().all(|it| it.contains(known)))
        };
        let (known, convictions): (Vec<_>, Vec<_>) =
            check.run(cuts)?.into_iter().partition(is_known);
        Ok(match known.len() <= cuts.len().div_ceil(KNOWN_ONE_IN) {
            true => Verdict {
                convictions,
                known: known.len(),
            },
            false => Verdict {
                convictions: [convictions, known].concat(),
                known: 0,
            },
        })
    }

    /// Records how the product opens what a cut left, and cuts that.
    fn check_recovery(&self, record: &Record, start: Disk, first: Cut) -> Result<usize> {
        let prefix = "recovery";
        let base = tempfile::Builder::new()
            .prefix(prefix)
            .tempdir_in(self.folder)?;
        let place = Place::make(base.path())?;
        let random = &mut Random::new(first.seed);
        let left = record.follow(start, first.events)?;
        left.lay_out_after_cut(&place.folder, random)?;
        let before = Disk::of(&place.folder, self.rules.clone())?;
        run_recorded(self.flags, self.workload, &place, true)?;
        let recovery = Record::read(&place.log)?;
        let start = before.with_log(recovery.log.clone());
        recovery.check_explains(start.clone(), &place.folder)?;
        let count = self.flags.cuts / self.flags.recoveries.max(1);
        let cuts = self.choose(&recovery, count, random);
        let mut said = record.marks_before(first.events);
        said.extend(self.workload.ended_by_recovery());
        let verdict = self.judge(&recovery, start, said, &cuts)?;
        if !verdict.convictions.is_empty() {
            let _ = base.keep();
            eprintln!("  in the recovery after {} events:", first.events);
        }
        if !verdict.is_clean() {
            self.show(&recovery, cuts.len(), &verdict);
        }
        Ok(verdict.convictions.len())
    }

    fn show(&self, record: &Record, cuts: usize, verdict: &Verdict) {
        let Verdict { convictions, known } = verdict;
        let known = match known {
            0 => String::new(),
            count => format!(", and {count} refused as is known"),
        };
        println!(
            "powerloss: {} {} under {:?}, seed {}: {} cuts in {} events ({} MiB, {} marks), \
             {} broken{known}",
            self.flags.store,
            self.workload.name(),
            self.rules.model,
            self.flags.seed,
            cuts,
            record.events.len(),
            record.log.len() >> 20,
            record.marks.len(),
            convictions.len()
        );
        if self.flags.must_convict {
            return;
        }
        for conviction in convictions.iter().take(SHOWN_MAX) {
            eprintln!(
                "  after {} events, seed {:x}, left in {}:",
                conviction.cut.events,
                conviction.cut.seed,
                conviction.folder.display()
            );
            for violation in conviction.violations.iter().take(SHOWN_MAX) {
                eprintln!("    {violation}");
            }
        }
    }
}
