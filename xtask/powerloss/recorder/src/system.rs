//! The system calls themselves, past every library.

use libc::{c_char, c_int, c_long, off_t, size_t, ssize_t};

/// Makes a system call with the result and `errno` of the C function.
///
/// Each argument fills its register: what is above an `int` in one is not defined.
macro_rules! call {
    ($name:ident $(, $argument:expr)* $(,)?) => {
        $crate::system::make(libc::$name, &[$($argument as libc::c_long),*])
    };
}
pub(crate) use call;

pub(crate) fn make(number: c_long, arguments: &[c_long]) -> c_long {
    let argument = |at: usize| arguments.get(at).copied().unwrap_or(0);
    // Safe or not as the C function is whose arguments these are.
    unsafe {
        libc::syscall(
            number,
            argument(0),
            argument(1),
            argument(2),
            argument(3),
            argument(4),
            argument(5),
        )
    }
}

pub(crate) fn close(fd: c_int) -> c_long {
    call!(SYS_close, fd)
}

/// # Safety
///
/// `path` is a C string.
pub(crate) unsafe fn openat(
    folder: c_int,
    path: *const c_char,
    flags: c_int,
    mode: c_int,
) -> c_int {
    result(call!(SYS_openat, folder, path, flags, mode))
}

/// Where the descriptor stands in its file.
pub(crate) fn position(fd: c_int) -> Option<u64> {
    u64::try_from(call!(SYS_lseek, fd, 0_i64, libc::SEEK_CUR)).ok()
}

/// Writes all of `bytes`; whether it could.
pub(crate) fn write_all(fd: c_int, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        let written = call!(SYS_write, fd, bytes.as_ptr(), bytes.len());
        match usize::try_from(written).map(|count| bytes.split_at(count)) {
            Ok((_, rest)) => bytes = rest,
            Err(_) if errno() == libc::EINTR => {}
            Err(_) => return false,
        }
    }
    true
}

/// Reads back `length` bytes of the file behind `fd`, which may be open for writing alone.
pub(crate) fn read_back(fd: c_int, offset: u64, length: usize) -> Option<Vec<u8>> {
    let path = format!("/proc/self/fd/{fd}\0");
    let again = unsafe { openat(libc::AT_FDCWD, path.as_ptr().cast(), libc::O_RDONLY, 0) };
    let mut bytes = vec![0; length];
    let place = bytes.as_mut_ptr();
    let read = call!(
        SYS_pread64,
        again,
        place,
        length as size_t,
        off_t::try_from(offset).ok()?
    );
    close(again);
    (usize::try_from(read) == Ok(length)).then_some(bytes)
}

/// Where a descriptor or the current folder is, through `/proc`.
pub(crate) fn read_link(path: &str) -> Option<Vec<u8>> {
    let path = format!("{path}\0");
    let mut place = vec![0_u8; 4_096];
    let length = call!(
        SYS_readlinkat,
        libc::AT_FDCWD,
        path.as_ptr(),
        place.as_mut_ptr(),
        place.len()
    );
    place.truncate(usize::try_from(length).ok()?);
    Some(place)
}

/// A result that fits an `int` by the contract of its call.
pub(crate) fn result(value: c_long) -> c_int {
    c_int::try_from(value).unwrap_or(-1)
}

/// A result that counts bytes.
pub(crate) fn size(value: c_long) -> ssize_t {
    ssize_t::try_from(value).unwrap_or(-1)
}

pub(crate) fn errno() -> c_int {
    unsafe { *libc::__errno_location() }
}

pub(crate) fn set_errno(value: c_int) {
    unsafe { *libc::__errno_location() = value }
}
