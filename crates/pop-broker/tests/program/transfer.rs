//! `backup`, `restore` and `migrate` as an operator types them: what they make, and what
//! they say when they can't.

use std::{fs, path::Path};

use pop_proto::v2::Code;

use crate::{
    bench::{Bench, DURABLE, END_MAX, ask, client, run},
    process::Process,
};

/// A folder that a broker left, with a message in it.
async fn left() -> Bench {
    let bench = Bench::new();
    let broker = bench.serve_folder();
    let mut client = client(&broker, "orders", "billing").await;
    client.send("1", "kept").await.unwrap();
    stop(broker).await;
    bench
}

async fn stop(mut broker: Process) {
    broker.signal("TERM").unwrap();
    broker.end(END_MAX).await.unwrap();
}

fn path(bench: &Bench, name: &str) -> String {
    bench.path(name).to_str().unwrap().to_owned()
}

/// What it prints, of a command that succeeds.
#[track_caller]
fn done(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// What a command says that is refused with this code.
#[track_caller]
fn refused(arguments: &[&str], code: i32, says: &str) {
    let output = run(arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.contains(says), "{said}");
    assert!(output.stdout.is_empty(), "{output:?}");
}

/// Catches: a copy keeps the keys of handles, and settles what the original handed out.
#[tokio::test]
async fn a_copy_refuses_the_handles_of_the_original_which_takes_them() {
    let bench = Bench::new();
    let broker = bench.serve_folder();
    let mut consumer = client(&broker, "orders", "billing").await;
    consumer.send("1", "coffee").await.unwrap();
    let out = consumer.receive(END_MAX, 3 * END_MAX).await.unwrap();
    stop(broker).await;
    let (file, folder) = (path(&bench, "a.backup"), path(&bench, "back"));
    done(&["backup", "--from", &bench.data(), "--to", &file]);
    done(&["restore", "--from", &file, "--to", &folder]);
    let copy = bench.serve(&["--store", DURABLE, "--data", &folder]);
    let mut consumer = client(&copy, "orders", "billing").await;
    let refused = consumer.ack(&out[0]).await.unwrap();
    assert_eq!(refused, Code::InvalidReceiptHandle);
    let original = bench.serve_folder();
    let mut consumer = client(&original, "orders", "billing").await;
    assert_eq!(consumer.ack(&out[0]).await.unwrap(), Code::Ok);
}

/// Catches: a manifest that is not what the backup says; a restore that moves nothing; a folder
/// whose store is not said.
#[tokio::test]
async fn a_backup_comes_back_in_a_folder_that_a_broker_serves() {
    let bench = left().await;
    let (file, folder) = (path(&bench, "a.backup"), path(&bench, "back"));
    let told = done(&["backup", "--from", &bench.data(), "--to", &file]);
    assert!(told.contains("digest"), "{told}");
    let manifest = fs::read_to_string(path(&bench, "a.backup.toml")).unwrap();
    let checked = done(&["restore", "--from", &file, "--check", "--rate", "1G"]);
    // The manifest says where it was taken from, too, which the backup does not know.
    assert!(manifest.starts_with(checked.trim_end()), "{manifest}");
    assert!(manifest.contains(&bench.data()), "{manifest}");
    let told = done(&["restore", "--from", &file, "--to", &folder]);
    assert!(told.contains(&format!("--store {DURABLE}")), "{told}");
    let broker = bench.serve(&["--store", DURABLE, "--data", &folder]);
    let mut client = client(&broker, "orders", "billing").await;
    let received = client.receive(END_MAX, END_MAX).await.unwrap();
    let bodies: Vec<_> = received.iter().map(|it| it.body.as_str()).collect();
    assert_eq!(bodies, ["kept"]);
}

/// What a kill leaves between the name of a backup and the end of its command.
fn untell(file: &str) {
    fs::rename(format!("{file}.toml"), format!("{file}.toml.partial")).unwrap();
}

/// The backup of a folder that a broker was on since is another one, and so is that of a
/// broker whose snapshot is gone; a name is never written over.
/// Catches: a backup that is done and can't be made twice; any backup with the name for the
/// one that was asked for; one that is damaged, of which another copy is to be taken.
#[tokio::test]
async fn a_backup_that_was_killed_when_it_was_done_is_told_of_once() {
    let bench = left().await;
    let (file, other) = (path(&bench, "a.backup"), path(&bench, "b.backup"));
    let backup = ["backup", "--from", &bench.data(), "--to", &file];
    let digest = |told: &str| told.split_once("digest").unwrap().1.to_owned();
    let first = done(&backup);
    assert!(first.contains("moved     "), "{first}");
    // The content is the same, whether the command was killed or not.
    assert_eq!(digest(&done(&backup)), digest(&first));
    untell(&file);
    let bytes = fs::read(&file).unwrap();
    let mut damaged = bytes.clone();
    damaged[bytes.len() / 2] ^= 1;
    fs::write(&file, damaged).unwrap();
    let advice = "move it away, and type the same command again";
    refused(&backup, 6, advice);
    fs::write(&file, bytes).unwrap();
    let broker = bench.serve_folder();
    ask(&broker, &["topic", "create", "later"]);
    stop(broker).await;
    fs::copy(&file, &other).unwrap();
    fs::copy(
        format!("{file}.toml.partial"),
        format!("{other}.toml.partial"),
    )
    .unwrap();
    let again = done(&backup);
    assert_eq!(digest(&again), digest(&first));
    assert!(!again.contains("moved"), "{again}");
    assert!(Path::new(&format!("{file}.toml")).exists());
    let bytes = fs::read(&file).unwrap();
    refused(&backup, 1, "is there already: a backup as of 20");
    // Of another source it says nothing.
    let moved = bench.path("elsewhere");
    fs::rename(bench.data(), &moved).unwrap();
    let moved = moved.to_str().unwrap();
    let elsewhere = ["backup", "--from", moved, "--to", &other];
    refused(&elsewhere, 1, "is there already: a backup as of 20");
    fs::write(&other, "mine").unwrap();
    refused(&elsewhere, 1, "something else than a backup");
    assert_eq!(fs::read(&file).unwrap(), bytes);
    assert_eq!(fs::read(&other).unwrap(), b"mine");
}

/// One that was killed when all was written, and before it was read again.
/// Catches: what is whole and moved again; the content of another folder, or of then, for that
/// of the folder that is called so now.
#[tokio::test]
async fn a_backup_that_was_killed_when_all_was_written_is_finished_if_its_folder_is_as_it_was() {
    let bench = left().await;
    let file = path(&bench, "a.backup");
    let backup = ["backup", "--from", &bench.data(), "--to", &file];
    // Between the manifest and the name, and before both.
    let unname = |has_manifest: bool| {
        untell(&file);
        fs::rename(&file, format!("{file}.partial")).unwrap();
        if !has_manifest {
            fs::remove_file(format!("{file}.toml.partial")).unwrap();
        }
    };
    let digest = |told: &str| told.split_once("digest").unwrap().1.to_owned();
    let first = done(&backup);
    for has_manifest in [true, false] {
        unname(has_manifest);
        let again = done(&backup);
        assert!(!again.contains("moved"), "{again}");
        assert_eq!(digest(&again), digest(&first));
    }
    unname(true);
    let broker = bench.serve_folder();
    ask(&broker, &["topic", "create", "later"]);
    stop(broker).await;
    let later = done(&backup);
    assert!(later.contains("moved"), "{later}");
    assert_ne!(digest(&later), digest(&first));
}

/// In a folder each command makes a backup of its own moment, and what was left gets its
/// manifest.
/// Catches: an old backup for the one that is due; a command that fails for what is wrong with
/// another one's.
#[tokio::test]
async fn in_a_folder_a_backup_that_was_killed_is_no_other_ones() {
    let bench = left().await;
    let folder = path(&bench, "backups");
    fs::create_dir(&folder).unwrap();
    let backup = ["backup", "--from", &bench.data(), "--to", &folder];
    let file = |told: &str| {
        let line = told.lines().find_map(|it| it.strip_prefix("file      "));
        line.unwrap().to_owned()
    };
    let first = file(&done(&backup));
    let named = format!("{first}-1");
    fs::rename(&first, &named).unwrap();
    fs::rename(format!("{first}.toml"), format!("{named}.toml.partial")).unwrap();
    // The same content: it was this one.
    assert_eq!(file(&done(&backup)), named);
    untell(&named);
    let broker = bench.serve_folder();
    ask(&broker, &["topic", "create", "later"]);
    stop(broker).await;
    // What is in the way of its manifest.
    let manifest = format!("{named}.toml");
    fs::create_dir(&manifest).unwrap();
    let second = file(&done(&backup));
    assert_ne!(second, named);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 5);
    fs::remove_dir(&manifest).unwrap();
    let third = file(&done(&backup));
    for file in [named, second, third] {
        assert!(Path::new(&format!("{file}.toml")).is_file(), "{file}");
    }
}

