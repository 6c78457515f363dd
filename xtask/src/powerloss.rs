//! `powerloss`: cuts the power of a store on paper, and checks what is left.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use xshell::{Shell, cmd};

use crate::backends::{Backend, Selection, features};
use crate::{flags, native, workspace};

/// Cuts per workload and model, unless told otherwise.
const CUTS: u32 = 200;

/// Cuts that find a sync that is missing, each time.
const CONVICT_CUTS: u32 = 40;

/// Cuts within appends that find one that is torn: about one in 20 is.
const TORN_CUTS: u32 = 200;

/// What each engine's adapter syncs a group by: calls of `fdatasync` on these files. sled
/// without them is sled as it is by itself.
const GROUP_SYNCS: [(Backend, &str); 3] = [
    (Backend::Fjall, ".jnl"),
    (Backend::Sled, "engine/db"),
    (Backend::Rocksdb, ".log"),
];

/// What sled says of a log that a cut within a flush over several segments left.
const SLED_REFUSAL: &str = "Read corrupted data at file offset";

/// What RocksDB's bulk loads are in, and its tables.
const BULK_FILES: &str = ".sst";

/// What RocksDB appends to between syncs of its own, and reads before anything else.
const MANIFEST: &str = "MANIFEST";

/// Cuts the power of the stores that the flags name.
///
/// # Errors
///
/// If the build fails, or a promise was broken.
pub fn run(flags: flags::Powerloss) -> Result<()> {
    ensure!(
        is_possible(),
        "the recorder stands in front of the C library of Linux: run it there"
    );
    let backends = match flags.backend.unwrap_or(Selection::One(Backend::Fjall)) {
        Selection::One(backend) if !backend.is_durable() => {
            bail!("the {backend} store keeps nothing, so a power cut proves nothing")
        }
        selection => selection.backends(),
    };
    let sh = workspace::shell()?;
    let programs = build(&sh, &backends)?;
    if flags.convict {
        return programs.convict(&sh, &backends);
    }
    let arguments = arguments(&flags);
    let usual: Vec<_> = arguments.iter().map(String::as_str).collect();
    for backend in backends.into_iter().filter(|backend| backend.is_durable()) {
        let mut arguments = usual.clone();
        if flags.sled_may_refuse && backend == Backend::Sled {
            arguments.extend(["--known", SLED_REFUSAL]);
        }
        programs.check(&sh, backend, &arguments)?;
    }
    Ok(())
}

/// What the checker is given for the flags.
fn arguments(flags: &flags::Powerloss) -> Vec<String> {
    let mut arguments = Vec::new();
    let mut give = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
    if !flags.each_step {
        give("--cuts", flags.cuts.unwrap_or(CUTS).to_string());
    }
    give("--seed", flags.seed.unwrap_or(1).to_string());
    for workload in &flags.workload {
        give("--workload", workload.clone());
    }
    if let Some(name) = &flags.within_appends {
        give("--within-appends", name.clone());
    }
    if let Some(count) = flags.recoveries {
        give("--recoveries", count.to_string());
    }
    if let Some(count) = flags.layouts {
        give("--layouts", count.to_string());
    }
    if let Some(count) = flags.writes {
        give("--writes", count.to_string());
    }
    if flags.each_step {
        arguments.push("--each-step".to_owned());
    }
    arguments
}

/// What CI cuts on `backend`: each is what this command and the checker take. What cuts find
/// is rare after thousands, and a slip in a sync shows in every other one.
pub fn ci_runs(backend: Backend) -> impl Iterator<Item = &'static str> {
    let usual = "--cuts 12 --seed 1 --workload store --workload broker";
    // Moments that are met once among hundreds of others.
    let within = "--cuts 12 --seed 1 --workload store --workload broker \
                  --within-appends MANIFEST --recoveries 1";
    // What opens sweep is cut with the rest of its plan: one recovery is enough. After a cut
    // of sled's, a flush of more than a segment may leave a log that it refuses to open.
    let replace = "--cuts 12 --seed 1 --workload replace --recoveries 1";
    let runs = [
        Some(usual),
        (backend == Backend::Rocksdb).then_some(within),
        (backend != Backend::Sled).then_some(replace),
    ];
    runs.into_iter().flatten()
}

/// Whether this system has what the recorder is made for.
pub const fn is_possible() -> bool {
    cfg!(target_os = "linux")
}

/// The checker and the library that it has preloaded.
#[derive(Debug)]
pub struct Programs {
    checker: PathBuf,
    recorder: PathBuf,
}

