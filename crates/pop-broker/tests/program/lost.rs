//! A broker that is absent, unwilling or lost on the way: each command that asks one for its
//! data ends with the same code, and says who it was and what to do.

use std::{
    net::TcpListener,
    process::{Child, Command, Output, Stdio},
};

use tokio::task::spawn_blocking;

use crate::{
    bench::{BINARY, Bench, END_MAX, client, until},
    bootstrap::{shown, source, to, url},
};

/// The file or folder that a command makes.
fn target(bench: &Bench, command: &str) -> String {
    bench.path(command).to_str().unwrap().to_owned()
}

/// Starts a command that asks a broker.
fn begin(bench: &Bench, command: &str, url: &str) -> Child {
    let to = match command {
        "backup" => target(bench, command),
        command => to(bench, command),
    };
    let mut asks = Command::new(BINARY);
    asks.args([command, "--from", url, "--to", &to]);
    asks.stdout(Stdio::piped()).stderr(Stdio::piped());
    asks.spawn().unwrap()
}

/// How all of them end.
#[track_caller]
fn ended(output: &Output, code: i32, parts: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    let line = said.lines().last().unwrap_or_default();
    assert_eq!(output.status.code(), Some(code), "{said}");
    for part in parts {
        assert!(line.contains(part), "{part:?} in {line}");
    }
    assert!(output.stdout.is_empty(), "{output:?}");
}

const COMMANDS: [&str; 3] = ["backup", "bootstrap", "migrate"];

/// Catches: another code for one of the commands; an error that does not say who.
#[test]
fn a_broker_that_is_absent_is_named() {
    let bench = Bench::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("tcp://{}", listener.local_addr().unwrap());
    drop(listener);
    for command in COMMANDS {
        let output = begin(&bench, command, &url).wait_with_output().unwrap();
        ended(&output, 8, &[&url, "does not answer", "see that it runs"]);
    }
}

/// Catches: one who answers and does not want to, for one who does not answer.
#[tokio::test]
async fn a_broker_that_refuses_is_named_and_its_reason_is_passed_on() {
    let bench = Bench::new();
    let token = bench.write("token", "0123456789abcdef\n");
    let broker = source(&bench, &["--data-token-file", &token]);
    let url = url(&broker);
    for command in COMMANDS {
        let output = begin(&bench, command, &url).wait_with_output().unwrap();
        ended(&output, 1, &[&url, "token is missing or wrong"]);
    }
}

/// Catches: another code than that of a broker that is absent; the folder in the place of who
/// was lost; no word of what to do. Each turns to it again for half a minute before.
#[tokio::test]
async fn a_broker_that_is_lost_on_the_way_ends_as_one_that_is_absent() {
    let bench = Bench::new();
    let flags = ["--data-rate", "20K", "--data-snapshots-max", "3"];
    let mut broker = source(&bench, &flags);
    let mut producer = client(&broker, "orders", "billing").await;
    let body = "x".repeat(200 << 10);
    for number in 0..10 {
        producer.send(&number.to_string(), &body).await.unwrap();
    }
    let url = url(&broker);
    let running = COMMANDS.map(|command| begin(&bench, command, &url));
    until(|| shown(&broker, "running") == 3).await;
    broker.signal("KILL").unwrap();
    broker.end(END_MAX).await.unwrap();
    let ends = running.map(|child| spawn_blocking(|| child.wait_with_output()));
    for (command, end) in COMMANDS.into_iter().zip(ends) {
        let output = end.await.unwrap().unwrap();
        let kept = match command {
            "backup" => "what is written stays in ",
            _ => "what was there before is unchanged",
        };
        let called = match command {
            "migrate" => "migration failed",
            other => &format!("{other} failed"),
        };
        let advice = ["start that broker", "type the same command again"];
        let parts = [&[url.as_str(), called, kept][..], &advice].concat();
        ended(&output, 8, &parts);
        let said = String::from_utf8_lossy(&output.stderr);
        let line = said.lines().last().unwrap();
        let blamed = format!("{}: ", target(&bench, command));
        assert!(!line.contains(&blamed), "{line}");
    }
}
