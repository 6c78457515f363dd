//! The handle that everything above holds, over opens, failures and reopens of the store.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use parking_lot::RwLock;
use pop_model::{GroupName, GroupRecord, LogBounds, LogQueue, Mutant, ReceiptHandle, TopicName};
use pop_store::{Capabilities, Guarded, Store, table::MessageLog};
use tokio::sync::watch;

use crate::{
    BrokerError, Counts, GroupSpec, Handout, NewMessage, ReceiveRequest, SendReceipt, Topic,
    TopicSpec,
    core::{BrokerOptions, Core},
    owner::{NotOwner, Retired},
};

mod pause;

pub(crate) use pause::Paused;

/// Opens the store, at the start and after it failed.
#[async_trait]
pub trait OpenStore: fmt::Debug + Send + Sync + 'static {
    /// Opens the store with all its keyspaces.
    ///
    /// # Errors
    ///
    /// The store's; after a failure it is tried again for a while.
    async fn open(&self) -> pop_store::Result<Arc<dyn Store>>;
}

/// A message queue on a store. Clones are handles of one broker.
///
/// # Cancel safety
///
/// Requests own no state: dropping the future of any method drops its answer only. A
/// receive whose answer is dropped releases its messages at once.
#[derive(Clone, Debug)]
pub struct Broker {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    opener: Arc<dyn OpenStore>,
    options: BrokerOptions,
    state: RwLock<State>,
    health: watch::Sender<Health>,
}

#[derive(Clone, Debug)]
enum State {
    Serving(Arc<Core>),
    Recovering,
    // Being handed over: nothing is served, and whoever paused it goes on or hands it over.
    Paused,
    Moved(Arc<NotOwner>, Option<Arc<Retired>>),
    Closed,
}

/// Whether the broker serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It does.
    Serving,
    /// Its store failed and is being opened anew.
    Recovering,
    /// Its store failed and could not be opened anew: the process should end.
    Failed(String),
    /// It is being handed over to another broker, and serves again if that fails.
    Paused,
    /// It was handed over: the process has nothing to serve any more.
    Moved(String),
    /// It was shut down.
    Closed,
}

impl Broker {
    /// Opens the store and begins to serve.
    ///
    /// # Errors
    ///
    /// Those of the store.
    pub async fn open(
        opener: Arc<dyn OpenStore>,
        mut options: BrokerOptions,
    ) -> Result<Self, BrokerError> {
        options.counters = Arc::default();
        let core = open_core(opener.as_ref(), &options).await?;
        let (health, _) = watch::channel(Health::Serving);
        let inner = Arc::new(Inner {
            opener,
            options,
            state: RwLock::new(State::Serving(Arc::clone(&core))),
            health,
        });
        inner.start(&core);
        Ok(Self { inner })
    }

    /// Follows whether the broker serves.
    #[must_use]
    pub fn health(&self) -> watch::Receiver<Health> {
        self.inner.health.subscribe()
    }

    /// What the store can do.
    ///
    /// # Errors
    ///
    /// While the store is not open.
    pub fn store_capabilities(&self) -> Result<Capabilities, BrokerError> {
        Ok(self.core()?.store.capabilities())
    }

