//! Names that come, move and go.

use libc::{c_char, c_int, c_uint, mode_t};
use pop_powerloss_trace::Event;

use crate::{
    record::{Place, recorder},
    system::{call, result},
};

#[unsafe(no_mangle)]
unsafe extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    unsafe { renameat2(libc::AT_FDCWD, from, libc::AT_FDCWD, to, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn renameat(
    from_folder: c_int,
    from: *const c_char,
    to_folder: c_int,
    to: *const c_char,
) -> c_int {
    unsafe { renameat2(from_folder, from, to_folder, to, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn renameat2(
    from_folder: c_int,
    from: *const c_char,
    to_folder: c_int,
    to: *const c_char,
    flags: c_uint,
) -> c_int {
    let raw = || {
        result(call!(
            SYS_renameat2,
            from_folder,
            from,
            to_folder,
            to,
            flags
        ))
    };
    let places = [(from_folder, from), (to_folder, to)];
    let is_plain = flags & libc::RENAME_EXCHANGE == 0;
    unsafe {
        named(places, raw, |from, to| match is_plain {
            true => Event::Rename { from, to },
            false => Event::Blind {
                what: format!("an exchange of {from} and {to}"),
            },
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn link(from: *const c_char, to: *const c_char) -> c_int {
    unsafe { linkat(libc::AT_FDCWD, from, libc::AT_FDCWD, to, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn linkat(
    from_folder: c_int,
    from: *const c_char,
    to_folder: c_int,
    to: *const c_char,
    flags: c_int,
) -> c_int {
    let raw = || result(call!(SYS_linkat, from_folder, from, to_folder, to, flags));
    let places = [(from_folder, from), (to_folder, to)];
    unsafe { named(places, raw, |from, to| Event::Link { from, to }) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    unsafe { unlinkat(libc::AT_FDCWD, path, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rmdir(path: *const c_char) -> c_int {
    unsafe { unlinkat(libc::AT_FDCWD, path, libc::AT_REMOVEDIR) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unlinkat(folder: c_int, path: *const c_char, flags: c_int) -> c_int {
    let raw = || result(call!(SYS_unlinkat, folder, path, flags));
    let is_folder = flags & libc::AT_REMOVEDIR != 0;
    unsafe {
        named([(folder, path); 2], raw, |path, _| match is_folder {
            true => Event::RemoveFolder { path },
            false => Event::Unlink { path },
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mkdir(path: *const c_char, mode: mode_t) -> c_int {
    unsafe { mkdirat(libc::AT_FDCWD, path, mode) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mkdirat(folder: c_int, path: *const c_char, mode: mode_t) -> c_int {
    let raw = || result(call!(SYS_mkdirat, folder, path, mode));
    unsafe {
        named([(folder, path); 2], raw, |path, _| Event::MakeFolder {
            path,
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn symlink(target: *const c_char, path: *const c_char) -> c_int {
    let raw = || result(call!(SYS_symlinkat, target, libc::AT_FDCWD, path));
    let places = [(libc::AT_FDCWD, path); 2];
    unsafe {
        named(places, raw, |path, _| Event::Blind {
            what: format!("a symbolic link at {path}"),
        })
    }
}

/// Makes a call that names two places (or one, twice) and records it if it succeeded.
unsafe fn named(
    places: [(c_int, *const c_char); 2],
    raw: impl FnOnce() -> c_int,
    event: impl FnOnce(String, String) -> Event<&'static [u8]>,
) -> c_int {
    let Some(recorder) = recorder() else {
        return raw();
    };
    let [first, second] = places.map(|(folder, path)| unsafe { recorder.place(folder, path) });
    let event = match (first, second) {
        (Place::Inside(first), Place::Inside(second)) => event(first, second),
        (Place::Inside(path), _) | (_, Place::Inside(path)) => Event::Blind {
            what: format!("{path} crossed the edge of the folder"),
        },
        _ => return raw(),
    };
    let mut log = recorder.lock();
    let outcome = raw();
    if outcome == 0 {
        log.add(&event);
    }
    outcome
}
