//! What can't be done ends with one line that says what to do, and a code of its own.

use std::{net::TcpListener, process::Output};

#[cfg(any(feature = "fjall", feature = "rocksdb", feature = "sled"))]
use crate::bench::DURABLE;
use crate::bench::{Bench, run};

/// Checks the code, and that the line says all of `parts`.
#[track_caller]
fn check(output: &Output, code: i32, parts: &[&str]) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{text}");
    let lines: Vec<_> = text.lines().collect();
    let line = lines.last().unwrap();
    assert_eq!(
        lines
            .iter()
            .filter(|it| it.starts_with("pop-broker: "))
            .count(),
        1,
        "{text}"
    );
    assert!(line.starts_with("pop-broker: "), "{text}");
    for part in parts {
        assert!(line.contains(part), "{part:?} in {line}");
    }
    assert!(!text.contains("panicked"), "{text}");
    assert!(output.stdout.is_empty(), "it was never ready");
}

/// On ports that are free, so that only what a test is about can be wrong.
fn serve(flags: &[&str]) -> Output {
    let ports = ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    run(&[&ports[..], flags].concat())
}

#[test]
fn a_flag_that_is_wrong() {
    for flags in [
        &["--queues", "0"][..],
        &["--store", "floppy"],
        &["--listen", "here"],
        &["--durability", "maybe"],
        &["--unknown"],
    ] {
        let output = serve(flags);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(flags[0]), "{text}");
    }
}

#[test]
fn a_configuration_that_is_wrong() {
    let bench = Bench::new();
    let file = bench.write("broker.toml", "store = \"memory\"\nqueus = 8\n");
    let output = serve(&["--config", &file]);
    check(&output, 2, &[&file, "line 2", "key queus", "`queues`"]);
    let output = serve(&["--config", "not-there.toml"]);
    check(&output, 2, &["not-there.toml", "can't be read"]);
}

#[test]
fn a_certificate_that_is_not_there() {
    let flags = ["--store", "memory", "--tls", "pem"];
    let output = serve(&flags);
    check(&output, 2, &["--tls-certificate", "--tls-key"]);
    let files = ["--tls-certificate", "no.pem", "--tls-key", "no.key"];
    let output = serve(&[&flags[..], &files].concat());
    check(&output, 2, &["no.pem"]);
}

#[cfg(not(feature = "rocksdb"))]
#[test]
fn a_store_that_is_not_compiled_in() {
    let bench = Bench::new();
    let output = serve(&["--store", "rocksdb", "--data", &bench.data()]);
    check(&output, 3, &["cargo build", "--features rocksdb"]);
    assert!(!bench.path("data").exists(), "nothing was made");
}

#[cfg(any(feature = "fjall", feature = "rocksdb", feature = "sled"))]
#[test]
fn a_folder_that_another_process_has() {
    let bench = Bench::new();
    let _other = bench.serve_folder();
    let output = serve(&["--store", DURABLE, "--data", &bench.data()]);
    check(&output, 4, &[&bench.data(), "stop that one"]);
}

#[cfg(any(feature = "fjall", feature = "rocksdb", feature = "sled"))]
#[test]
fn a_folder_of_another_store_or_format() {
    let bench = Bench::new();
    drop(bench.serve_folder());
    let marker = bench.path("data").join("pop.store");
    let text = std::fs::read_to_string(&marker).unwrap();

    std::fs::write(&marker, text.replace(DURABLE, "stone")).unwrap();
    let output = serve(&["--store", DURABLE, "--data", &bench.data()]);
    check(&output, 5, &["backend stone", "another folder"]);

    std::fs::write(&marker, text.replace("format 1", "format 9")).unwrap();
    let output = serve(&["--store", DURABLE, "--data", &bench.data()]);
    check(&output, 5, &["format 9", "format 1"]);

    std::fs::write(&marker, text).unwrap();
    drop(bench.serve_folder());
}

#[cfg(any(feature = "fjall", feature = "rocksdb", feature = "sled"))]
#[test]
fn a_folder_that_is_a_file() {
    let bench = Bench::new();
    let file = bench.write("data", "not a folder");
    let output = serve(&["--store", DURABLE, "--data", &file]);
    check(&output, 6, &[&file, "--data"]);
}

#[test]
fn an_address_that_is_in_use() {
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    let output = serve(&["--store", "memory", "--listen", &address]);
    // The later flag wins, as on any command line.
    assert_eq!(output.status.code(), Some(2), "given twice");
    for (mine, free) in [("--listen", "--admin"), ("--admin", "--listen")] {
        let flags = [mine, &address, free, "127.0.0.1:0"];
        let output = run(&[&["serve", "--store", "memory"], &flags[..]].concat());
        check(&output, 7, &[&address, "in use", mine]);
    }
}

#[test]
fn an_address_of_another_machine() {
    // Reserved for a use that never came, so no machine has it.
    let flags = ["--listen", "240.0.0.1:0", "--admin", "127.0.0.1:0"];
    let output = run(&[&["serve", "--store", "memory"], &flags[..]].concat());
    check(&output, 7, &["240.0.0.1:0", "--listen"]);
}

#[test]
fn a_command_that_no_broker_answers() {
    let unused = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = unused.local_addr().unwrap().to_string();
    drop(unused);
    let output = run(&["topic", "list", "--admin", &address]);
    check(&output, 8, &[&address, "pop-broker serve", "--admin"]);
}

#[test]
fn a_command_that_the_broker_refuses() {
    let bench = Bench::new();
    let broker = bench.serve_memory();
    let admin = broker.field("admin").unwrap();
    let refused = |arguments: &[&str]| run(&[arguments, &["--admin", admin]].concat());
    let output = refused(&["topic", "describe", "orders"]);
    check(&output, 1, &["orders", "does not exist"]);
    let output = refused(&["topic", "create", "two words"]);
    check(&output, 1, &["' '"]);
    let output = refused(&["topic", "create", "orders", "--queues", "5000"]);
    check(&output, 1, &["5000 queues", "1 to 1024"]);
    assert!(refused(&["group", "create", "billing"]).status.success());
    let output = refused(&["group", "create", "billing"]);
    check(&output, 1, &["billing already exists"]);
    let output = refused(&["group", "create", "g", "--delivery-attempts-max", "0"]);
    check(&output, 1, &["0 delivery attempts"]);
}
