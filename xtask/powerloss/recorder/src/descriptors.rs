//! Which descriptors matter. Asked at every call of the process, so without a lock.

use std::sync::atomic::{AtomicU8, Ordering};

use libc::c_int;

/// What is behind a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing that is recorded.
    Other,
    /// A file in the folder.
    File,
    /// The folder or one in it.
    Folder,
    /// Where the workload writes its marks.
    Marks,
}

// A process with more open files than this is not one of ours.
const COUNT: usize = 1 << 16;

static KINDS: [AtomicU8; COUNT] = [const { AtomicU8::new(0) }; COUNT];

pub(crate) fn kind(fd: c_int) -> Kind {
    let slot = usize::try_from(fd).ok().and_then(|fd| KINDS.get(fd));
    // A descriptor is known to a second thread only through something that orders it.
    match slot.map_or(0, |slot| slot.load(Ordering::Relaxed)) {
        1 => Kind::File,
        2 => Kind::Folder,
        3 => Kind::Marks,
        _ => Kind::Other,
    }
}

pub(crate) fn set(fd: c_int, kind: Kind) {
    let code = match kind {
        Kind::Other => 0,
        Kind::File => 1,
        Kind::Folder => 2,
        Kind::Marks => 3,
    };
    match usize::try_from(fd).ok().and_then(|fd| KINDS.get(fd)) {
        Some(slot) => slot.store(code, Ordering::Relaxed),
        None if kind == Kind::Other => {}
        // What it can't follow it must not pass over in silence.
        None => std::process::abort(),
    }
}