    /// How many messages went which way since it was opened.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.inner.options.counters.read()
    }

    /// Ends all waiting receives, brings running work to its end and closes the store
    /// with everything durable.
    ///
    /// # Errors
    ///
    /// Those of the store's last write.
    pub async fn shutdown(&self) -> Result<(), BrokerError> {
        let state = std::mem::replace(&mut *self.inner.state.write(), State::Closed);
        self.inner.health.send_replace(Health::Closed);
        match state {
            State::Serving(core) => core.close().await,
            State::Recovering | State::Paused | State::Moved(..) | State::Closed => Ok(()),
        }
    }

    /// Makes a topic.
    ///
    /// # Errors
    ///
    /// A name that is taken, a number of queues out of range, or the store's.
    pub async fn create_topic(&self, spec: TopicSpec) -> Result<Arc<Topic>, BrokerError> {
        self.run(move |core| async move { core.catalog.create_topic(spec).await })
            .await
    }

    /// Makes a group.
    ///
    /// # Errors
    ///
    /// A name that is taken, or the store's.
    pub async fn create_group(&self, spec: GroupSpec) -> Result<Arc<GroupRecord>, BrokerError> {
        self.run(move |core| async move { core.catalog.create_group(spec).await })
            .await
    }

    /// A topic, if it is there.
    ///
    /// # Errors
    ///
    /// While the store is not open.
    pub fn topic(&self, name: &TopicName) -> Result<Option<Arc<Topic>>, BrokerError> {
        Ok(self.core()?.catalog.topic(name))
    }

    /// A group, if it is there.
    ///
    /// # Errors
    ///
    /// While the store is not open.
    pub fn group(&self, name: &GroupName) -> Result<Option<Arc<GroupRecord>>, BrokerError> {
        Ok(self.core()?.catalog.group(name))
    }

    /// All topics, by name.
    ///
    /// # Errors
    ///
    /// While the store is not open.
    pub fn topics(&self) -> Result<Vec<Arc<Topic>>, BrokerError> {
        Ok(self.core()?.catalog.topics())
    }

    /// All groups, by name.
    ///
    /// # Errors
    ///
    /// While the store is not open.
    pub fn groups(&self) -> Result<Vec<Arc<GroupRecord>>, BrokerError> {
        Ok(self.core()?.catalog.groups())
    }

    /// The first and the next offset of a queue.
    ///
    /// # Errors
    ///
    /// The store's.
    pub async fn bounds(&self, queue: LogQueue) -> Result<LogBounds, BrokerError> {
        self.run(move |core| async move { Ok(core.log.bounds(queue).await?) })
            .await
    }

    /// The topic that a client asks the route of, made on demand where that is on.
    ///
    /// # Errors
    ///
    /// [`BrokerError::TopicNotFound`], or the store's.
    pub async fn route(&self, name: &TopicName) -> Result<Arc<Topic>, BrokerError> {
        if let Some(topic) = self.topic(name)? {
            return Ok(topic);
        }
        let name = name.clone();
        self.run(move |core| async move { core.catalog.route(&name).await })
            .await
    }

    /// Appends messages of one topic. Each has its own outcome, in the order given.
    ///
    /// # Errors
    ///
    /// What concerns all of them: no message, too many, an unknown topic.
    pub async fn send(
        &self,
        topic: &TopicName,
        messages: Vec<NewMessage>,
    ) -> Result<Vec<Result<SendReceipt, BrokerError>>, BrokerError> {
        if messages.is_empty() {
            return Err(crate::MessageError::None.into());
        }
        if messages.len() > pop_model::limits::SEND_BATCH_MAX {
            return Err(crate::MessageError::TooMany(messages.len()).into());
        }
        let topic = self.route(topic).await?;
        let sends = messages.into_iter().map(|message| {
            let topic = Arc::clone(&topic);
            self.run(move |core| async move { core.send(&topic, message).await })
        });
        Ok(futures::future::join_all(sends).await)
    }

    /// Hands out up to a batch of messages under a lease, waiting for a first one.
    ///
    /// # Errors
    ///
    /// A request out of range, an unknown topic or group, or the store's.
    pub async fn receive(&self, request: ReceiveRequest) -> Result<Handout, BrokerError> {
        let size = request.batch_size;
        if size == 0 || size > pop_model::limits::RECEIVE_BATCH_MAX {
            return Err(BrokerError::BatchSize(
                i64::try_from(size).unwrap_or(i64::MAX),
            ));
        }
        let invisible_max = Duration::from_millis(pop_model::limits::INVISIBLE_MS_MAX);
        if request.invisible_for.is_zero() || request.invisible_for > invisible_max {
            return Err(BrokerError::InvisibleDuration(format!(
                "{:?}",
                request.invisible_for
            )));
        }
        let core = self.core()?;
        let outcome = core.receive(request).await;
        self.inner.look_at(&core, outcome.as_ref().err());
        match outcome {
            // The wait ended with its store, and the store is on its way back.
            Err(BrokerError::ShuttingDown) => {
                Err(self.core().err().unwrap_or(BrokerError::Recovering))
            }
            other => other,
        }
    }

    /// Acknowledges a delivery.
    ///
    /// # Errors
    ///
    /// A handle that is not this broker's or whose delivery is over, or the store's.
    pub async fn ack(
        &self,
        group: &GroupName,
        topic: &TopicName,
        handle: &str,
    ) -> Result<(), BrokerError> {
        let (group, topic, handle) = (group.clone(), topic.clone(), handle.to_owned());
        self.run(move |core| async move { core.ack(&group, &topic, &handle).await })
            .await
    }

    /// Hides a delivery for this long from now on; zero makes it ready at once.
    ///
    /// # Errors
    ///
    /// A duration above 12 hours, a handle that is not this broker's or whose delivery is
    /// over, or the store's.
    pub async fn change_invisible(
        &self,
        group: &GroupName,
        topic: &TopicName,
        handle: &str,
        invisible_for: Duration,
        suspend: bool,
    ) -> Result<ReceiptHandle, BrokerError> {
        let (group, topic, handle) = (group.clone(), topic.clone(), handle.to_owned());
        self.run(move |core| async move {
            core.change_invisible(&group, &topic, &handle, invisible_for, suspend)
                .await
        })
        .await
    }

    /// Moves the message of a delivery to the dead-letter topic of its group, whatever
    /// attempts are left: its consumer gave it up.
    ///
    /// # Errors
    ///
    /// A handle that is not this broker's or whose delivery is over, or the store's; and if
    /// the message can't be moved, why. The delivery goes on then.
    pub async fn give_up(
        &self,
        group: &GroupName,
        topic: &TopicName,
        handle: &str,
    ) -> Result<(), BrokerError> {
        let (group, topic, handle) = (group.clone(), topic.clone(), handle.to_owned());
        self.run(move |core| async move { core.give_up(&group, &topic, &handle).await })
            .await
    }

    pub(crate) fn core(&self) -> Result<Arc<Core>, BrokerError> {
        match &*self.inner.state.read() {
            State::Serving(core) => Ok(Arc::clone(core)),
            State::Recovering => Err(BrokerError::Recovering),
            State::Paused => Err(BrokerError::Moving),
            State::Moved(..) => Err(BrokerError::Moved),
            State::Closed => Err(BrokerError::ShuttingDown),
        }
    }

    /// Runs an operation in a task of its own, which comes to its end whoever asked.
    pub(crate) async fn run<T, F, W>(&self, work: W) -> Result<T, BrokerError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, BrokerError>> + Send + 'static,
        W: FnOnce(Arc<Core>) -> F + Send + 'static,
    {
        let core = self.core()?;
        let task = core.tasks.spawn(work(Arc::clone(&core)));
        let outcome = match task.await {
            Ok(outcome) => outcome,
            Err(_) => Err(core.panicked()),
        };
        self.inner.look_at(&core, outcome.as_ref().err());
        outcome
    }
}

