//! Deleting topics and groups from the command line, and what is in quarantine.

use std::{process::Output, time::Duration};

use crate::{
    bench::{Bench, ask, client, run},
    process::Process,
};

const LONG: Duration = Duration::from_secs(60);

fn try_ask(broker: &Process, arguments: &[&str]) -> Output {
    let admin = broker.field("admin").unwrap();
    run(&[arguments, &["--admin", admin]].concat())
}

#[track_caller]
fn check_refused(broker: &Process, arguments: &[&str], code: i32, problem: &str) {
    let output = try_ask(broker, arguments);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert!(text.contains(problem), "{problem} in {text}");
}

#[test]
fn nothing_is_deleted_that_was_not_said_twice() {
    let bench = Bench::new();
    let broker = bench.serve_memory();
    ask(&broker, &["topic", "create", "orders"]);
    ask(&broker, &["group", "create", "billing"]);
    // Mutant: the flag is not looked at.
    check_refused(&broker, &["topic", "delete", "orders"], 2, "--yes");
    check_refused(&broker, &["group", "delete", "billing"], 2, "--yes");
    assert!(ask(&broker, &["topic", "list"]).contains("orders"));
    assert!(ask(&broker, &["group", "list"]).contains("billing"));
}

#[test]
fn what_is_not_in_quarantine_is_neither_put_back_nor_dropped() {
    let bench = Bench::new();
    let broker = bench.serve_memory();
    let nothing = "nothing is in quarantine at place 7";
    check_refused(&broker, &["quarantine", "redrive", "7"], 1, nothing);
    check_refused(&broker, &["quarantine", "drop", "7"], 2, "--yes");
    check_refused(&broker, &["quarantine", "drop", "7", "--yes"], 1, nothing);
}

#[tokio::test]
async fn a_topic_and_a_group_are_deleted() {
    let bench = Bench::new();
    let broker = bench.serve_memory();
    let mut client = client(&broker, "orders", "billing").await;
    client.send("1", "coffee").await.unwrap();
    assert_eq!(client.receive(LONG, LONG).await.unwrap().len(), 1);
    let text = ask(&broker, &["group", "delete", "billing", "--yes"]);
    assert_eq!(text, "deleted group billing\n");
    assert!(!ask(&broker, &["group", "list"]).contains("billing"));
    let text = ask(&broker, &["topic", "delete", "orders", "--yes"]);
    assert_eq!(text, "deleted topic orders\n");
    assert!(!ask(&broker, &["topic", "list"]).contains("orders"));
    let gone = ["topic", "delete", "orders", "--yes"];
    check_refused(&broker, &gone, 1, "does not exist");
}
