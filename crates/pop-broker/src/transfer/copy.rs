//! Moves the content of a source into a target, all or nothing.

use std::time::Duration;

use kv_restore::{
    Chance, Installed, Limiter, Progress, RestoreError, Restorer, RestorerOptions, Target,
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
) -> Result<Installed, RestoreError> {
    let restorer = RestorerOptions::new(options.chance.clone())
        .with_session(source.session())
        .with_limiter(Limiter::new(options.rate));
    let restorer = Restorer::new(target, source.transport(), restorer, Handle::current());
    let session = restorer.restore(source.at().clone(), &[source.peer().clone()])?;
    let mut progress = session.progress();
    let mut outcome = std::pin::pin!(session.outcome());
    let mut tick = interval(SEEN_EVERY);
    loop {
        tokio::select! {
            biased;
            outcome = &mut outcome => {
                seen(&progress.borrow_and_update());
                return outcome;
            }
            Ok(()) = progress.changed() => seen(&progress.borrow_and_update()),
            _ = tick.tick() => seen(&progress.borrow_and_update()),
        }
    }
}
