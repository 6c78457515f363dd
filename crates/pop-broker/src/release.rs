//! Deliveries that reached nobody: ready again at once, and never counted.
//!
//! One whose lease is stored is taken back by a write, which the store may refuse for a
//! while. Until it takes it the delivery is remembered here, and whoever decides what
//! becomes of it when its time is up asks.

use std::{collections::HashSet, sync::Arc, time::Duration};

use parking_lot::Mutex;
use pop_cache::CacheError;
use pop_model::{DeliveryIdentity, Mutant};

use crate::core::Core;

/// How long to wait before what was refused is tried again.
const PAUSE: Duration = Duration::from_millis(500);

/// The deliveries that reached nobody and are not taken back yet.
#[derive(Debug, Default)]
pub(crate) struct Releases {
    open: Mutex<HashSet<DeliveryIdentity>>,
}

impl Releases {
    /// Whether a delivery reached nobody, whatever its row says.
    pub(crate) fn contains(&self, identity: &DeliveryIdentity) -> bool {
        self.open.lock().contains(identity)
    }
}

impl Core {
    /// Makes deliveries that reached nobody ready again, without counting an attempt.
    pub(crate) fn release(self: &Arc<Self>, identities: Vec<DeliveryIdentity>) {
        self.releases.open.lock().extend(&identities);
        let core = Arc::clone(self);
        let tasks = core.tasks.clone();
        tasks.spawn(async move { core.take_back(identities).await });
    }

    async fn take_back(self: &Arc<Self>, identities: Vec<DeliveryIdentity>) {
        let mut left = identities;
        loop {
            let mut refused = Vec::new();
            for identity in left {
                if self.is_taken_back(&identity).await {
                    self.releases.open.lock().remove(&identity);
                } else {
                    refused.push(identity);
                }
            }
            if refused.is_empty() || self.closing.is_cancelled() {
                return;
            }
            tokio::select! {
                () = self.closing.cancelled() => {}
                () = tokio::time::sleep(PAUSE) => {}
            }
            left = refused;
        }
    }

    async fn is_taken_back(&self, identity: &DeliveryIdentity) -> bool {
        if Mutant::ReleaseCountsAnAttempt.is_on() {
            self.end_at_once(identity).await;
            return true;
        }
        match self.cache.give_back(identity).await {
            Ok(()) | Err(CacheError::Over) => true,
            Err(error) => {
                tracing::warn!(queue = %identity.queue, offset = identity.offset.get(), %error, "a delivery that reached nobody could not be released; it is tried again");
                false
            }
        }
    }

    /// What the mutant does with a delivery that reached nobody: its time is up.
    async fn end_at_once(&self, identity: &DeliveryIdentity) {
        if let Some(cached) = self.cache.loaded(identity.queue) {
            let durability = self.options.ack_durability;
            let at_once = self
                .cache
                .change(&cached, identity, Duration::ZERO, false, durability);
            if let Err(error) = at_once.await {
                tracing::warn!(%error, "mutant: the delivery goes on");
            }
        }
    }
}