impl Inner {
    fn start(self: &Arc<Self>, core: &Arc<Core>) {
        let inner = Arc::downgrade(self);
        let failed = Arc::downgrade(core);
        core.start(move |error| {
            if let (Some(inner), Some(core)) = (inner.upgrade(), failed.upgrade()) {
                inner.recover(&core, &error);
            }
        });
    }

    /// Recovers, if this error means that the store must be opened anew.
    fn look_at(self: &Arc<Self>, core: &Arc<Core>, error: Option<&BrokerError>) {
        if let Some(error) = error.filter(|error| error.needs_reopen()) {
            self.recover(core, error);
        }
    }

    /// Drops everything that was built on the failed store and loads it again. The first
    /// to see the failure does it; the others find the state changed.
    fn recover(self: &Arc<Self>, failed: &Arc<Core>, error: &dyn std::error::Error) {
        if Mutant::GoOnAfterFailedWrite.is_on() {
            return;
        }
        {
            let mut state = self.state.write();
            match &*state {
                State::Serving(core) if Arc::ptr_eq(core, failed) => *state = State::Recovering,
                _ => return,
            }
        }
        tracing::error!(%error, "the store failed; it is opened anew");
        self.health.send_replace(Health::Recovering);
        let inner = Arc::clone(self);
        let failed = Arc::clone(failed);
        tokio::spawn(async move { inner.reopen(failed).await });
    }

    async fn reopen(self: Arc<Self>, failed: Arc<Core>) {
        failed.abandon().await;
        drop(failed);
        self.load_again().await;
    }

    /// Opens the store and serves, for as long as that is tried.
    async fn load_again(self: Arc<Self>) {
        let limit = self.options.recovery_time_max;
        match tokio::time::timeout(limit, self.reopen_until_it_works()).await {
            Ok(Err(moved)) => self.moved(moved, None),
            Ok(Ok(core)) => {
                if self.serve(&core) {
                    self.start(&core);
                    self.health.send_replace(Health::Serving);
                    tracing::info!("the store is open again; serving");
                } else {
                    core.abandon().await;
                }
            }
            Err(_) => {
                let problem = format!("the store could not be opened anew within {limit:?}");
                tracing::error!("{problem}");
                self.health.send_replace(Health::Failed(problem));
            }
        }
    }

    /// Serves on a reopened store, unless the broker was shut down meanwhile.
    fn serve(&self, core: &Arc<Core>) -> bool {
        let mut state = self.state.write();
        let wanted = matches!(*state, State::Recovering);
        if wanted {
            *state = State::Serving(Arc::clone(core));
        }
        wanted
    }

    /// The content has another owner, as its folder says.
    fn moved(&self, moved: NotOwner, mark: Option<Retired>) {
        let problem = moved.to_string();
        tracing::warn!("{problem}");
        let mut state = self.state.write();
        if matches!(*state, State::Recovering | State::Paused) {
            *state = State::Moved(Arc::new(moved), mark.map(Arc::new));
            drop(state);
            self.health.send_replace(Health::Moved(problem));
        }
    }

    async fn reopen_until_it_works(&self) -> Result<Arc<Core>, NotOwner> {
        loop {
            match open_core(self.opener.as_ref(), &self.options).await {
                Ok(core) => return Ok(core),
                Err(BrokerError::NotOwner(moved)) => return Err(moved),
                Err(error) => tracing::warn!(%error, "the store can't be opened yet"),
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
}

async fn open_core(
    opener: &dyn OpenStore,
    options: &BrokerOptions,
) -> Result<Arc<Core>, BrokerError> {
    let store = open_store(opener, options).await?;
    Core::open(store, options.clone()).await
}

async fn open_store(
    opener: &dyn OpenStore,
    options: &BrokerOptions,
) -> Result<Arc<dyn Store>, BrokerError> {
    let store = opener.open().await?;
    Ok(Arc::new(Guarded::new(store, options.store_time_max)))
}
