//! The example, killed in the middle and started again.

use std::{
    path::Path,
    process::{Command, Output},
};

#[path = "../../examples/own_log.rs"]
#[allow(dead_code, reason = "it begins in a test here")]
mod example;

const FOLDER: &str = "OWN_LOG_FOLDER";
const CRASH: &str = "OWN_LOG_CRASH";

/// The example in a process of its own, which is this test program again.
fn run(folder: &Path, dies: bool) -> (Output, Vec<String>) {
    let program = std::env::current_exe().expect("a program knows where it is");
    let mut command = Command::new(program);
    command.args(["--exact", "own_log::the_example", "--nocapture"]);
    command.env(FOLDER, folder);
    if dies {
        command.env(CRASH, "yes");
    }
    let output = command.output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let got = text.lines().filter_map(|line| line.strip_prefix("got "));
    let got = got.map(str::to_owned).collect();
    (output, got)
}

/// What the other test starts; alone it does nothing.
#[tokio::test]
async fn the_example() {
    if let Ok(folder) = std::env::var(FOLDER) {
        let dies = std::env::var(CRASH).is_ok();
        let consumed = example::consume(Path::new(&folder), dies).await;
        consumed.expect("it comes to its end");
    }
}

#[test]
fn after_a_crash_exactly_what_was_not_acknowledged_comes_again() {
    let folder = tempfile::tempdir().expect("a folder is made");
    let messages = |numbers: std::ops::Range<u64>| -> Vec<String> {
        numbers.map(|number| format!("message {number}")).collect()
    };
    let (output, got) = run(folder.path(), true);
    assert!(!output.status.success(), "it was to die");
    assert_eq!(got, messages(0..5));
    let (output, got) = run(folder.path(), false);
    assert!(output.status.success(), "{output:?}");
    // Mutant: acknowledgements are answered before they are stored; all ten would come.
    assert_eq!(got, messages(4..10));
    let (_, got) = run(folder.path(), false);
    assert!(got.is_empty(), "{got:?}");
}
