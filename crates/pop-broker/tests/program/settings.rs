//! Where a setting comes from, as the running program shows it.

use std::{net::TcpListener, process::Command};

use crate::bench::{BINARY, Bench, ask};

#[test]
fn topics_and_groups_of_the_file_are_made_once() {
    let bench = Bench::new();
    let text = "store = \"memory\"\nqueues = 3\n\n[[topics]]\nname = \"orders\"\n\n\
                [[topics]]\nname = \"audit\"\nnamespace = \"eu\"\nqueues = 9\n\n\
                [[topics]]\nname = \"orders\"\nqueues = 5\n\n\
                [[groups]]\nname = \"billing\"\ndelivery-attempts-max = 2\nstart = \"latest\"\nfifo = true\n";
    let file = bench.write("broker.toml", text);
    let broker = bench.serve(&["--config", &file]);
    let topics = ask(&broker, &["topic", "list"]);
    let rows: Vec<Vec<_>> = topics
        .lines()
        .map(|it| it.split_whitespace().collect())
        .collect();
    assert!(rows.contains(&vec!["orders", "-", "3"]), "{topics}");
    assert!(rows.contains(&vec!["audit", "eu", "9"]), "{topics}");
    let groups = ask(&broker, &["group", "list"]);
    let row = groups.lines().nth(1).unwrap();
    let row: Vec<_> = row.split_whitespace().collect();
    assert_eq!(row, ["billing", "-", "2", "latest", "fifo"]);
}

/// Each source names an address that is taken: the refusal tells whose was tried.
#[test]
fn a_flag_beats_the_environment_and_that_beats_the_file() {
    let bench = Bench::new();
    let taken = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [flag, variable, file] = taken
        .each_ref()
        .map(|listener| listener.local_addr().unwrap().to_string());
    let text = format!("store = \"memory\"\nlisten = \"{file}\"\nadmin = \"127.0.0.1:0\"\n");
    let config = bench.write("broker.toml", &text);
    let check = |flags: &[&str], variables: &[(&str, &str)], expected: &str| {
        let mut command = Command::new(BINARY);
        command.args(["serve", "--config", &config]).args(flags);
        let output = command.envs(variables.iter().copied()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(expected), "{expected} in {text}");
    };
    let variables = [("POP_LISTEN", variable.as_str())];
    check(&["--listen", &flag], &variables, &flag);
    check(&[], &variables, &variable);
    check(&[], &[], &file);
}

#[test]
fn a_store_that_keeps_nothing_says_so() {
    let bench = Bench::new();
    let broker = bench.serve_memory();
    assert!(
        broker.ready().ends_with("store=memory"),
        "{}",
        broker.ready()
    );
    assert!(bench.log().contains("nothing survives"), "{}", bench.log());
}

#[cfg(feature = "sled")]
#[test]
fn a_store_that_is_not_for_production_says_so() {
    let bench = Bench::new();
    drop(bench.serve(&["--store", "sled", "--data", &bench.data()]));
    assert!(
        bench.log().contains("not for production"),
        "{}",
        bench.log()
    );
}