/// P8. Catches: data that are replaced without being asked; the same content for other data.
#[tokio::test]
async fn data_are_replaced_only_when_that_was_said() {
    let bench = left().await;
    let file = path(&bench, "a.backup");
    done(&["backup", "--from", &bench.data(), "--to", &file]);
    // The same content is no harm: the command may have been killed when it was done.
    done(&["restore", "--from", &file, "--to", &bench.data()]);
    let broker = bench.serve_folder();
    ask(&broker, &["topic", "create", "later"]);
    stop(broker).await;
    let restore = ["restore", "--from", &file, "--to", &bench.data()];
    refused(&restore, 1, "has data already");
    done(&[&restore[..], &["--replace"]].concat());
    let broker = bench.serve_folder();
    let topics = ask(&broker, &["topic", "list"]);
    assert!(
        topics.contains("orders") && !topics.contains("later"),
        "{topics}"
    );
}

/// Catches, each alone: a backup in its own source; a folder that is made for a command that
/// fails; a missing folder, a backup, a store or the same folder that is not known for what it
/// is; other files that are written beside; a damaged backup that is taken; a flag that means
/// nothing there; a receipt that is none, as if the folder waited for another.
#[tokio::test]
async fn what_can_not_be_is_refused_and_nothing_is_made() {
    let bench = left().await;
    let (data, file, new) = (bench.data(), path(&bench, "a.backup"), path(&bench, "new"));
    let inside = path(&bench, "data/a.backup");
    refused(
        &["backup", "--from", &data, "--to", &inside],
        2,
        "lies in the folder",
    );
    refused(
        &["backup", "--from", &new, "--to", &file],
        2,
        "is not there",
    );
    for command in ["backup", "migrate"] {
        let broker = ["--from", "tcp://127.0.0.1:1", "--to", &file, "--not-owned"];
        refused(&[&[command][..], &broker].concat(), 2, "is of a folder");
    }
    let receipt = ["--to", &data, "--receipt", "0123"];
    refused(
        &[&["handover", "finish"], &receipt[..]].concat(),
        2,
        "32 hexadecimal",
    );
    let nowhere = path(&bench, "new/a.backup");
    refused(
        &["backup", "--from", &data, "--to", &nowhere],
        2,
        "there is no folder",
    );
    refused(
        &["restore", "--from", &file, "--to", &new],
        2,
        "can't be read",
    );
    done(&["backup", "--from", &data, "--to", &file]);
    refused(
        &["backup", "--from", &file, "--to", &new],
        2,
        "pop-broker restore",
    );
    refused(
        &["restore", "--from", &data, "--to", &file],
        2,
        "pop-broker backup",
    );
    refused(
        &["migrate", "--from", &file, "--to", &new],
        2,
        "pop-broker restore",
    );
    refused(
        &["migrate", "--from", &data, "--to", &new],
        2,
        "says no store",
    );
    refused(
        &["migrate", "--from", &data, "--to", &data],
        2,
        "the same folder",
    );
    let memory = format!("memory:{new}");
    refused(&["restore", "--from", &file, "--to", &memory], 2, "memory");
    let own = path(&bench, "own");
    fs::create_dir(&own).unwrap();
    fs::write(Path::new(&own).join("thesis.tex"), "").unwrap();
    refused(&["restore", "--from", &file, "--to", &own], 2, "thesis.tex");
    let bytes = fs::read(&file).unwrap();
    let mut damaged = bytes.clone();
    damaged[bytes.len() / 2] ^= 1;
    for (bad, says) in [
        (&bytes[..bytes.len() - 1], "is not whole"),
        (&damaged[..], "damaged"),
    ] {
        let file = path(&bench, "bad.backup");
        fs::write(&file, bad).unwrap();
        refused(&["restore", "--from", &file, "--to", &new], 6, says);
    }
    assert!(!Path::new(&new).exists());
}

/// Catches: another exit code for a folder in use.
#[tokio::test]
async fn a_folder_that_a_broker_serves_is_left_alone() {
    let bench = left().await;
    let file = path(&bench, "a.backup");
    done(&["backup", "--from", &bench.data(), "--to", &file]);
    let _broker = bench.serve_folder();
    let to = path(&bench, "b.backup");
    refused(
        &["backup", "--from", &bench.data(), "--to", &to],
        4,
        "is open in another process",
    );
    let over = [
        "restore",
        "--from",
        &file,
        "--to",
        &bench.data(),
        "--replace",
    ];
    refused(&over, 4, "is open in another process");
}