/// Builds them with `backends`.
///
/// # Errors
///
/// If a backend needs something that isn't installed, or the build fails.
pub fn build(sh: &Shell, backends: &[Backend]) -> Result<Programs> {
    native::require(sh, backends)?;
    let features = features(backends);
    let json = ["--message-format", "json-render-diagnostics"];
    let messages = cmd!(
        sh,
        "cargo build -p pop-powerloss --no-default-features --features {features} {json...}"
    )
    .read()?;
    let checker = workspace::built(&messages, "pop-powerloss")
        .into_iter()
        .next();
    let messages = cmd!(sh, "cargo build -p pop-powerloss-recorder {json...}").read()?;
    let recorder = workspace::built(&messages, "pop_powerloss_recorder");
    let is_library = |it: &PathBuf| it.extension().is_some_and(|it| it == "so");
    Ok(Programs {
        checker: checker.context("cargo built the checker but named no program")?,
        recorder: recorder
            .into_iter()
            .find(is_library)
            .context("cargo built the recorder but named no library")?,
    })
}

impl Programs {
    /// Does what CI does on `backend`: [`ci_runs`].
    ///
    /// # Errors
    ///
    /// If a promise was broken.
    pub fn cut(&self, sh: &Shell, backend: Backend) -> Result<()> {
        for run in ci_runs(backend) {
            let arguments: Vec<_> = run.split_whitespace().collect();
            self.check(sh, backend, &arguments)?;
        }
        Ok(())
    }

    /// Checks that a store without its syncs is convicted, of what it answers to batches and of
    /// what it answers to a switch; also one that does not sync the files of a bulk load, and
    /// that sled by itself would pass if what it calls a sync were
    /// one: so the verdict hangs on the syncs. RocksDB by itself must be convicted of what it
    /// refuses after a cut within an append to its MANIFEST.
    ///
    /// # Errors
    ///
    /// If a store that is wrong on purpose passes.
    pub fn convict(&self, sh: &Shell, backends: &[Backend]) -> Result<()> {
        let cuts = CONVICT_CUTS.to_string();
        let of = |workload| ["--workload", workload, "--recoveries", "0", "--cuts", &cuts];
        let wrong = GROUP_SYNCS.iter().filter(|(it, _)| backends.contains(it));
        for &(backend, file) in wrong {
            let without = ["--ignore-fdatasync", file];
            for workload in ["store", "replace"] {
                let convicted = [&of(workload)[..], &without, &["--must-convict"]].concat();
                self.check(sh, backend, &convicted)?;
            }
            if backend == Backend::Sled {
                let passes = [&of("store")[..], &without, &["--range-counts"]].concat();
                self.check(sh, backend, &passes)?;
            }
        }
        if backends.contains(&Backend::Rocksdb) {
            let without = ["--ignore-fdatasync", BULK_FILES, "--must-convict"];
            let convicted = [&of("replace")[..], &without].concat();
            self.check(sh, Backend::Rocksdb, &convicted)?;
            let cuts = TORN_CUTS.to_string();
            let store = ["--workload", "store", "--recoveries", "0", "--cuts", &cuts];
            let within = ["--within-appends", MANIFEST, "--model", "strict"];
            let alone = ["--engine-alone", "--must-convict"];
            let convicted = [&store[..], &within, &alone].concat();
            self.check(sh, Backend::Rocksdb, &convicted)?;
        }
        Ok(())
    }

    fn check(&self, sh: &Shell, backend: Backend, arguments: &[&str]) -> Result<()> {
        let (checker, recorder): (&Path, &Path) = (&self.checker, &self.recorder);
        let store = backend.name();
        cmd!(
            sh,
            "{checker} check --store {store} --recorder {recorder} {arguments...}"
        )
        .run()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ci_prints_is_what_ci_runs() {
        // Catches: a flag that only the checker has; `arguments` that leaves `--recoveries` out.
        for backend in Backend::ALL {
            for run in ci_runs(backend) {
                let words: Vec<_> = run.split_whitespace().collect();
                let typed = [&["powerloss"][..], &words].concat();
                let typed = typed.into_iter().map(Into::into).collect();
                let parsed = flags::Xtask::from_vec(typed).expect("it can be typed");
                let flags::XtaskCmd::Powerloss(flags) = parsed.subcommand else {
                    panic!("{run} is another command");
                };
                assert_eq!(arguments(&flags), words);
            }
        }
    }
}
