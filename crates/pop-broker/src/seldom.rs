//! Lines of the log that many calls would write at once, such as that the disk is full: one
//! a second of each kind, with how many others it stands for.
//!
//! Kinds are few by themselves: values of an enum, never what a peer said.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Between two lines of one kind.
const LINE_EVERY: Duration = Duration::from_secs(1);

/// What was said of each kind, and when.
#[derive(Debug)]
pub(crate) struct Seldom<K>(Mutex<Vec<Said<K>>>);

#[derive(Debug)]
struct Said<K> {
    kind: K,
    at: Instant,
    unsaid: u64,
}

impl<K: Copy + PartialEq> Seldom<K> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Whether something of this kind may be said now: then how often it was not, since the
    /// last time that it was.
    pub(crate) fn may_say(&self, kind: K) -> Option<u64> {
        let now = Instant::now();
        let mut all = self.0.lock();
        let Some(said) = all.iter_mut().find(|it| it.kind == kind) else {
            let (at, unsaid) = (now, 0);
            all.push(Said { kind, at, unsaid });
            return Some(0);
        };
        if now.saturating_duration_since(said.at) < LINE_EVERY {
            said.unsaid += 1;
            return None;
        }
        said.at = now;
        Some(std::mem::take(&mut said.unsaid))
    }
}

impl<K: Copy + PartialEq> Default for Seldom<K> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Mutants: one kind silences another; what was left out is not counted, or counted again.
    #[tokio::test(start_paused = true)]
    async fn each_kind_is_said_once_a_second_with_how_many_were_not() {
        let seldom = Seldom::new();
        assert_eq!(seldom.may_say("full"), Some(0));
        for _ in 0..1_000 {
            assert_eq!(seldom.may_say("full"), None);
        }
        assert_eq!(seldom.may_say("hung"), Some(0));
        tokio::time::advance(Duration::from_millis(999)).await;
        assert_eq!(seldom.may_say("full"), None);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(seldom.may_say("full"), Some(1_001));
        tokio::time::advance(LINE_EVERY).await;
        assert_eq!(seldom.may_say("full"), Some(0));
    }
}
