//! The record: one lock, one order, one file.

use std::{
    env,
    ffi::{CStr, OsString},
    os::unix::ffi::OsStringExt,
    process,
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
};

use libc::{c_char, c_int};
use pop_powerloss_trace::{Event, encode, variables};

use crate::system;

/// Where a path leads.
pub(crate) enum Place {
    /// Out of sight.
    Elsewhere,
    /// To the file of the marks.
    Marks,
    /// Into the folder, by this path in it.
    Inside(String),
}

/// What the environment asked for.
pub(crate) struct Recorder {
    folder: Vec<u8>,
    marks: Vec<u8>,
    log: Mutex<Log>,
}

/// The record, held by whoever changes something.
pub(crate) struct Log {
    fd: c_int,
    buffer: Vec<u8>,
    syncs: u64,
}

/// The recorder, if the process is to be recorded.
pub(crate) fn recorder() -> Option<&'static Recorder> {
    static RECORDER: OnceLock<Option<Recorder>> = OnceLock::new();
    RECORDER.get_or_init(Recorder::start).as_ref()
}

impl Recorder {
    fn start() -> Option<Self> {
        let variable = |name| env::var_os(name).map(OsString::into_vec);
        let folder = variable(variables::FOLDER)?;
        let marks = variable(variables::MARKS)?;
        let mut path = variable(variables::LOG)?;
        path.push(0);
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_CLOEXEC;
        let fd = unsafe { system::openat(libc::AT_FDCWD, path.as_ptr().cast(), flags, 0o644) };
        if fd < 0 {
            process::abort();
        }
        Some(Self {
            folder,
            marks,
            log: Mutex::new(Log {
                fd,
                buffer: Vec::new(),
                syncs: 0,
            }),
        })
    }

    /// Holds up every other change.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// # Safety
    ///
    /// `path` is a C string.
    pub(crate) unsafe fn place(&self, folder: c_int, path: *const c_char) -> Place {
        if path.is_null() {
            return Place::Elsewhere;
        }
        let path = unsafe { CStr::from_ptr(path) }.to_bytes();
        let path = absolute(folder, path);
        if path == self.marks {
            return Place::Marks;
        }
        let Some(inside) = path.strip_prefix(self.folder.as_slice()) else {
            return Place::Elsewhere;
        };
        let inside = match inside.split_first() {
            None => inside,
            Some((b'/', inside)) => inside,
            Some(_) => return Place::Elsewhere,
        };
        match String::from_utf8(inside.to_vec()) {
            Ok(inside) => Place::Inside(inside),
            // Our engines name files in ASCII.
            Err(_) => process::abort(),
        }
    }
}

impl Log {
    /// Adds an event. Without it the record would lie, so the process ends.
    pub(crate) fn add(&mut self, event: &Event<&[u8]>) {
        let errno = system::errno();
        self.buffer.clear();
        encode(event, &mut self.buffer);
        if !system::write_all(self.fd, &self.buffer) {
            process::abort();
        }
        system::set_errno(errno);
    }

    /// Says that something happened that can't be followed.
    pub(crate) fn blind(&mut self, what: &str) {
        self.add(&Event::Blind {
            what: what.to_owned(),
        });
    }

    pub(crate) fn next_sync(&mut self) -> u64 {
        self.syncs += 1;
        self.syncs
    }
}

/// The path from the root, without `.`, `..` and empty names. Links are not followed: the
/// folder is given without them, and engines make none.
fn absolute(folder: c_int, path: &[u8]) -> Vec<u8> {
    let base = match (path.first(), folder) {
        (Some(b'/'), _) => Some(Vec::new()),
        (_, libc::AT_FDCWD) => system::read_link("/proc/self/cwd"),
        (_, folder) => system::read_link(&format!("/proc/self/fd/{folder}")),
    };
    let base = base.unwrap_or_default();
    let mut names: Vec<&[u8]> = Vec::new();
    for name in base
        .split(|it| *it == b'/')
        .chain(path.split(|it| *it == b'/'))
    {
        match name {
            b"" | b"." => {}
            b".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    names
        .iter()
        .flat_map(|name| [b"/", *name].concat())
        .collect()
}

/// A descriptor as the record has it.
pub(crate) fn number(fd: c_int) -> u64 {
    u64::try_from(fd).unwrap_or(u64::MAX)
}
