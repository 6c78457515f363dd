//! A broker that serves nobody while its content is handed over.

use std::sync::Arc;

use pop_store::Store;

use super::{Broker, Health, Inner, State, open_store};
use crate::{
    BrokerError,
    owner::{self, NotOwner, Retired},
};

/// A broker that was paused, and its store as the pause left it. Dropped, it serves again.
#[derive(Debug)]
pub(crate) struct Paused {
    inner: Arc<Inner>,
    store: Option<Arc<dyn Store>>,
    epoch: u64,
}

impl Broker {
    /// Stops serving and brings all work to its end, with everything durable.
    ///
    /// The store is closed for that and opened anew, so that no request that is late can
    /// write any more: its handle is one of a closed store.
    ///
    /// # Errors
    ///
    /// If it does not serve, or the store's; it serves again then.
    pub(crate) async fn pause(&self) -> Result<Paused, BrokerError> {
        let core = self.core()?;
        {
            let mut state = self.inner.state.write();
            match &*state {
                State::Serving(now) if Arc::ptr_eq(now, &core) => *state = State::Paused,
                _ => return Err(BrokerError::Recovering),
            }
        }
        self.inner.health.send_replace(Health::Paused);
        let mut paused = Paused {
            inner: Arc::clone(&self.inner),
            store: None,
            epoch: core.epoch,
        };
        core.close().await?;
        drop(core);
        let opener = self.inner.opener.as_ref();
        paused.store = Some(open_store(opener, &self.inner.options).await?);
        Ok(paused)
    }

    /// The mark of the handover that this broker ended with.
    pub(crate) fn handed_over(&self) -> Option<Arc<Retired>> {
        match &*self.inner.state.read() {
            State::Moved(_, mark) => mark.clone(),
            _ => None,
        }
    }

    /// Says whether it was handed over, and where to.
    #[must_use]
    pub fn moved(&self) -> Option<Arc<NotOwner>> {
        match &*self.inner.state.read() {
            State::Moved(moved, _) => Some(Arc::clone(moved)),
            _ => None,
        }
    }
}

impl Paused {
    /// Its content, which nobody changes.
    pub(crate) fn store(&self) -> Result<&Arc<dyn Store>, BrokerError> {
        self.store.as_ref().ok_or(BrokerError::Moving)
    }

    /// Its epoch as an owner.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Gives the content away for good. On `Ok` that survives a power cut.
    ///
    /// # Errors
    ///
    /// The store's. Whether the mark is there is what the folder says when it is opened
    /// anew, which happens then.
    pub(crate) async fn retire(mut self, mark: Retired) -> Result<(), BrokerError> {
        owner::retire(self.store()?.as_ref(), &mark).await?;
        // Nothing is left to go back to.
        let store = self.store.take();
        self.inner.moved(NotOwner::from(&mark), Some(mark));
        if let Some(store) = store {
            close(store).await;
        }
        Ok(())
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        let inner = Arc::clone(&self.inner);
        let store = self.store.take();
        {
            let mut state = inner.state.write();
            match *state {
                State::Paused => *state = State::Recovering,
                // Handed over, or shut down meanwhile: the store alone is left.
                _ if store.is_none() => return,
                _ => {}
            }
        }
        tokio::spawn(async move {
            if let Some(store) = store {
                close(store).await;
            }
            if matches!(*inner.state.read(), State::Recovering) {
                tracing::info!("the handover ended without one: serving again");
                inner.health.send_replace(Health::Recovering);
                inner.load_again().await;
            }
        });
    }
}

async fn close(store: Arc<dyn Store>) {
    if let Err(error) = store.close().await {
        tracing::debug!(%error, "closing a store that was paused failed");
    }
}
