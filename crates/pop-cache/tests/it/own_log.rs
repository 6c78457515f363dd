//! The example, killed in the middle and started again, and with a message that is forgotten.

use std::{
    ops::Range,
    path::Path,
    process::{Command, Output},
};

use example::Consumer;

#[path = "../../examples/own_log.rs"]
#[allow(dead_code, reason = "it begins in a test here")]
mod example;

const FOLDER: &str = "OWN_LOG_FOLDER";
const CONSUMER: &str = "OWN_LOG_CONSUMER";

/// The example in a process of its own, which is this test program again.
fn run(folder: &Path, consumer: &str) -> (Output, Vec<String>) {
    let program = std::env::current_exe().expect("a program knows where it is");
    let mut command = Command::new(program);
    command.args(["--exact", "own_log::the_example", "--nocapture"]);
    command.env(FOLDER, folder);
    command.env(CONSUMER, consumer);
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
        let consumer = match std::env::var(CONSUMER).as_deref() {
            Ok("dies") => Consumer::Dies,
            Ok("forgets") => Consumer::Forgets,
            _ => Consumer::Diligent,
        };
        let consumed = example::consume(Path::new(&folder), consumer).await;
        consumed.expect("it comes to its end");
    }
}

fn messages(numbers: Range<u64>) -> Vec<String> {
    numbers.map(|number| format!("message {number}")).collect()
}

#[test]
fn after_a_crash_exactly_what_was_not_acknowledged_comes_again() {
    let folder = tempfile::tempdir().expect("a folder is made");
    let (output, got) = run(folder.path(), "dies");
    assert!(!output.status.success(), "it was to die");
    assert_eq!(got, messages(0..5));
    let (output, got) = run(folder.path(), "diligent");
    assert!(output.status.success(), "{output:?}");
    // Mutant: acknowledgements are answered before they are stored; all ten would come.
    assert_eq!(got, messages(4..10));
    let (_, got) = run(folder.path(), "diligent");
    assert!(got.is_empty(), "{got:?}");
}

// Catches: the sink answers that it retried, and appends nothing.
#[test]
fn what_is_not_acknowledged_in_time_is_appended_once_more_and_comes_as_the_last() {
    let folder = tempfile::tempdir().expect("a folder is made");
    let (output, got) = run(folder.path(), "forgets");
    assert!(output.status.success(), "{output:?}");
    let expected = [messages(0..10), messages(0..1)].concat();
    assert_eq!(got, expected);
    let log = std::fs::read_to_string(folder.path().join("log.txt"));
    assert!(log.expect("it is there").lines().eq(expected));
    let (_, got) = run(folder.path(), "diligent");
    assert!(got.is_empty(), "{got:?}");
}
