//! Bytes that get into a file without passing through the process.

use std::ffi::c_void;

use libc::{c_int, c_uint, off_t, size_t, ssize_t};

use crate::{
    descriptors::{self, Kind},
    record::recorder,
    system::{self, call, size},
    write::{add_write, recorder_of},
};

#[unsafe(no_mangle)]
unsafe extern "C" fn sendfile(
    to: c_int,
    from: c_int,
    offset: *mut off_t,
    count: size_t,
) -> ssize_t {
    copied(to, None, || {
        size(call!(SYS_sendfile, to, from, offset, count))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendfile64(
    to: c_int,
    from: c_int,
    offset: *mut off_t,
    count: size_t,
) -> ssize_t {
    unsafe { sendfile(to, from, offset, count) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn copy_file_range(
    from: c_int,
    from_offset: *mut off_t,
    to: c_int,
    to_offset: *mut off_t,
    count: size_t,
    flags: c_uint,
) -> ssize_t {
    let at = unsafe { to_offset.as_ref() }.and_then(|at| u64::try_from(*at).ok());
    let raw = || {
        size(call!(
            SYS_copy_file_range,
            from,
            from_offset,
            to,
            to_offset,
            count,
            flags
        ))
    };
    copied(to, at, raw)
}

/// Reads back what came to be in the file: the order can't change under the lock.
fn copied(to: c_int, at: Option<u64>, raw: impl FnOnce() -> ssize_t) -> ssize_t {
    let Some(recorder) = recorder_of(to) else {
        return raw();
    };
    let mut log = recorder.lock();
    let count = raw();
    let Ok(length @ 1..) = usize::try_from(count) else {
        return count;
    };
    let before_end = || system::position(to)?.checked_sub(length as u64);
    let at = at.or_else(before_end);
    match at.and_then(|at| system::read_back(to, at, length)) {
        Some(data) => add_write(&mut log, to, at, &data),
        None => log.blind("a copy that can't be read back"),
    }
    count
}

macro_rules! maps {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            address: *mut c_void,
            length: size_t,
            protection: c_int,
            flags: c_int,
            fd: c_int,
            offset: off_t,
        ) -> *mut c_void {
            let is_shared = flags & libc::MAP_TYPE != libc::MAP_PRIVATE;
            // The C library's allocator comes here too, before anything is ready.
            if fd >= 0
                && is_shared
                && protection & libc::PROT_WRITE != 0
                && descriptors::kind(fd) == Kind::File
                && let Some(recorder) = recorder()
            {
                recorder.lock().blind("a shared mapping that can be written");
            }
            call!(SYS_mmap, address, length, protection, flags, fd, offset) as *mut c_void
        }
    )*};
}

maps! { mmap mmap64 }
