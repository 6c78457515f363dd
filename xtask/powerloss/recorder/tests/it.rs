//! A child under the recorder makes each call once; the record must say so, in order.

#![allow(unsafe_code, reason = "the calls that are recorded are those of C")]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "all of it is tests"
)]

use std::{
    collections::HashMap,
    env,
    ffi::{CStr, CString},
    fs,
    path::PathBuf,
    process::Command,
    ptr,
    sync::Barrier,
};

use libc::{AT_FDCWD, c_int, c_void, iovec};
use pop_powerloss_trace::{Event, decode, variables};

const THREADS: usize = 4;
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

/// The record of the ignored test `child`, one line an event.
fn record(child: &str) -> Vec<String> {
    let base = tempfile::tempdir().unwrap();
    let path = base.path().canonicalize().unwrap();
    let (folder, log) = (path.join("folder"), path.join("log"));
    fs::create_dir(&folder).unwrap();
    fs::write(path.join("outside"), "from outside").unwrap();
    let run = Command::new(env::current_exe().unwrap())
        .args(["--ignored", "--exact", child])
        .env("LD_PRELOAD", recorder())
        .env(variables::FOLDER, &folder)
        .env(variables::LOG, &log)
        .env(variables::MARKS, path.join("marks"))
        .output()
        .unwrap();
    assert!(
        run.status.success(),
        "{}",
        String::from_utf8_lossy(&run.stdout)
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

fn folder() -> PathBuf {
    PathBuf::from(env::var_os(variables::FOLDER).unwrap())
}

fn path(name: &str) -> CString {
    CString::new(folder().join(name).to_str().unwrap()).unwrap()
}

#[track_caller]
fn ok(outcome: impl TryInto<i64>) -> c_int {
    let outcome = outcome.try_into().ok().unwrap();
    assert!(outcome >= 0, "{}", std::io::Error::last_os_error());
    c_int::try_from(outcome).unwrap()
}

fn parts<const N: usize>(texts: [&[u8]; N]) -> [iovec; N] {
    texts.map(|text| iovec {
        iov_base: text.as_ptr().cast_mut().cast(),
        iov_len: text.len(),
    })
}

fn bytes(text: &[u8]) -> *const c_void {
    text.as_ptr().cast()
}

/// Mutant: any hook without its event.
#[test]
fn each_call_is_recorded_in_its_order() {
    assert_eq!(
        record("child_writes"),
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
        record("child_syncs"),
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
        record("child_names"),
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
        record("child_out_of_sight"),
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
    let lines = record("child_threads");
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

#[test]
#[ignore = "the child of a test"]
fn child_writes() {
    unsafe {
        let a = ok(libc::open(
            path("a").as_ptr(),
            libc::O_RDWR | libc::O_CREAT,
            0o644,
        ));
        ok(libc::write(a, bytes(b"one"), 3));
        let two = parts([b"two", b"three"]);
        ok(libc::writev(a, two.as_ptr(), 2));
        ok(libc::pwrite(a, bytes(b"X"), 1, 1));
        let two = parts([b"Y", b"Z"]);
        ok(libc::pwritev(a, two.as_ptr(), 2, 4));
        ok(libc::pwritev2(a, parts([b"end"]).as_ptr(), 1, -1, 0));
        ok(libc::pwritev2(a, parts([b"Q"]).as_ptr(), 1, 2, 0));
        let b = ok(libc::creat(path("b").as_ptr(), 0o644));
        let outside = ok(libc::open(path("../outside").as_ptr(), libc::O_RDONLY));
        let mut from = 5;
        ok(libc::sendfile(b, outside, &raw mut from, 3));
        let (mut from, mut to) = (0, 5);
        ok(libc::copy_file_range(
            outside,
            &raw mut from,
            b,
            &raw mut to,
            4,
            0,
        ));
        ok(libc::sendfile(b, outside, &raw mut from, 1));
        ok(libc::ftruncate(a, 8));
        ok(libc::truncate(path("a").as_ptr(), 6));
        ok(libc::fallocate(a, 0, 0, 100));
        let keep = libc::FALLOC_FL_KEEP_SIZE;
        ok(libc::fallocate(a, keep, 0, 1_000));
        ok(libc::fallocate(a, keep | libc::FALLOC_FL_PUNCH_HOLE, 2, 2));
        assert_eq!(libc::posix_fallocate(a, 100, 100), 0);
        ok(libc::close(b));
        let b = ok(libc::open(
            path("./b").as_ptr(),
            libc::O_WRONLY | libc::O_DSYNC,
        ));
        ok(libc::lseek(b, 9, libc::SEEK_SET));
        ok(libc::write(b, bytes(b"s"), 1));
        // Fails, and is no change.
        assert_eq!(libc::write(outside, bytes(b"x"), 1), -1);
    }
}

#[test]
#[ignore = "the child of a test"]
fn child_syncs() {
    unsafe {
        let a = ok(libc::open(
            path("a").as_ptr(),
            libc::O_RDWR | libc::O_CREAT,
            0o644,
        ));
        ok(libc::fsync(a));
        ok(libc::fdatasync(a));
        ok(libc::sync_file_range(a, 0, 0, libc::SYNC_FILE_RANGE_WRITE));
        let folder = ok(libc::open(path("").as_ptr(), libc::O_RDONLY));
        ok(libc::fsync(folder));
        ok(libc::dup(a));
        ok(libc::dup2(a, 100));
        let last = ok(libc::fcntl(a, libc::F_DUPFD_CLOEXEC, 0));
        ok(libc::close(a));
        ok(libc::fdatasync(last));
        // A failed sync promises nothing; nor does one of what is elsewhere.
        assert_eq!(libc::fsync(a), -1);
    }
    fs::write(env::var_os(variables::MARKS).unwrap(), "done").unwrap();
}

#[test]
#[ignore = "the child of a test"]
fn child_names() {
    unsafe {
        ok(libc::mkdir(path("d").as_ptr(), 0o755));
        ok(libc::mkdirat(AT_FDCWD, path("d/e").as_ptr(), 0o755));
        let d = ok(libc::open(path("d").as_ptr(), libc::O_DIRECTORY));
        let name = |name: &'static CStr| name.as_ptr();
        let flags = libc::O_WRONLY | libc::O_CREAT;
        let a = ok(libc::openat(d, name(c"a"), flags, 0o644));
        ok(libc::close(a));
        ok(libc::rename(path("d/a").as_ptr(), path("d/b").as_ptr()));
        ok(libc::renameat(d, name(c"b"), d, name(c"e/../e/c")));
        ok(libc::link(path("d/e/c").as_ptr(), path("d/f").as_ptr()));
        ok(libc::unlink(path("d/e/c").as_ptr()));
        ok(libc::unlinkat(d, name(c"f"), 0));
        ok(libc::unlinkat(d, name(c"e"), libc::AT_REMOVEDIR));
        ok(libc::close(d));
        ok(libc::rmdir(path("d").as_ptr()));
        assert_eq!(libc::unlink(path("gone").as_ptr()), -1);
    }
    fs::create_dir(folder().parent().unwrap().join("elsewhere")).unwrap();
}

#[test]
#[ignore = "the child of a test"]
fn child_out_of_sight() {
    unsafe {
        let a = ok(libc::open(
            path("a").as_ptr(),
            libc::O_RDWR | libc::O_CREAT,
            0o644,
        ));
        ok(libc::write(a, bytes(b"bytes"), 5));
        let map = |protection, flags| libc::mmap(ptr::null_mut(), 5, protection, flags, a, 0);
        map(libc::PROT_READ, libc::MAP_SHARED);
        map(libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE);
        map(libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        ok(libc::rename(
            path("../outside").as_ptr(),
            path("b").as_ptr(),
        ));
        ok(libc::symlink(c"a".as_ptr(), path("l").as_ptr()));
    }
}

#[test]
#[ignore = "the child of a test"]
fn child_threads() {
    use std::os::unix::fs::FileExt;
    let path = folder().join("a");
    // All threads write each place at once, and the last of them stays.
    let together = Barrier::new(THREADS);
    let write = |byte: u8| {
        let open = fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path);
        let file = open.unwrap();
        for place in 0..PLACES {
            together.wait();
            file.write_all_at(&[byte], place).unwrap();
        }
    };
    std::thread::scope(|scope| {
        for byte in (b'a'..).take(THREADS) {
            let write = &write;
            scope.spawn(move || write(byte));
        }
    });
    let read = fs::read(&path).unwrap();
    fs::write(env::var_os(variables::MARKS).unwrap(), read).unwrap();
}
