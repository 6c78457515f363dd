//! Syncs. They are the slow calls, so they run side by side with everything else.

use libc::{c_int, c_uint, off_t};
use pop_powerloss_trace::{Event, SyncCall};

use crate::{
    descriptors::{self, Kind},
    record::{number, recorder},
    system::{call, result},
};

#[unsafe(no_mangle)]
unsafe extern "C" fn fsync(fd: c_int) -> c_int {
    synced(fd, SyncCall::Full, || result(call!(SYS_fsync, fd)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdatasync(fd: c_int) -> c_int {
    synced(fd, SyncCall::Data, || result(call!(SYS_fdatasync, fd)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sync_file_range(
    fd: c_int,
    offset: off_t,
    length: off_t,
    flags: c_uint,
) -> c_int {
    synced(fd, SyncCall::Range, || {
        result(call!(SYS_sync_file_range, fd, offset, length, flags))
    })
}

fn synced(fd: c_int, call: SyncCall, raw: impl FnOnce() -> c_int) -> c_int {
    let is_inside = matches!(descriptors::kind(fd), Kind::File | Kind::Folder);
    let Some(recorder) = recorder().filter(|_| is_inside) else {
        return raw();
    };
    let id = {
        let mut log = recorder.lock();
        let id = log.next_sync();
        log.add(&Event::SyncBegin {
            id,
            fd: number(fd),
            call,
        });
        id
    };
    let outcome = raw();
    if outcome == 0 {
        recorder.lock().add(&Event::SyncEnd { id });
    }
    outcome
}
