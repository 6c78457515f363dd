//! `test`: unit, integration and documentation tests, one backend at a time.

use anyhow::Result;
use xshell::{Shell, cmd};

use crate::backends::{Backend, Selection, broker_features};
use crate::steps::Steps;
use crate::{native, workspace};

/// Packages that are tested once per backend. Cargo unites the features of what it builds
/// together, so each gets a run of its own: that is how a missing `cfg` shows.
const PER_BACKEND: [&str; 2] = ["pop-store", "pop-broker"];

/// What is off unless somebody asks for it, and is tested all the same.
const ADAPTERS: &str = "kv-restore/openraft";

const SKIP_DISK_TESTS: &str = "POP_SKIP_DISK_TESTS";

/// Runs the tests of `selection`; without one, of all that rustc builds alone.
///
/// # Errors
///
/// At the first package whose tests fail.
pub fn run(selection: Option<Selection>) -> Result<()> {
    let mut steps = Steps::start();
    let sh = workspace::shell()?;
    let backends = selection.map_or_else(|| Backend::RUST_ALONE.to_vec(), Selection::backends);
    // Before anything is built: a missing compiler is not found out after minutes.
    native::require(&sh, &backends)?;
    leave_out_what_needs_a_disk(&sh)?;
    if !matches!(selection, Some(Selection::One(_))) {
        steps.run("tests of every other crate", "cargo xtask test", || {
            others(&sh)
        })?;
    }
    for backend in backends {
        let title = format!("tests on {backend}");
        let alone = format!("cargo xtask test --backend {backend}");
        steps.run(&title, &alone, || on(&sh, backend))?;
    }
    steps.finish();
    Ok(())
}

/// Where nobody may mount a file system, tests of a full disk can look at nothing: they are left
/// out and named, unless this is CI, where they fail.
fn leave_out_what_needs_a_disk(sh: &Shell) -> Result<()> {
    let folder = sh.create_temp_dir()?;
    let folder = folder.path();
    let mounts = ["--mount", "--user --map-root-user --mount"]
        .iter()
        .any(|namespace| {
            let namespace = namespace.split(' ');
            let mount = cmd!(sh, "unshare {namespace...} mount -t tmpfs tmpfs {folder}");
            mount.quiet().ignore_stdout().ignore_stderr().run().is_ok()
        });
    if cfg!(target_os = "linux") && !mounts && sh.var_os("CI").is_none() {
        eprintln!(
            "No file system can be mounted here, so tests of a full disk are left out, as with \
             {SKIP_DISK_TESTS}=1. They run as root, and where users have namespaces."
        );
        sh.set_var(SKIP_DISK_TESTS, "1");
    }
    Ok(())
}

/// Tests of the packages that don't care which backend is under them.
///
/// # Errors
///
/// If one fails.
pub fn others(sh: &Shell) -> Result<()> {
    let mut packages = Vec::new();
    for package in workspace::packages(sh)? {
        // What a benchmark shares is compiled by Clippy and exercised by `bench`.
        let is_bench = package.folder.starts_with("benches");
        if !is_bench && !PER_BACKEND.contains(&package.name.as_str()) {
            packages.extend(["-p".to_owned(), package.name]);
        }
    }
    cmd!(sh, "cargo test {packages...} --features {ADAPTERS}").run()?;
    Ok(())
}

/// Tests of the store and the broker with `backend` and no other compiled in.
///
/// # Errors
///
/// If one fails.
pub fn on(sh: &Shell, backend: Backend) -> Result<()> {
    native::require(sh, &[backend])?;
    let feature = backend.feature();
    let store: Vec<_> = ["testkit"].into_iter().chain(feature).collect();
    let store = store.join(",");
    cmd!(sh, "cargo test -p pop-store --features {store}").run()?;
    let engine = feature.unwrap_or_default();
    cmd!(
        sh,
        "cargo test -p kv-restore --features {engine} --test it -- backends full::"
    )
    .run()?;
    let broker = broker_features(&[backend]);
    cmd!(
        sh,
        "cargo test -p pop-broker --no-default-features --features {broker}"
    )
    .run()?;
    Ok(())
}
