//! Commands that are killed in the middle: the same one goes on with what had been moved.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use crate::{
    bench::{BINARY, Bench, DURABLE, END_MAX, ask, client, run},
    bootstrap::{shown, source, to, url},
    process::Process,
};

const MESSAGES: usize = 24;
const BODY_BYTES: usize = 1 << 20;
const GOES_ON: &str = "was cut: going on behind its first";

/// Sends what takes a while to be moved.
async fn fill(broker: &Process) {
    send(broker, MESSAGES).await;
}

async fn send(broker: &Process, messages: usize) {
    let mut producer = client(broker, "orders", "billing").await;
    let body = "x".repeat(BODY_BYTES);
    for number in 0..messages {
        producer.send(&number.to_string(), &body).await.unwrap();
    }
}

async fn stop(mut broker: Process) {
    broker.signal("TERM").unwrap();
    broker.end(END_MAX).await.unwrap();
}

/// Begins a command at a rate: its process, and the lines that it says while it works.
fn begin(arguments: &[&str], rate: &str) -> (Child, impl Iterator<Item = String> + use<>) {
    let mut child = Command::new(BINARY)
        .args(arguments)
        .args(["--rate", rate])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(child.stderr.take().unwrap());
    (child, said.lines().map(|it| it.unwrap()))
}

/// Begins a command, and kills it when it says for the first time how much it moved: after 5 s
/// of that, with two points of 4 MiB behind it. A restore reads its backup first, and a backup
/// tells of those that it leaves: what is said until then.
fn kill_in_the_middle(arguments: &[&str]) -> String {
    let (mut child, mut lines) = begin(arguments, "2M");
    let is_before = |it: &str| it.contains("reading the backup") || it.contains("beginning anew");
    let mut before = String::new();
    let line = lines.find(|it| {
        before.push_str(it);
        !is_before(it)
    });
    let line = line.unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    // Of a folder or a broker sled can't say how much it is.
    let is_known = arguments[0] == "restore" || DURABLE != "sled";
    assert_eq!(
        line.contains(" %)") && line.contains(" left"),
        is_known,
        "{line}"
    );
    before
}

/// What a command says that succeeds, and how many MiB it moved.
#[track_caller]
fn done(arguments: &[&str]) -> (String, f64) {
    let output = run(arguments);
    assert!(output.status.success(), "{output:?}");
    let told = String::from_utf8(output.stdout).unwrap();
    let moved = told.lines().find(|it| it.starts_with("moved")).unwrap();
    let (moved, _) = moved.split_once(" MiB").unwrap();
    let (_, moved) = moved.rsplit_once(' ').unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    (said, moved.parse().unwrap())
}

#[track_caller]
fn goes_on(arguments: &[&str]) {
    let (said, moved) = done(arguments);
    assert!(said.contains(GOES_ON), "{said}");
    assert!((4.0..21.0).contains(&moved), "{moved} MiB");
}

#[track_caller]
fn begins_anew(arguments: &[&str]) {
    let (said, moved) = done(arguments);
    assert!(!said.contains(GOES_ON), "{said}");
    assert!(moved > 23.9, "{moved} MiB");
}

/// Anything else that opens the folder gives back the room of what was left.
/// Mutants: the folder is opened as any other is; points are made every 64 MiB; every open
/// keeps what was left.
#[tokio::test]
async fn a_restore_and_a_migration_that_were_killed_go_on_with_what_they_had_moved() {
    let bench = Bench::new();
    let broker = bench.serve_folder();
    fill(&broker).await;
    stop(broker).await;
    let path = |name: &str| bench.path(name).to_str().unwrap().to_owned();
    let file = path("a.backup");
    run(&["backup", "--from", &bench.data(), "--to", &file]);
    let (restored, swept) = (path("restored"), path("swept"));
    let migrated = to(&bench, "migrated");
    let restore = ["restore", "--from", &file, "--to", &restored];
    let migrate = ["migrate", "--from", &bench.data(), "--to", &migrated];
    for command in [restore, migrate] {
        kill_in_the_middle(&command);
        goes_on(&command);
    }
    let restore = ["restore", "--from", &file, "--to", &swept];
    kill_in_the_middle(&restore);
    run(&["backup", "--from", &swept, "--to", &path("empty.backup")]);
    begins_anew(&restore);
    let copy = bench.serve(&["--store", DURABLE, "--data", &restored]);
    assert!(ask(&copy, &["topic", "list"]).contains("orders"));
}

