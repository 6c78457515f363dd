//! Panics of the broker: it answers them as a doubt, and here they are a failure.

use std::{cell::RefCell, sync::Once};

thread_local! {
    static SEEN: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Keeps what panics from now on, in each thread for itself, instead of printing it. Those
/// that the store was told to make are no news.
pub(crate) fn keep() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        std::panic::set_hook(Box::new(|panic| {
            let text = panic.to_string();
            if !text.contains("injected by the fault store") {
                SEEN.with_borrow_mut(|seen| seen.push(text));
            }
        }));
    });
}

/// The first panic of this thread since the last look.
pub(crate) fn take() -> Option<String> {
    SEEN.with_borrow_mut(|seen| seen.drain(..).next())
}
