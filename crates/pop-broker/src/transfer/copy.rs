//! Moves the content of a source into a target, all or nothing.

use std::time::Duration;

use kv_restore::{
    Admission, Chance, Installed, Limiter, Progress, RestoreError, RestoreStats, Restorer,
    RestorerOptions, Target,
};
use tokio::{runtime::Handle, time::interval};

use super::Source;

/// How often somebody who watches is told how far it is, also while nothing moves.
const SEEN_EVERY: Duration = Duration::from_secs(1);

/// What a kill may make to be moved again, beside a window: what passes in this time.
const AGAIN_SECONDS: u64 = 2;
/// Within these bounds: each time costs a sync, and on RocksDB a file.
const AGAIN_BYTES_MIN: u64 = 4 << 20;
const AGAIN_BYTES_MAX: u64 = 64 << 20;

/// How a content is moved.
#[derive(Clone)]
#[non_exhaustive]
pub struct CopyOptions {
    /// How many bytes a second may pass; 0 is no limit.
    pub rate: u64,
    /// What sessions are named by.
    pub chance: Chance,
}

impl CopyOptions {
    /// Without a limit.
    #[must_use]
    pub fn new(chance: Chance) -> Self {
        Self { rate: 0, chance }
    }

    /// Sets how many bytes a second may pass; 0 is no limit.
    #[must_use]
    pub fn with_rate(mut self, rate: u64) -> Self {
        self.rate = rate;
        self
    }
}

impl std::fmt::Debug for CopyOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CopyOptions")
            .field("rate", &self.rate)
            .finish_non_exhaustive()
    }
}

/// What a content that was moved came to.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Copied {
    /// What the target holds.
    pub installed: Installed,
    /// What was moved for it, and where the time went.
    pub stats: RestoreStats,
}

/// After how much a target is to make a point that a later command can go on from.
fn again(rate: u64) -> u64 {
    match rate {
        0 => AGAIN_BYTES_MAX,
        rate => rate
            .saturating_mul(AGAIN_SECONDS)
            .clamp(AGAIN_BYTES_MIN, AGAIN_BYTES_MAX),
    }
}

/// Moves all rows of `source` to `target`, and tells `seen` how far it is: whenever that
/// changes, every second, and at the end.
///
/// # Errors
///
/// What ended the session; the target then has its old content, unless the error says that
/// this is in doubt.
///
/// # Cancel safety
///
/// Dropped, the session is cancelled.
pub async fn copy(
    source: &Source,
    target: Target,
    options: &CopyOptions,
    mut seen: impl FnMut(&Progress),
) -> Result<Copied, RestoreError> {
    // Once, and where rows are read: those that an earlier command moved are counted first.
    let limiter = match source.limiter() {
        Some(own) => {
            own.set(options.rate);
            Limiter::none()
        }
        None => Limiter::new(options.rate),
    };
    // A command is a process of its own, and this its only session.
    let how = RestorerOptions::new(Admission::new(1), options.chance.clone())
        .with_session(source.session().with_checkpoint_bytes(again(options.rate)))
        .with_limiter(limiter);
    let restorer = Restorer::new(target, source.transport(), how, Handle::current());
    let session = restorer.restore(source.at().clone(), &[source.peer().clone()])?;
    let mut progress = session.progress();
    let mut outcome = std::pin::pin!(session.outcome());
    let mut tick = interval(SEEN_EVERY);
    loop {
        tokio::select! {
            biased;
            outcome = &mut outcome => {
                seen(&progress.borrow_and_update());
                let stats = restorer.stats();
                return outcome.map(|installed| Copied { installed, stats });
            }
            Ok(()) = progress.changed() => seen(&progress.borrow_and_update()),
            _ = tick.tick() => seen(&progress.borrow_and_update()),
        }
    }
}
