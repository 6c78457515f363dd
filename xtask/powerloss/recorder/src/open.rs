//! Descriptors that come, double and go.

use libc::{c_char, c_int, mode_t};
use pop_powerloss_trace::Event;

use crate::{
    descriptors::{self, Kind},
    record::{Place, number, recorder},
    system::{self, call, result},
};

// C declares `open` with an argument that may be missing. Where these are called from, an
// argument that is there is passed as if it were always, and one that is not is not read.
macro_rules! opens {
    ($($name:ident, $name_at:ident;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(path: *const c_char, flags: c_int, mode: c_int) -> c_int {
            unsafe { open_at(libc::AT_FDCWD, path, flags, mode) }
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name_at(
            folder: c_int,
            path: *const c_char,
            flags: c_int,
            mode: c_int,
        ) -> c_int {
            unsafe { open_at(folder, path, flags, mode) }
        }
    )*};
}

opens! {
    open, openat;
    open64, openat64;
}

#[unsafe(no_mangle)]
unsafe extern "C" fn creat(path: *const c_char, mode: mode_t) -> c_int {
    let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
    unsafe { open_at(libc::AT_FDCWD, path, flags, mode.cast_signed()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn creat64(path: *const c_char, mode: mode_t) -> c_int {
    unsafe { creat(path, mode) }
}

unsafe fn open_at(folder: c_int, path: *const c_char, flags: c_int, mode: c_int) -> c_int {
    let raw = || unsafe { system::openat(folder, path, flags, mode) };
    let Some(recorder) = recorder() else {
        return raw();
    };
    match unsafe { recorder.place(folder, path) } {
        Place::Elsewhere => opened(raw(), Kind::Other),
        Place::Marks => opened(raw(), Kind::Marks),
        Place::Inside(path) => {
            let mut log = recorder.lock();
            let fd = raw();
            if fd >= 0 {
                opened(
                    fd,
                    if is_folder(fd) {
                        Kind::Folder
                    } else {
                        Kind::File
                    },
                );
                log.add(&Event::Open {
                    fd: number(fd),
                    path,
                    create: flags & libc::O_CREAT != 0,
                    truncate: flags & libc::O_TRUNC != 0,
                    sync: flags & (libc::O_SYNC | libc::O_DSYNC) != 0,
                });
                if flags & libc::O_TMPFILE == libc::O_TMPFILE {
                    log.blind("O_TMPFILE");
                }
            }
            fd
        }
    }
}

fn opened(fd: c_int, kind: Kind) -> c_int {
    if fd >= 0 {
        descriptors::set(fd, kind);
    }
    fd
}

fn is_folder(fd: c_int) -> bool {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
    let errno = system::errno();
    let found = unsafe { libc::fstat(fd, stat.as_mut_ptr()) };
    system::set_errno(errno);
    found == 0 && unsafe { stat.assume_init() }.st_mode & libc::S_IFMT == libc::S_IFDIR
}

#[unsafe(no_mangle)]
unsafe extern "C" fn close(fd: c_int) -> c_int {
    let kind = descriptors::kind(fd);
    let recorder = recorder().filter(|_| kind != Kind::Other);
    let Some(recorder) = recorder else {
        return result(system::close(fd));
    };
    let mut log = recorder.lock();
    // Before the number is free for another thread.
    descriptors::set(fd, Kind::Other);
    if kind != Kind::Marks {
        log.add(&Event::Close { fd: number(fd) });
    }
    result(system::close(fd))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dup(old: c_int) -> c_int {
    doubled(old, || result(call!(SYS_dup, old)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dup2(old: c_int, new: c_int) -> c_int {
    if old == new {
        return result(call!(SYS_fcntl, old, libc::F_GETFD)).min(0) | old;
    }
    doubled(old, || result(call!(SYS_dup3, old, new, 0)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    doubled(old, || result(call!(SYS_dup3, old, new, flags)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    let raw = || result(call!(SYS_fcntl, fd, command, argument));
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => doubled(fd, raw),
        _ => raw(),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
    unsafe { fcntl(fd, command, argument) }
}

fn doubled(old: c_int, raw: impl FnOnce() -> c_int) -> c_int {
    let kind = descriptors::kind(old);
    let recorder = recorder().filter(|_| kind != Kind::Other);
    let Some(recorder) = recorder else {
        return opened(raw(), Kind::Other);
    };
    let mut log = recorder.lock();
    let new = opened(raw(), kind);
    if new >= 0 && kind != Kind::Marks {
        log.add(&Event::Dup {
            old: number(old),
            new: number(new),
        });
    }
    new
}
