//! Everything that lives on one opened store, from the open to a close or a failure.

use std::{fmt, sync::Arc, time::Duration};

use pop_cache::{CacheOptions, Foundation, LeaseCache};
use pop_model::{
    Clock, HandleKey, HandleKeyring, HandleKeys, Incarnation, LeaseTime, ShardId, StartPosition,
    SystemClock,
};
use pop_revive::{Reviver, ReviverOptions};
use pop_store::{
    Durability, ErrorKind, Store, WriteBatch,
    table::{DueSchedule, QuarantineSequence, StoreLog, meta},
};
use tokio::sync::Notify;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    BrokerError,
    catalog::{Catalog, CatalogOptions},
    consumption::Consumptions,
    counters::Counters,
    owner,
    release::Releases,
    retention::Retention,
    revive::Redelivery,
};

/// Where secrets and identities are drawn from. The edge of the program gives one.
pub type Entropy = Arc<dyn Fn(&mut [u8]) + Send + Sync>;

/// How the broker works, whatever carries its requests.
#[derive(Clone)]
#[non_exhaustive]
pub struct BrokerOptions {
    /// When a send is answered: once it survives a power cut, or once it is taken.
    pub send_durability: Durability,
    /// When an acknowledgement is answered.
    pub ack_durability: Durability,
    /// How topics and groups come to be.
    pub catalog: CatalogOptions,
    /// How long messages are kept; `None`: for ever.
    pub retention: Option<Duration>,
    /// How leases are kept in memory.
    pub cache: CacheOptions,
    /// How expired deliveries that are stored are worked off.
    pub reviver: ReviverOptions,
    /// The longest a store call may take before the store counts as failed.
    pub store_time_max: Duration,
    /// How long a failed store is tried to be opened anew before the broker gives up.
    pub recovery_time_max: Duration,
    /// Where secrets and identities are drawn from.
    pub entropy: Entropy,
    /// The clock, where it is not the machine's.
    pub clock: Option<Arc<dyn Clock>>,
    /// Set by each broker to its own, so that its counts outlive a store that failed.
    pub(crate) counters: Arc<Counters>,
}

impl BrokerOptions {
    /// The defaults: synced sends, acknowledgements synced within the store's interval,
    /// topics and groups made on demand.
    #[must_use]
    pub fn new(entropy: Entropy) -> Self {
        Self {
            send_durability: Durability::Synced,
            ack_durability: Durability::Buffered,
            catalog: CatalogOptions::default(),
            retention: None,
            cache: CacheOptions::default(),
            reviver: ReviverOptions::default(),
            store_time_max: Duration::from_secs(30),
            recovery_time_max: Duration::from_secs(30),
            entropy,
            clock: None,
            counters: Arc::default(),
        }
    }

    /// Sets where a new group starts.
    #[must_use]
    pub fn with_start(mut self, start: StartPosition) -> Self {
        self.catalog.start = start;
        self
    }

    /// Sets the clock.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }
}

impl fmt::Debug for BrokerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BrokerOptions")
            .field("send_durability", &self.send_durability)
            .field("ack_durability", &self.ack_durability)
            .field("catalog", &self.catalog)
            .finish_non_exhaustive()
    }
}

/// The state on one opened store. A failed store ends it whole: whatever was built on
/// the store is dropped with it, and a new one is loaded.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) log: StoreLog,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) catalog: Catalog,
    pub(crate) consumptions: Consumptions,
    pub(crate) cache: LeaseCache<Redelivery>,
    sink: Arc<Redelivery>,
    pub(crate) schedule: DueSchedule,
    pub(crate) handles: HandleKeyring,
    pub(crate) quarantine: Arc<QuarantineSequence>,
    pub(crate) retention: Retention,
    /// Deliveries that reached nobody.
    pub(crate) releases: Releases,
    pub(crate) options: BrokerOptions,
    /// Told of deletions, whose rest is to be swept.
    pub(crate) deleted: Notify,
    /// Cancelled when this state is on its way out: whoever waits goes.
    pub(crate) closing: CancellationToken,
    /// Work that must come to its end although nobody waits for it.
    pub(crate) tasks: TaskTracker,
    /// Of the owner of this content: it goes up with each handover.
    pub(crate) epoch: u64,
}

