//! What the data port answers, once it is known who asks.

use std::{collections::HashMap, net::SocketAddr, ops::Deref, sync::Arc, time::Duration};

use kv_restore::{
    Admission, Dumper, Epoch, Limiter, Offer, Options, PeerId, Served, SnapshotId, SnapshotRef,
    transport::framed,
};
use parking_lot::Mutex;
use pop_store::Store;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy, sink},
    sync::Semaphore,
};
use tracing::Instrument;

use super::{
    Access, ByteRate, DataStats, Stream,
    hello::{self, Ask, Hello, Reference, Reply, Why},
    hold::{self, Kept},
    limits::{
        CONNECTIONS_MAX, GIVE_WAY_LOOK_EVERY, GIVE_WAY_TIME_MAX, REFUSED_BYTES_MAX, REPLY_TIME_MAX,
    },
    pins::{Pins, Slot},
    stats::{Counted, Counters, Turned, count},
};
use crate::{
    Broker, BrokerError,
    seldom::Seldom,
    space::{SpaceMeta, snapshot_ref},
};

/// Sessions that send at once; more wait their turn.
const SENDING_MAX: usize = 4;

/// What is read, packed and sent in one go. Clients wait for it now and then: with chunks of
/// 512 KiB their slowest percent takes twice as long, and the default rate is reached with
/// these, too.
const CHUNK_BYTES: u32 = 128 << 10;

/// What the port may cost the broker.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct DataOptions {
    /// What all sessions together send.
    pub rate: ByteRate,
    /// Snapshots that are kept at once.
    pub snapshots_max: usize,
    /// How long one may be kept.
    pub snapshot_age_max: Duration,
}

impl Default for DataOptions {
    fn default() -> Self {
        Self {
            rate: ByteRate(Some(64 << 20)),
            snapshots_max: 2,
            snapshot_age_max: Duration::from_secs(6 * 60 * 60),
        }
    }
}

/// What the data port serves. Clones share everything.
#[derive(Clone, Debug)]
pub struct DataService(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    broker: Broker,
    access: Access,
    options: DataOptions,
    rate: Mutex<ByteRate>,
    limiter: Limiter,
    dumper: Dumper,
    pins: Pins,
    kept: Mutex<HashMap<SnapshotId, Arc<Kept>>>,
    room: Arc<Semaphore>,
    counters: Arc<Counters>,
    said: Seldom<Turned>,
    unaccepted: Seldom<()>,
}

/// What a peer is told instead of what it asked for.
pub(super) struct Refusal(pub(super) Why, pub(super) String);

impl DataService {
    /// Serves the data of `broker` to whom `access` lets in.
    #[must_use]
    pub fn new(broker: Broker, access: Access, options: DataOptions) -> Self {
        let limiter = Limiter::new(options.rate.bytes_per_second());
        let admission = Admission::new(SENDING_MAX);
        let sending = Options::default().with_chunk_bytes(CHUNK_BYTES);
        Self(Arc::new(Inner {
            broker,
            access,
            rate: Mutex::new(options.rate),
            dumper: Dumper::new(sending, admission, limiter.clone()),
            limiter,
            pins: Pins::new(options.snapshots_max),
            kept: Mutex::default(),
            room: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
            counters: Arc::default(),
            said: Seldom::new(),
            unaccepted: Seldom::new(),
            options,
        }))
    }

    /// What all sessions together may send.
    #[must_use]
    pub fn rate(&self) -> ByteRate {
        *self.0.rate.lock()
    }

    /// Changes that at once, also for those that run.
    pub fn set_rate(&self, rate: ByteRate) {
        *self.0.rate.lock() = rate;
        self.0.limiter.set(rate.bytes_per_second());
        tracing::info!(%rate, "the data port sends at another rate");
    }

    /// What happened so far, and what goes on.
    #[must_use]
    pub fn stats(&self) -> DataStats {
        let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let sessions = self.0.dumper.stats();
        let ended: u64 = sessions.ended.values().sum();
        let installed = sessions.ended.get("installed").copied().unwrap_or_default();
        DataStats {
            open: number(CONNECTIONS_MAX - self.0.room.available_permits()),
            begun: sessions.begun,
            running: sessions.running,
            installed,
            failed: ended - installed,
            ended: sessions.ended,
            rows: sessions.rows,
            still: sessions.still,
            pins: number(self.0.pins.count()),
            oldest_pin: self.0.pins.oldest(),
            ..self.0.counters.read()
        }
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.0.counters
    }

    pub(super) fn broker(&self) -> &Broker {
        &self.0.broker
    }

    /// Ends all sessions.
    pub(super) fn close(&self) {
        self.0.dumper.close();
    }

