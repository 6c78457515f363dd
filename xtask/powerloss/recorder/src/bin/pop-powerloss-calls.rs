//! Makes the calls that the recorder is tested with: `pop-powerloss-calls NAME`, under the
//! preloaded library.

#![allow(unsafe_code, reason = "the calls that are recorded are those of C")]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a call that fails has failed its test"
)]

use std::{
    env,
    ffi::{CStr, CString},
    fs,
    path::PathBuf,
    ptr,
    sync::Barrier,
};

use libc::{AT_FDCWD, c_int, c_void, iovec};
use pop_powerloss_trace::variables;

const THREADS: usize = 4;
const PLACES: u64 = 4_000;

fn main() {
    match env::args().nth(1).as_deref() {
        Some("writes") => writes(),
        Some("syncs") => syncs(),
        Some("names") => names(),
        Some("out_of_sight") => out_of_sight(),
        Some("threads") => threads(),
        other => panic!("{other:?}: say writes, syncs, names, out_of_sight or threads"),
    }
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

fn bytes(text: &[u8]) -> *const c_void {
    text.as_ptr().cast()
}

fn parts<const N: usize>(texts: [&[u8]; N]) -> [iovec; N] {
    texts.map(|text| iovec {
        iov_base: text.as_ptr().cast_mut().cast(),
        iov_len: text.len(),
    })
}

fn writes() {
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

fn syncs() {
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

fn names() {
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

fn out_of_sight() {
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

fn threads() {
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
