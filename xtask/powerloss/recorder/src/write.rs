//! Bytes that are written, and lengths that are set.

use std::{ffi::c_void, slice};

use libc::{c_char, c_int, iovec, off_t, size_t, ssize_t};
use pop_powerloss_trace::Event;

use crate::{
    descriptors::{self, Kind},
    record::{Log, Place, Recorder, number, recorder},
    system::{self, call, result, size},
};

/// The recorder, if `fd` is a file of the folder.
pub(crate) fn recorder_of(fd: c_int) -> Option<&'static Recorder> {
    recorder().filter(|_| descriptors::kind(fd) == Kind::File)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn write(fd: c_int, bytes: *const c_void, count: size_t) -> ssize_t {
    let part = iovec {
        iov_base: bytes.cast_mut(),
        iov_len: count,
    };
    unsafe { written(fd, &[part], || size(call!(SYS_write, fd, bytes, count))) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    let raw = || size(call!(SYS_writev, fd, parts, count));
    unsafe { written(fd, listed(parts, count), raw) }
}

macro_rules! writes_at {
    ($($name:ident, $name_v:ident;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            fd: c_int,
            bytes: *const c_void,
            count: size_t,
            offset: off_t,
        ) -> ssize_t {
            let part = iovec { iov_base: bytes.cast_mut(), iov_len: count };
            let raw = || size(call!(SYS_pwrite64, fd, bytes, count, offset));
            unsafe { written_at(fd, &[part], offset, raw) }
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name_v(
            fd: c_int,
            parts: *const iovec,
            count: c_int,
            offset: off_t,
        ) -> ssize_t {
            // The kernel takes the offset in two halves, the second of which is only used
            // where a register holds 32 bits.
            let raw = || size(call!(SYS_pwritev, fd, parts, count, offset, 0));
            unsafe { written_at(fd, listed(parts, count), offset, raw) }
        }
    )*};
}

writes_at! {
    pwrite, pwritev;
    pwrite64, pwritev64;
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pwritev2(
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    let raw = || size(call!(SYS_pwritev2, fd, parts, count, offset, 0, flags));
    if flags != 0
        && let Some(recorder) = recorder_of(fd)
    {
        recorder.lock().blind("pwritev2 with flags");
    }
    if offset == -1 {
        return unsafe { written(fd, listed(parts, count), raw) };
    }
    unsafe { written_at(fd, listed(parts, count), offset, raw) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pwritev64v2(
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    unsafe { pwritev2(fd, parts, count, offset, flags) }
}

unsafe fn listed<'a>(parts: *const iovec, count: c_int) -> &'a [iovec] {
    match usize::try_from(count) {
        Ok(count) if count > 0 => unsafe { slice::from_raw_parts(parts, count) },
        _ => &[],
    }
}

/// A write where the descriptor stands.
unsafe fn written(fd: c_int, parts: &[iovec], raw: impl FnOnce() -> ssize_t) -> ssize_t {
    let kind = descriptors::kind(fd);
    if kind == Kind::Folder {
        // Nobody can write to one: it was closed behind our back, and this is another.
        descriptors::set(fd, Kind::Other);
        return raw();
    }
    let Some(recorder) = recorder().filter(|_| kind != Kind::Other) else {
        return raw();
    };
    let mut log = recorder.lock();
    let count = raw();
    let Ok(length @ 1..) = usize::try_from(count) else {
        return count;
    };
    let data = unsafe { gathered(parts, length) };
    if kind == Kind::Marks {
        log.add(&Event::Mark { data: &data });
        return count;
    }
    let start = system::position(fd).and_then(|end| end.checked_sub(length as u64));
    add_write(&mut log, fd, start, &data);
    count
}

unsafe fn written_at(
    fd: c_int,
    parts: &[iovec],
    offset: off_t,
    raw: impl FnOnce() -> ssize_t,
) -> ssize_t {
    let Some(recorder) = recorder_of(fd) else {
        return raw();
    };
    let mut log = recorder.lock();
    let count = raw();
    if let Ok(length @ 1..) = usize::try_from(count) {
        let data = unsafe { gathered(parts, length) };
        add_write(&mut log, fd, u64::try_from(offset).ok(), &data);
    }
    count
}

pub(crate) fn add_write(log: &mut Log, fd: c_int, offset: Option<u64>, data: &[u8]) {
    match offset {
        Some(offset) => log.add(&Event::Write {
            fd: number(fd),
            offset,
            data,
        }),
        None => log.blind("a write at an unknown position"),
    }
}

/// The first `length` bytes of `parts`.
unsafe fn gathered(parts: &[iovec], length: usize) -> Vec<u8> {
    let mut data = Vec::with_capacity(length);
    for part in parts {
        let count = part.iov_len.min(length - data.len());
        if count > 0 {
            data.extend_from_slice(unsafe {
                slice::from_raw_parts(part.iov_base.cast_const().cast::<u8>(), count)
            });
        }
    }
    data
}

macro_rules! lengths {
    ($($truncate:ident, $ftruncate:ident, $fallocate:ident, $posix_fallocate:ident;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $truncate(path: *const c_char, length: off_t) -> c_int {
            unsafe { truncated(path, length) }
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn $ftruncate(fd: c_int, length: off_t) -> c_int {
            changed(fd, || result(call!(SYS_ftruncate, fd, length)), |log| {
                log.add(&Event::SetLength { fd: number(fd), length: length.cast_unsigned() });
            })
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn $fallocate(
            fd: c_int,
            mode: c_int,
            offset: off_t,
            length: off_t,
        ) -> c_int {
            allocated(fd, mode, offset, length)
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn $posix_fallocate(
            fd: c_int,
            offset: off_t,
            length: off_t,
        ) -> c_int {
            match allocated(fd, 0, offset, length) {
                0 => 0,
                _ => system::errno(),
            }
        }
    )*};
}

lengths! {
    truncate, ftruncate, fallocate, posix_fallocate;
    truncate64, ftruncate64, fallocate64, posix_fallocate64;
}

fn changed(fd: c_int, raw: impl FnOnce() -> c_int, add: impl FnOnce(&mut Log)) -> c_int {
    let Some(recorder) = recorder_of(fd) else {
        return raw();
    };
    let mut log = recorder.lock();
    let outcome = raw();
    if outcome == 0 {
        add(&mut log);
    }
    outcome
}

fn allocated(fd: c_int, mode: c_int, offset: off_t, length: off_t) -> c_int {
    let raw = || result(call!(SYS_fallocate, fd, mode, offset, length));
    changed(fd, raw, |log| {
        let (offset, length) = (offset.cast_unsigned(), length.cast_unsigned());
        let fd = number(fd);
        let keeps_length = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        match mode & !libc::FALLOC_FL_KEEP_SIZE {
            0 => {}
            libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE => {
                log.add(&Event::Zero { fd, offset, length })
            }
            _ => log.blind("fallocate in a rare mode"),
        }
        if !keeps_length {
            log.add(&Event::Grow {
                fd,
                length: offset + length,
            });
        }
    })
}

/// By name: recorded as through a descriptor of its own.
unsafe fn truncated(path: *const c_char, length: off_t) -> c_int {
    let raw = || result(call!(SYS_truncate, path, length));
    let Some(recorder) = recorder() else {
        return raw();
    };
    let Place::Inside(path) = (unsafe { recorder.place(libc::AT_FDCWD, path) }) else {
        return raw();
    };
    let mut log = recorder.lock();
    let outcome = raw();
    if outcome == 0 {
        // No descriptor has this number.
        let fd = u64::MAX;
        log.add(&Event::Open {
            fd,
            path,
            create: false,
            truncate: false,
            sync: false,
        });
        log.add(&Event::SetLength {
            fd,
            length: length.cast_unsigned(),
        });
        log.add(&Event::Close { fd });
    }
    outcome
}