impl Core {
    pub(crate) async fn open(
        store: Arc<dyn Store>,
        options: BrokerOptions,
    ) -> Result<Arc<Self>, BrokerError> {
        let admission = owner::standing(&store).await?.admit()?;
        let mark = meta::lease_clock_mark(store.as_ref()).await?;
        let clock = match &options.clock {
            Some(clock) => Arc::clone(clock),
            None => Arc::new(SystemClock::resume(mark)),
        };
        let (keys, previous) = match admission.adopt {
            // What was handed out at the source of a copy is not valid here.
            Some(_) => (None, None),
            None => (
                meta::handle_keys(store.as_ref()).await?,
                meta::incarnation(store.as_ref()).await?,
            ),
        };
        let keys = keys.unwrap_or_else(|| draw_keys(&options.entropy));
        let incarnation = draw_incarnation(&options.entropy);
        let mut batch = WriteBatch::new();
        meta::put_handle_keys(&mut batch, &keys);
        meta::put_incarnation(&mut batch, incarnation);
        meta::put_lease_clock_mark(&mut batch, clock.lease());
        if let Some(owner) = &admission.adopt {
            owner::put_owner(&mut batch, owner);
        }
        // Synced before the first hand-out: no crash may give two runs one incarnation.
        store.write(batch, Durability::Synced).await?;

        let mut floors = Vec::new();
        for shard in ShardId::all() {
            floors.push(meta::due_floor(store.as_ref(), shard).await?);
        }
        let floor = |shard: ShardId| {
            floors
                .get(usize::from(shard.get()))
                .copied()
                .unwrap_or(LeaseTime::ZERO)
        };
        let schedule = DueSchedule::restore(floor);
        let log = StoreLog::open(Arc::clone(&store)).await?;
        let catalog = Catalog::open(
            Arc::clone(&store),
            Arc::clone(&clock),
            options.catalog.clone(),
        )
        .await?;
        let quarantine = QuarantineSequence::resume(store.as_ref()).await?;
        let quarantine = Arc::new(quarantine);
        let retention = Retention::open(store.as_ref()).await?;
        Ok(Arc::new_cyclic(|core| {
            let sink = Arc::new(Redelivery::new(core.clone()));
            let cache = LeaseCache::new(
                Foundation {
                    store: Arc::clone(&store),
                    clock: Arc::clone(&clock),
                    due: schedule.clone(),
                    quarantine: Arc::clone(&quarantine),
                    sink: Arc::clone(&sink),
                    incarnation,
                    previous,
                },
                options.cache.clone(),
            );
            Self {
                consumptions: Consumptions::new(Arc::clone(&store)),
                cache,
                sink,
                store,
                log,
                clock,
                catalog,
                schedule,
                handles: HandleKeyring::new(keys),
                quarantine,
                retention,
                releases: Releases::default(),
                options,
                deleted: Notify::new(),
                closing: CancellationToken::new(),
                tasks: TaskTracker::new(),
                epoch: admission.epoch,
            }
        }))
    }

    /// A number that nobody can foretell.
    pub(crate) fn draw(&self) -> u128 {
        let mut bytes = [0; 16];
        (self.options.entropy)(&mut bytes);
        u128::from_be_bytes(bytes)
    }

