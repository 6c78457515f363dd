//! The one place where this layer reads a clock.

use std::time::Instant;

/// Now, for pacing syncs and disk checks.
#[expect(
    clippy::disallowed_methods,
    reason = "paces real disks behind real threads; nothing stored or decided depends on it"
)]
pub(in crate::backend) fn now() -> Instant {
    Instant::now()
}