    /// Room for connections.
    pub(super) fn room(&self) -> Arc<Semaphore> {
        Arc::clone(&self.0.room)
    }

    /// Counts somebody who gets nothing, and says now and then who and why.
    pub(super) fn turned_away(&self, peer: SocketAddr, why: Turned, text: &str) {
        count(&self.0.counters.refused);
        self.0.counters.turned_away.add(why.name());
        if let Some(others) = self.0.said.may_say(why) {
            let why = why.name();
            tracing::warn!(%peer, why, others, "the data port turned a peer away: {text}");
        }
    }

    pub(super) fn not_accepted(&self, error: &std::io::Error) {
        if let Some(others) = self.0.unaccepted.may_say(()) {
            tracing::warn!(%error, others, "a data connection could not be accepted");
        }
    }

    pub(super) async fn refuse_version(&self, stream: Stream, peer: SocketAddr, version: u32) {
        let spoken = hello::VERSION;
        let text = format!(
            "version {version} of the data port is not spoken here, only {spoken}: \
             use programs of the same version on both sides"
        );
        self.refuse(stream, peer, Refusal(Why::Version, text)).await;
    }

    async fn refuse(&self, stream: Stream, peer: SocketAddr, refusal: Refusal) {
        self.turned_away(peer, Turned::Told(refusal.0), &refusal.1);
        refuse(stream, refusal).await;
    }

    /// Answers a connection whose first words were heard, to its end.
    pub(super) async fn answer(&self, stream: Stream, peer: SocketAddr, hello: Hello) {
        if !self.lets_in(&hello) {
            let text = "the token is missing or wrong: give the one of its --data-token-file";
            let refusal = Refusal(Why::Token, text.into());
            return self.refuse(stream, peer, refusal).await;
        }
        if let Err((stream, refusal)) = self.act(hello.ask, stream, peer).await {
            self.refuse(stream, peer, refusal).await;
        }
    }

    fn lets_in(&self, hello: &Hello) -> bool {
        match (&self.0.access.token, &hello.token) {
            (None, _) => true,
            (Some(token), Some(said)) => token.is(said),
            (Some(_), None) => false,
        }
    }

    async fn act(
        &self,
        ask: Ask,
        stream: Stream,
        peer: SocketAddr,
    ) -> Result<(), (Stream, Refusal)> {
        match ask {
            Ask::Fetch => {
                self.fetch(stream, peer).await;
                Ok(())
            }
            Ask::Snapshot { wanted } => {
                let wanted = wanted.as_deref().and_then(hello::snapshot_id);
                let span = tracing::info_span!("snapshot", %peer);
                self.snapshot(stream, wanted).instrument(span).await
            }
            Ask::Handover { to } => {
                let span = tracing::info_span!("handover", %peer);
                self.hand_over(stream, &to).instrument(span).await
            }
            Ask::Receipt { snapshot } => self.tell_receipt(stream, &snapshot).await,
        }
    }

    /// Becomes a channel of `kv-restore`.
    async fn fetch(&self, mut stream: Stream, peer: SocketAddr) {
        if !reply(&mut stream, &Reply::Ready).await {
            return;
        }
        let (read, write) = tokio::io::split(stream);
        let counters = Arc::clone(&self.0.counters);
        let channel = framed(read, Counted { write, counters });
        // Without the port: a session that goes on comes from another one.
        let id = PeerId::new(peer.ip().to_string());
        match self.0.dumper.serve(&id, channel).await {
            Served::Installed { snapshot, totals } => {
                if let Some(kept) = self.0.kept.lock().get(&snapshot) {
                    kept.installed(hello::totals(&totals));
                }
            }
            Served::Refused(code) => {
                let text = format!("its channel was refused: {code}");
                self.turned_away(peer, Turned::NothingAsked, &text);
            }
            Served::Nothing => {
                let text = "its channel asked for nothing in time, or for nothing that is known";
                self.turned_away(peer, Turned::NothingAsked, text);
            }
            // Its session said so.
            _ => {}
        }
    }

    /// Takes a snapshot and keeps it for the peer, or gives it the one that it had.
    async fn snapshot(
        &self,
        mut stream: Stream,
        wanted: Option<SnapshotId>,
    ) -> Result<(), (Stream, Refusal)> {
        let found = wanted.and_then(|id| self.0.kept.lock().get(&id).cloned());
        // A store that was opened anew has nothing of what was taken before.
        let core = self.0.broker.core();
        let found = found.filter(|kept| core.as_ref().is_ok_and(|core| kept.is_of(&core.store)));
        drop(core);
        if let Some(kept) = found {
            let _holder = kept.come();
            if reply(&mut stream, &Reply::Snapshot(Reference::of(&kept.at))).await {
                hold::visit(&mut stream, &kept).await;
            }
            return Ok(());
        }
        let (offer, kept) = match self.take().await {
            Ok(taken) => taken,
            Err(refusal) => return Err((stream, refusal)),
        };
        if reply(&mut stream, &Reply::Snapshot(Reference::of(&kept.at))).await {
            let ended = hold::hold(stream, offer, &kept, self.age_max()).await;
            self.0.counters.snapshots_ended.add(ended.name());
            let ended = ended.name();
            tracing::info!(snapshot = %kept.at.id, ended, "a snapshot is not kept any more");
        } else {
            self.0
                .counters
                .snapshots_ended
                .add(hold::Ended::Left.name());
            tracing::info!(snapshot = %kept.at.id, "nobody took the answer; it is not kept");
        }
        Ok(())
    }

