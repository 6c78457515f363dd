//! The rate limit: one bucket, which its clones share, set while sessions run.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{sync::watch, time::Instant};

// Longer than a busy machine keeps a timer waiting, and short beside the second that is
// promised.
const OVERSLEPT_MAX: Duration = Duration::from_millis(50);

/// How many bytes a second may pass. Clones share it.
///
/// Bytes are charged as they pass and paid for before the next ones do. A timer that fires
/// late, as all do, costs nothing: what it overslept may pass at once, up to a twentieth of a
/// second of it. So any second sees at most the rate, a twentieth of it, and one chunk.
#[derive(Clone, Debug)]
pub struct Limiter(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    // Who waits for the bucket waits in line.
    line: tokio::sync::Mutex<()>,
    bucket: Mutex<Bucket>,
    changed: watch::Sender<()>,
}

#[derive(Debug)]
struct Bucket {
    // Bytes a second; 0 is no limit.
    rate: u64,
    // What has passed and is not paid for at `at`; below zero, what was overslept.
    debt: f64,
    at: Instant,
}

impl Limiter {
    /// Lets so many bytes a second pass; 0 is no limit.
    #[must_use]
    pub fn new(bytes_per_second: u64) -> Self {
        let bucket = Bucket {
            rate: bytes_per_second,
            debt: 0.0,
            at: Instant::now(),
        };
        Self(Arc::new(Shared {
            line: tokio::sync::Mutex::new(()),
            bucket: Mutex::new(bucket),
            changed: watch::Sender::new(()),
        }))
    }

    /// No limit, until one is set.
    #[must_use]
    pub fn none() -> Self {
        Self::new(0)
    }

    /// Lets so many bytes a second pass from now on, also for those who wait; 0 is no limit.
    pub fn set(&self, bytes_per_second: u64) {
        let mut bucket = self.0.bucket.lock();
        bucket.pay(Instant::now(), false);
        bucket.rate = bytes_per_second;
        drop(bucket);
        self.0.changed.send_replace(());
    }

    /// Waits until all that passed before is paid for, and lets so many bytes pass.
    ///
    /// # Cancel safety
    ///
    /// Dropped while it waits, nothing is charged.
    pub async fn acquire(&self, bytes: u64) {
        let mut changed = self.0.changed.subscribe();
        let _line = self.0.line.lock().await;
        let mut waited = false;
        loop {
            let wait = self.0.bucket.lock().take(Instant::now(), waited, bytes);
            let Some(wait) = wait else {
                return;
            };
            waited = true;
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                _ = changed.changed() => {}
            }
        }
    }
}

impl Bucket {
    #[expect(
        clippy::cast_precision_loss,
        reason = "a rate is a rate, to a few parts in a billion"
    )]
    fn pay(&mut self, now: Instant, waited: bool) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = now;
        if self.rate == 0 {
            self.debt = 0.0;
            return;
        }
        let rate = self.rate as f64;
        let saved = -OVERSLEPT_MAX.as_secs_f64() * rate;
        // Time in which nobody wanted anything is not saved up, nor what a faster rate left.
        let least = match waited {
            true => saved,
            false => self.debt.clamp(saved, 0.0),
        };
        self.debt = (self.debt - passed * rate).max(least);
    }

    /// Charges the bytes, or says how long it takes until that is possible.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a rate is a rate, to a few parts in a billion"
    )]
    fn take(&mut self, now: Instant, waited: bool, bytes: u64) -> Option<Duration> {
        self.pay(now, waited);
        if self.debt > 0.0 {
            let wait = Duration::from_secs_f64((self.debt / self.rate as f64).min(3_600.0));
            // Less than the timer can tell apart is now.
            return Some(wait.max(Duration::from_millis(1)));
        }
        if self.rate > 0 {
            self.debt += bytes as f64;
        }
        None
    }
}
