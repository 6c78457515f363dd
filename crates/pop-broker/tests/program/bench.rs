//! What every test needs: a folder, and the program on it.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};

use tempfile::TempDir;

use crate::{client::Client, process::Process};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_pop-broker");

/// A store that keeps what it is given: what holds for one holds for each.
#[cfg(feature = "fjall")]
pub(crate) const DURABLE: &str = "fjall";
#[cfg(all(feature = "sled", not(feature = "fjall")))]
pub(crate) const DURABLE: &str = "sled";
#[cfg(all(feature = "rocksdb", not(any(feature = "fjall", feature = "sled"))))]
pub(crate) const DURABLE: &str = "rocksdb";

/// Far above what an end takes; a test that needs it has failed.
pub(crate) const END_MAX: Duration = Duration::from_secs(20);

/// A folder, with whatever a test puts there.
#[derive(Debug)]
pub(crate) struct Bench {
    folder: TempDir,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        std::fs::write(self.path(name), text).unwrap();
        text_of(&self.path(name))
    }

    pub(crate) fn data(&self) -> String {
        text_of(&self.path("data"))
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// A broker on free ports, with more flags.
    pub(crate) fn serve(&self, flags: &[&str]) -> Process {
        let ports = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        let flags = [&ports[..], flags].concat();
        Process::start(Path::new(BINARY), &flags, &self.path("log")).unwrap()
    }

    /// The same, with a log of its own: the second broker of a test.
    #[cfg(any(feature = "fjall", feature = "rocksdb", feature = "sled"))]
    pub(crate) fn serve_logged(&self, name: &str, flags: &[&str]) -> Process {
        let ports = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        let flags = [&ports[..], flags].concat();
        let log = self.path(&format!("{name}.log"));
        Process::start(Path::new(BINARY), &flags, &log).unwrap()
    }

    /// A broker that keeps nothing.
    pub(crate) fn serve_memory(&self) -> Process {
        self.serve(&["--store", "memory"])
    }

    /// A broker on the data folder.
    #[cfg(any(feature = "fjall", feature = "rocksdb", feature = "sled"))]
    pub(crate) fn serve_folder(&self) -> Process {
        self.serve(&["--store", DURABLE, "--data", &self.data()])
    }
}

/// Runs the program to its end.
pub(crate) fn run(arguments: &[&str]) -> Output {
    Command::new(BINARY).args(arguments).output().unwrap()
}

/// Asks a broker by a command; what it prints, if it succeeds.
pub(crate) fn ask(broker: &Process, arguments: &[&str]) -> String {
    let admin = broker.field("admin").unwrap();
    let output = run(&[arguments, &["--admin", admin]].concat());
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) async fn client(broker: &Process, topic: &str, group: &str) -> Client {
    let address = broker.field("listen").unwrap();
    Client::connect(address, topic, group).await.unwrap()
}

/// Tries again until it holds. What is waited for happens in another process.
pub(crate) async fn until(mut holds: impl FnMut() -> bool) {
    let holding = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(END_MAX, holding).await.unwrap();
}

fn text_of(path: &Path) -> String {
    path.to_str().unwrap().into()
}