/// The copy is the one that was begun: without what was sent since. That of a broker that was
/// started anew is another.
/// Mutants: `bootstrap` asks for any snapshot; `backup` for that of the first draft of a folder
/// or of the last by name, or without a word of those that it leaves.
#[tokio::test]
async fn a_copy_that_was_killed_goes_on_as_long_as_its_snapshot_is_kept() {
    let bench = Bench::new();
    let broker = source(&bench, &[]);
    fill(&broker).await;
    let (one, two) = (to(&bench, "one"), to(&bench, "two"));
    let from = url(&broker);
    let bootstrap = ["bootstrap", "--from", &from, "--to", &one];
    kill_in_the_middle(&bootstrap);
    ask(&broker, &["topic", "create", "later"]);
    goes_on(&bootstrap);
    let folder = bench.path("backups");
    std::fs::create_dir(&folder).unwrap();
    let backup = ["backup", "--from", &from, "--to", folder.to_str().unwrap()];
    let (old, draft) = (bench.path("old"), folder.join("weekly.backup.partial"));
    done(&["backup", "--from", &from, "--to", old.to_str().unwrap()]);
    std::fs::rename(old, &draft).unwrap();
    let left = kill_in_the_middle(&backup);
    assert!(left.contains(draft.to_str().unwrap()), "{left}");
    goes_on(&backup);
    kill_in_the_middle(&["bootstrap", "--from", &from, "--to", &two]);
    stop(broker).await;
    let broker = source(&bench, &[]);
    begins_anew(&["bootstrap", "--from", &url(&broker), "--to", &two]);
    stop(broker).await;
    for (folder, has_it) in [("one", false), ("two", true)] {
        let data = bench.path(folder);
        let copy = bench.serve(&["--store", DURABLE, "--data", data.to_str().unwrap()]);
        let topics = ask(&copy, &["topic", "list"]);
        assert_eq!(topics.contains("later"), has_it, "{topics}");
        stop(copy).await;
    }
}

/// Catches: nothing said for as long as a draft, a folder or a backup is read and nothing moves.
#[tokio::test]
async fn who_waits_for_what_is_only_read_is_told_how_far_it_is() {
    let bench = Bench::new();
    let broker = bench.serve_folder();
    send(&broker, 5).await;
    stop(broker).await;
    let path = |name: &str| bench.path(name).to_str().unwrap().to_owned();
    let (file, draft) = (path("a.backup"), path("b.backup"));
    let folders = ["one", "two", "three"].map(path);
    done(&["backup", "--from", &bench.data(), "--to", &file]);
    std::fs::copy(&file, format!("{draft}.partial")).unwrap();
    for folder in &folders {
        done(&["restore", "--from", &file, "--to", folder]);
    }
    let copied = to(&bench, "three");
    let running = [
        ["backup", "--from", &bench.data(), "--to", &draft],
        ["restore", "--from", &file, "--to", &folders[0]],
        ["migrate", "--from", &folders[1], "--to", &copied],
    ]
    .map(|arguments| {
        let mut command = Command::new(BINARY);
        command.args(arguments).args(["--rate", "384K"]);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().unwrap()
    });
    let told = [
        [
            "reading the backup that was cut: ",
            "reading the backup again: ",
        ],
        ["reading the backup: ", "comparing what the folder has: "],
        [
            "reading the folder to copy from: ",
            "comparing what the folder has: ",
        ],
    ];
    for (child, told) in running.into_iter().zip(told) {
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        for line in told {
            assert!(said.contains(line), "{line:?} in {said}");
        }
    }
}

/// It is killed when it says for the first time how far it has read again what it wrote, with
/// ten seconds of that to go.
/// Catches: a broker that keeps its snapshot until the file was read again; a reading that no
/// rate holds for; the content of then for the one that is asked for now.
#[tokio::test]
async fn a_backup_that_was_killed_while_it_was_read_again_asks_its_source_anew() {
    let bench = Bench::new();
    let broker = source(&bench, &[]);
    send(&broker, 4).await;
    let (from, file) = (url(&broker), bench.path("a.backup"));
    let to = file.to_str().unwrap();
    let backup = ["backup", "--from", &from, "--to", to];
    let (mut child, mut lines) = begin(&backup, "256K");
    assert!(lines.any(|it| it.contains("reading the backup again")));
    assert_eq!(shown(&broker, "snapshots"), 0);
    assert!(
        !file.exists(),
        "it was read before the broker was let go of"
    );
    child.kill().unwrap();
    child.wait().unwrap();
    ask(&broker, &["topic", "create", "later"]);
    let (said, moved) = done(&backup);
    assert!(said.contains("beginning anew, with the content"), "{said}");
    assert!(moved > 3.9, "{moved} MiB");
    stop(broker).await;
    let folder = bench.path("restored");
    let folder = folder.to_str().unwrap();
    done(&["restore", "--from", to, "--to", folder]);
    let copy = bench.serve(&["--store", DURABLE, "--data", folder]);
    assert!(ask(&copy, &["topic", "list"]).contains("later"));
}
