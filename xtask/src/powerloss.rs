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
    let seed = flags.seed.unwrap_or(1).to_string();
    let cuts = flags.cuts.unwrap_or(CUTS).to_string();
    let mut arguments = vec!["--seed", &seed];
    match flags.each_step {
        true => arguments.push("--each-step"),
        false => arguments.extend(["--cuts", &cuts]),
    }
    if let Some(name) = &flags.within_appends {
        arguments.extend(["--within-appends", name]);
    }
    if let Some(workload) = &flags.workload {
        arguments.extend(["--workload", workload]);
    }
    for backend in backends.into_iter().filter(|backend| backend.is_durable()) {
        programs.check(&sh, backend, &arguments)?;
    }
    Ok(())
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
    /// Cuts all workloads on `backend`, under both models of a file system.
    ///
    /// # Errors
    ///
    /// If a promise was broken.
    pub fn cut(&self, sh: &Shell, backend: Backend, cuts: u32, seed: u64) -> Result<()> {
        let (cuts, seed) = (cuts.to_string(), seed.to_string());
        let common = ["--cuts", &cuts, "--seed", &seed];
        let usual = ["--workload", "store", "--workload", "broker"];
        self.check(sh, backend, &[&common[..], &usual].concat())?;
        if backend == Backend::Sled {
            // A flush of more than a segment may leave a log that sled refuses to open.
            return Ok(());
        }
        if backend == Backend::Rocksdb {
            // Moments that are met once among hundreds of others.
            let within = ["--within-appends", MANIFEST, "--recoveries", "1"];
            self.check(sh, backend, &[&common[..], &usual, &within].concat())?;
        }
        // What opens sweep is cut with the rest of its plan: one recovery is enough.
        let replace = ["--workload", "replace", "--recoveries", "1"];
        self.check(sh, backend, &[&common[..], &replace].concat())
    }

    /// Checks that a store without its syncs is convicted, also one that does not sync the
    /// files of a bulk load, and that sled by itself would pass if what it calls a sync were
    /// one: so the verdict hangs on the syncs. RocksDB by itself must be convicted of what it
    /// refuses after a cut within an append to its MANIFEST.
    ///
    /// # Errors
    ///
    /// If a store that is wrong on purpose passes.
    pub fn convict(&self, sh: &Shell, backends: &[Backend]) -> Result<()> {
        let cuts = CONVICT_CUTS.to_string();
        let common = ["--workload", "store", "--recoveries", "0", "--cuts", &cuts];
        let wrong = GROUP_SYNCS.iter().filter(|(it, _)| backends.contains(it));
        for &(backend, file) in wrong {
            let without = ["--ignore-fdatasync", file];
            let convicted = [&common[..], &without, &["--must-convict"]].concat();
            self.check(sh, backend, &convicted)?;
            if backend == Backend::Sled {
                let passes = [&common[..], &without, &["--range-counts"]].concat();
                self.check(sh, backend, &passes)?;
            }
        }
        if backends.contains(&Backend::Rocksdb) {
            let replace = [
                "--workload",
                "replace",
                "--recoveries",
                "0",
                "--cuts",
                &cuts,
            ];
            let without = ["--ignore-fdatasync", BULK_FILES, "--must-convict"];
            let convicted = [&replace[..], &without].concat();
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
