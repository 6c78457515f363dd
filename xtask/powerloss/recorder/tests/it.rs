//! A child under the recorder makes each call once; the record must say so, in order.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "all of it is tests"
)]

use std::{collections::HashMap, env, fs, path::PathBuf, process::Command};

use pop_powerloss_trace::{Event, decode, variables};

const PLACES: u64 = 4_000;

/// Cargo builds no library for the tests of a package that can't be linked to.
fn recorder() -> PathBuf {
    let built = Command::new(env!("CARGO"))
        .args(["build", "-p", "pop-powerloss-recorder", "--quiet"])
        .status()
        .unwrap();
    assert!(built.success());
    // This program is in `deps` of the folder that the library is in.
    let program = env::current_exe().unwrap();
    let folder = program.parent().unwrap().parent().unwrap();
    folder.join("libpop_powerloss_recorder.so")
}

/// The record of the program that makes these calls, one line an event.
fn record(calls: &str) -> Vec<String> {
    let base = tempfile::tempdir().unwrap();
    let path = base.path().canonicalize().unwrap();
    let (folder, log) = (path.join("folder"), path.join("log"));
    fs::create_dir(&folder).unwrap();
    fs::write(path.join("outside"), "from outside").unwrap();
    let run = Command::new(env!("CARGO_BIN_EXE_pop-powerloss-calls"))
        .arg(calls)
        .env("LD_PRELOAD", recorder())
        .env(variables::FOLDER, &folder)
        .env(variables::LOG, &log)
        .env(variables::MARKS, path.join("marks"))
        .output()
        .unwrap();
    assert!(
        run.status.success(),
        "{}",
        String::from_utf8_lossy(&run.stderr)
    );
    lines(&fs::read(&log).unwrap())
}

/// Descriptors by the path that they were opened with, syncs without their numbers.
fn lines(log: &[u8]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut open: HashMap<u64, String> = HashMap::new();
    let mut at = 0;
    while let Some((event, next)) = decode(log, at) {
        at = next;
        let name = |fd: u64| open.get(&fd).cloned().unwrap_or_default();
        lines.push(
            match event.map_data(|range| log[range].escape_ascii().to_string()) {
                Event::Open {
                    fd,
                    path,
                    create,
                    truncate,
                    sync,
                } => {
                    open.insert(fd, path.clone());
                    let flag = |is: bool, text| if is { text } else { "" };
                    let create = flag(create, " create");
                    let truncate = flag(truncate, " truncate");
                    format!("open {path}{create}{truncate}{}", flag(sync, " sync"))
                }
                Event::Close { fd } => format!("close {}", name(fd)),
                Event::Dup { old, new } => {
                    let name = name(old);
                    open.insert(new, name.clone());
                    format!("dup {name}")
                }
                Event::Write { fd, offset, data } => format!("write {} {offset} {data}", name(fd)),
                Event::Zero { fd, offset, length } => {
                    format!("zero {} {offset} {length}", name(fd))
                }
                Event::SetLength { fd, length } => format!("set {} {length}", name(fd)),
                Event::Grow { fd, length } => format!("grow {} {length}", name(fd)),
                Event::SyncBegin { fd, call, .. } => format!("begin {} {call:?}", name(fd)),
                Event::SyncEnd { .. } => "end".to_owned(),
                Event::Rename { from, to } => format!("rename {from} {to}"),
                Event::Unlink { path } => format!("unlink {path}"),
                Event::MakeFolder { path } => format!("mkdir {path}"),
                Event::RemoveFolder { path } => format!("rmdir {path}"),
                Event::Link { from, to } => format!("link {from} {to}"),
                Event::Mark { data } => format!("mark {data}"),
                Event::Blind { what } => format!("blind {what}"),
            },
        );
    }
    lines
}

/// Mutant: any hook without its event.
#[test]
fn each_call_is_recorded_in_its_order() {
    assert_eq!(
        record("writes"),
        [
            "open a create",
            "write a 0 one",
            "write a 3 twothree",
            "write a 1 X",
            "write a 4 YZ",
            "write a 11 end",
            "write a 2 Q",
            "open b create truncate",
            "write b 0 out",
            "write b 5 from",
            "write b 3  ",
            "set a 8",
            "open a",
            "set a 6",
            "close a",
            "grow a 100",
            "zero a 2 2",
            "grow a 200",
            "close b",
            "open b sync",
            "write b 9 s",
        ]
    );
    assert_eq!(
        record("syncs"),
        [
            "open a create",
            "begin a Full",
            "end",
            "begin a Data",
            "end",
            "begin a Range",
            "end",
            "open ",
            "begin  Full",
            "end",
            "dup a",
            "dup a",
            "dup a",
            "close a",
            "begin a Data",
            "end",
            "mark done",
        ]
    );
    assert_eq!(
        record("names"),
        [
            "mkdir d",
            "mkdir d/e",
            "open d",
            "open d/a create",
            "close d/a",
            "rename d/a d/b",
            "rename d/b d/e/c",
            "link d/e/c d/f",
            "unlink d/e/c",
            "unlink d/f",
            "rmdir d/e",
            "close d",
            "rmdir d",
        ]
    );
}

/// Mutant: let them pass in silence.
#[test]
fn what_can_not_be_followed_is_said() {
    assert_eq!(
        record("out_of_sight"),
        [
            "open a create",
            "write a 0 bytes",
            "blind a shared mapping that can be written",
            "blind b crossed the edge of the folder",
            "blind a symbolic link at l",
        ]
    );
}

/// Mutant: write outside of the lock.
#[test]
fn the_record_of_many_threads_is_the_file() {
    let lines = record("threads");
    let writes = lines.iter().filter(|it| it.starts_with("write"));
    let mut file = vec![b'-'; usize::try_from(PLACES).unwrap()];
    for write in writes {
        let mut words = write.split(' ').skip(2);
        let offset: usize = words.next().unwrap().parse().unwrap();
        file[offset] = words.next().unwrap().as_bytes()[0];
    }
    // The last line is what the child read back, as its last mark.
    let read = lines.last().unwrap().strip_prefix("mark ").unwrap();
    assert_eq!(String::from_utf8(file).unwrap(), read);
}