    /// Starts the work that goes on by itself. `failed` is called once, with the error of
    /// a store that must be opened anew.
    pub(crate) fn start(self: &Arc<Self>, failed: impl FnOnce(pop_store::Error) + Send + 'static) {
        let reviver = Reviver::new(
            Arc::clone(&self.store),
            Arc::clone(&self.sink),
            Arc::clone(&self.clock),
            self.schedule.clone(),
            Arc::clone(&self.quarantine),
            self.options.reviver.clone(),
        );
        let closing = self.closing.clone();
        let reviving = self
            .tasks
            .spawn(async move { reviver.run(closing.cancelled_owned()).await });
        let cache = self.cache.clone();
        let closing = self.closing.clone();
        let caching = self
            .tasks
            .spawn(async move { cache.run(closing.cancelled_owned()).await });
        let marker = Arc::clone(self);
        let marking = self.tasks.spawn(async move { marker.mark_clock().await });
        let sweeper = Arc::clone(self);
        let sweeping = self
            .tasks
            .spawn(async move { sweeper.sweep_deleted().await });
        let retainer = Arc::clone(self);
        let retaining = self
            .tasks
            .spawn(async move { retainer.retain_by_age().await });
        let core = Arc::downgrade(self);
        // Not one of the tasks that a close waits for: a failure closes.
        tokio::spawn(async move {
            let ended = tokio::select! {
                ended = caching => ended,
                ended = reviving => ended,
                ended = marking => ended,
                ended = sweeping => ended,
                ended = retaining => ended,
            };
            match ended {
                Ok(Ok(())) => {}
                Ok(Err(error)) => failed(error),
                Err(_) => {
                    if let Some(core) = core.upgrade() {
                        failed(core.doubt("work that goes on by itself panicked"));
                    }
                }
            }
        });
    }

    /// What is known after an operation of ours panicked: a fault of ours, and nobody can
    /// say how far its writes came. Opening the store anew tells.
    pub(crate) fn panicked(&self) -> BrokerError {
        self.doubt("the operation panicked inside the broker")
            .into()
    }

    fn doubt(&self, what: &'static str) -> pop_store::Error {
        tracing::error!("{what}");
        pop_store::Error::new(ErrorKind::InDoubt, self.store.name(), "operation").with_detail(what)
    }

    /// Stores the high-water mark of lease time once a second, so that a wall clock that
    /// was set back does not take lease time back over a restart.
    async fn mark_clock(&self) -> pop_store::Result<()> {
        loop {
            tokio::select! {
                () = self.closing.cancelled() => return Ok(()),
                () = tokio::time::sleep(Duration::from_secs(1)) => {}
            }
            let mut batch = WriteBatch::new();
            meta::put_lease_clock_mark(&mut batch, self.clock.lease());
            match self.store.write(batch, Durability::Buffered).await {
                Ok(()) => {}
                Err(error) if matches!(error.kind(), ErrorKind::Poisoned | ErrorKind::InDoubt) => {
                    return Err(error);
                }
                Err(error) => tracing::warn!(%error, "the mark of lease time could not be stored"),
            }
        }
    }

    /// Ends everything: waiters are answered, work comes to its end, and the store is
    /// closed with all of it durable.
    pub(crate) async fn close(&self) -> Result<(), BrokerError> {
        self.closing.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        // What is out is stored: a restart delivers nothing again that is still out.
        self.cache.close().await?;
        let mut batch = WriteBatch::new();
        meta::put_lease_clock_mark(&mut batch, self.clock.lease());
        self.store.write(batch, Durability::Synced).await?;
        self.store.close().await?;
        Ok(())
    }

    /// Lets go of a store that failed. Nothing is written any more.
    pub(crate) async fn abandon(&self) {
        self.closing.cancel();
        self.tasks.close();
        if tokio::time::timeout(self.options.store_time_max, self.tasks.wait())
            .await
            .is_err()
        {
            tracing::error!("some work on the failed store did not end; it is left behind");
        }
        if let Err(error) = self.store.close().await {
            tracing::debug!(%error, "closing the failed store failed, too");
        }
    }
}

fn draw_keys(entropy: &Entropy) -> HandleKeys {
    let mut secret = [0; 16];
    entropy(&mut secret);
    HandleKeys {
        current: HandleKey { id: 1, secret },
        previous: None,
    }
}

fn draw_incarnation(entropy: &Entropy) -> Incarnation {
    let mut bytes = [0; 8];
    entropy(&mut bytes);
    Incarnation::new(u64::from_be_bytes(bytes))
}