    /// How long a snapshot may be kept.
    pub(super) fn age_max(&self) -> Duration {
        self.0.options.snapshot_age_max
    }

    async fn take(&self) -> Result<(Offer, Listed), Refusal> {
        let slot = self.slot().await?;
        let core = self.0.broker.core().map_err(failed)?;
        let meta = SpaceMeta::copy(core.store.name(), core.clock.wall().as_unix_millis());
        let at = name(core.draw(), Epoch(core.epoch), &meta);
        self.offer(at, &core.store, slot).await
    }

    /// Room for a snapshot. Whoever left may come back for its own, but not at the cost of
    /// somebody who is here.
    pub(super) async fn slot(&self) -> Result<Slot, Refusal> {
        let slot = tokio::time::timeout(GIVE_WAY_TIME_MAX, async {
            loop {
                let freed = tokio::time::timeout(GIVE_WAY_LOOK_EVERY, self.0.pins.wait());
                if let Ok(slot) = freed.await {
                    return slot;
                }
                // One whose holder left, and again and again: that it left may not be noticed
                // yet, nor that nobody fetches it any more.
                let _asked = self.0.kept.lock().values().any(|kept| kept.want_room());
            }
        })
        .await;
        slot.map_err(|_| {
            let max = self.0.options.snapshots_max;
            let text = format!(
                "{max} snapshots are kept already, the most that --data-snapshots-max allows: \
                 try again when one of them is done"
            );
            Refusal(Why::Busy, text)
        })
    }

    /// Takes a snapshot of a store and offers it under this name.
    pub(super) async fn offer(
        &self,
        at: SnapshotRef,
        store: &Arc<dyn Store>,
        slot: Slot,
    ) -> Result<(Offer, Listed), Refusal> {
        let snapshot = store.snapshot().await;
        let snapshot = snapshot.map_err(|error| failed(error.into()))?;
        let offer = self
            .0
            .dumper
            .offer(at.clone(), store.as_ref(), slot.hold(snapshot));
        let offer = offer.map_err(|failure| Refusal(Why::Failed, failure.detail))?;
        count(&self.0.counters.snapshots);
        tracing::info!(snapshot = %at.id, epoch = %at.epoch, "a snapshot was taken");
        let kept = Arc::new(Kept::new(at, store));
        self.0.kept.lock().insert(kept.at.id, Arc::clone(&kept));
        let service = self.clone();
        Ok((offer, Listed { service, kept }))
    }
}

/// A snapshot that peers can come back for, until this is dropped.
pub(super) struct Listed {
    service: DataService,
    kept: Arc<Kept>,
}

impl Deref for Listed {
    type Target = Kept;

    fn deref(&self) -> &Kept {
        &self.kept
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.service.0.kept.lock().remove(&self.kept.at.id);
        self.kept.end();
    }
}

pub(super) fn failed(error: BrokerError) -> Refusal {
    Refusal(Why::Failed, error.to_string())
}

/// How far a snapshot has come is when it was taken: a later one of the same owner is newer.
pub(super) fn name(id: u128, epoch: Epoch, meta: &SpaceMeta) -> SnapshotRef {
    let applied = u64::try_from(meta.taken_at_unix_ms).unwrap_or_default();
    snapshot_ref(SnapshotId(id), epoch, meta).at(epoch, applied)
}

pub(super) async fn reply(stream: &mut Stream, reply: &Reply) -> bool {
    let written = hello::within(REPLY_TIME_MAX, hello::write(stream, reply));
    written.await.is_ok()
}

async fn refuse(mut stream: Stream, Refusal(why, text): Refusal) {
    if !reply(&mut stream, &Reply::Refused { why, text }).await {
        return;
    }
    // What the peer had still to say would reset the connection before it has read that.
    let said = async {
        stream.shutdown().await?;
        copy(&mut stream.take(REFUSED_BYTES_MAX), &mut sink()).await
    };
    let _ = hello::within(REPLY_TIME_MAX, said).await;
}
