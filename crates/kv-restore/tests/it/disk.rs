//! A disk of its own for one test, small enough to be full: a file system in memory.
//!
//! Root mounts it where it is. Everybody else does so in a namespace that ends with the test,
//! in which the test runs once more; where the system permits neither, the test fails, because
//! it has looked at nothing.

use std::{
    env,
    fs::File,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
    thread,
};

/// With 1, tests that need a disk of their own are left out.
const SKIP: &str = "POP_SKIP_DISK_TESTS";
/// Says to a test that it runs in a namespace.
const WITHIN: &str = "POP_DISK_TEST_IN_NAMESPACE";

/// Unmounted when it is dropped.
pub(crate) struct Disk(PathBuf);

impl Disk {
    /// At `path`, a folder. Nothing if the test is left out, or has run in a namespace.
    pub(crate) fn mount(path: &Path, options: &str) -> Option<Self> {
        if env::var_os(SKIP).is_some_and(|it| it == "1") {
            skip();
            return None;
        }
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(path)
            .output();
        match mount {
            Ok(output) if output.status.success() => return Some(Self(path.to_owned())),
            refused if env::var_os(WITHIN).is_some() => panic!("{}", impossible(&refused)),
            _ => run_in_namespace(),
        }
        None
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Takes all room but so much, with the file whose name it says.
    pub(crate) fn fill(&self, left_bytes: u64) -> PathBuf {
        let path = self.0.join("filler");
        let mut file = File::create(&path).unwrap();
        let chunk = vec![1; 1 << 20];
        while file.write_all(&chunk).is_ok() {}
        let length = file.metadata().unwrap().len();
        file.set_len(length - left_bytes).unwrap();
        path
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // What is left of a failed test may still have it open.
        let unmounted = Command::new("umount").arg("--lazy").arg(&self.0).status();
        assert!(thread::panicking() || unmounted.unwrap().success());
    }
}

/// Runs the test of this thread, which is called as the test is.
fn run_in_namespace() {
    let thread = thread::current();
    let ran = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "--"])
        .arg(env::current_exe().unwrap())
        .args(["--exact", thread.name().unwrap(), "--nocapture"])
        .env(WITHIN, "1")
        .output();
    let succeeded = |it: &std::process::Output| {
        // With another name no test would have run, and that would be no failure.
        it.status.success() && String::from_utf8_lossy(&it.stdout).contains("1 passed")
    };
    assert!(
        ran.as_ref().is_ok_and(succeeded),
        "in a namespace: {}",
        impossible(&ran)
    );
}

fn impossible(outcome: &std::io::Result<std::process::Output>) -> String {
    let said = match outcome {
        Ok(output) => format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        ),
        Err(error) => error.to_string(),
    };
    format!(
        "{said}\nif no file system could be mounted: run this as root or where unprivileged \
         users have namespaces, or leave it out with {SKIP}=1"
    )
}

#[expect(clippy::print_stderr, reason = "a test that looks at nothing says so")]
fn skip() {
    let thread = thread::current();
    let name = thread.name().unwrap_or_default();
    eprintln!("skipped by {SKIP}: {name}");
}
