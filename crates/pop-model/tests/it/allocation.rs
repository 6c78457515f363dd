//! How much a decoder asks the allocator for: a forged count must not be believed.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

struct Watched;

#[global_allocator]
static WATCHED: Watched = Watched;

#[expect(unsafe_code, reason = "an allocator can't be written without it")]
// SAFETY: every call goes to the system's allocator with the arguments as they came.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST.with(|largest| largest.set(largest.get().max(layout.size())));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// The largest single allocation that `work` makes on this thread, in bytes.
pub(crate) fn largest_allocation<T>(work: impl FnOnce() -> T) -> (T, usize) {
    LARGEST.with(|largest| largest.set(0));
    let result = work();
    (result, LARGEST.with(Cell::get))
}

#[test]
fn the_largest_allocation_is_seen() {
    let (_, largest) = largest_allocation(|| vec![0_u8; 12_345]);
    assert_eq!(largest, 12_345);
}
