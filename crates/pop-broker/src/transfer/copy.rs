//! Moves the content of a source into a target, all or nothing.

use std::time::Duration;

use kv_restore::{
    Chance, Installed, Limiter, Progress, RestoreError, RestoreStats, Restorer, RestorerOptions,
    Target,
};
use tokio::{runtime::Handle, time::interval};

use super::Source;

/// How often somebody who watches is told how far it is, also while nothing moves.
const SEEN_EVERY: Duration = Duration::from_secs(1);

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
    let how = RestorerOptions::new(options.chance.clone())
        .with_session(source.session())
        .with_limiter(Limiter::new(options.rate));
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
