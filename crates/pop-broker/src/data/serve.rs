//! What the data port answers, once it is known who asks.

use std::{collections::HashMap, net::SocketAddr, ops::Deref, sync::Arc, time::Duration};

use kv_restore::{
    Admission, Dumper, Epoch, Limiter, Offer, Options, PeerId, Served, SnapshotId, SnapshotRef,
    transport::framed,
};
use parking_lot::Mutex;
use pop_store::Store;
use tokio::time::Instant;
use tracing::Instrument;

use super::{
    Access, ByteRate, DataStats, Stream,
    hello::{self, Ask, Hello, Reference, Reply, Why},
    hold::{self, Kept},
    limits::{HELLO_BYTES_MAX, HELLO_TIME_MAX, REPLY_TIME_MAX},
    pins::{Pins, Slot},
    stats::{Counted, Counters, count},
};
use crate::{
    Broker, BrokerError,
    space::{SpaceMeta, snapshot_ref},
};

/// Sessions that send at once; more wait their turn.
const SENDING_MAX: usize = 4;

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
    counters: Arc<Counters>,
}

/// What a peer is told instead of what it asked for.
pub(super) struct Refusal(pub(super) Why, pub(super) String);

impl DataService {
    /// Serves the data of `broker` to whom `access` lets in.
    #[must_use]
    pub fn new(broker: Broker, access: Access, options: DataOptions) -> Self {
        let limiter = Limiter::new(options.rate.bytes_per_second());
        let admission = Admission::new(SENDING_MAX);
        Self(Arc::new(Inner {
            broker,
            access,
            rate: Mutex::new(options.rate),
            dumper: Dumper::new(Options::default(), admission, limiter.clone()),
            limiter,
            pins: Pins::new(options.snapshots_max),
            kept: Mutex::default(),
            counters: Arc::default(),
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
        DataStats {
            running: number(self.0.dumper.running()),
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

    pub(super) async fn refuse_version(&self, mut stream: Stream, version: u32) {
        let spoken = hello::VERSION;
        let text = format!(
            "version {version} of the data port is not spoken here, only {spoken}: \
             use programs of the same version on both sides"
        );
        refuse(&mut stream, Refusal(Why::Version, text)).await;
    }

    /// Answers a connection whose first bytes were right, to its end.
    pub(super) async fn answer(&self, mut stream: Stream, peer: SocketAddr) {
        let said = hello::read::<Hello>(&mut stream, HELLO_BYTES_MAX);
        let hello = match hello::within(HELLO_TIME_MAX, said).await {
            Ok(hello) => hello,
            Err(error) => {
                count(&self.0.counters.refused);
                tracing::debug!(%peer, %error, "a peer of the data port did not say what it wants");
                return;
            }
        };
        let refusal = match self.lets_in(&hello) {
            false => Refusal(
                Why::Token,
                "the token is missing or wrong: give the one of its --data-token-file".into(),
            ),
            true => match self.act(hello.ask, stream, peer).await {
                Ok(()) => return,
                Err((back, refusal)) => {
                    stream = back;
                    refusal
                }
            },
        };
        count(&self.0.counters.refused);
        tracing::warn!(%peer, why = ?refusal.0, "the data port refused: {}", refusal.1);
        refuse(&mut stream, refusal).await;
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
        let peer = PeerId::new(peer.ip().to_string());
        let Served::Installed { snapshot, totals } = self.0.dumper.serve(&peer, channel).await
        else {
            return count(&self.0.counters.failed);
        };
        count(&self.0.counters.installed);
        if let Some(kept) = self.0.kept.lock().get(&snapshot) {
            kept.installed(hello::totals(&totals));
        }
    }

    /// Takes a snapshot and keeps it for the peer, or gives it the one that it had.
    async fn snapshot(
        &self,
        mut stream: Stream,
        wanted: Option<SnapshotId>,
    ) -> Result<(), (Stream, Refusal)> {
        let found = wanted.and_then(|id| self.0.kept.lock().get(&id).cloned());
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
            let ended = hold::hold(stream, offer, &kept, self.until()).await;
            tracing::info!(snapshot = %kept.at.id, ?ended, "a snapshot is not kept any more");
        }
        Ok(())
    }

    /// Until when what is taken now may be kept.
    pub(super) fn until(&self) -> Instant {
        Instant::now() + self.0.options.snapshot_age_max
    }

    async fn take(&self) -> Result<(Offer, Listed), Refusal> {
        let slot = self.slot()?;
        let core = self.0.broker.core().map_err(failed)?;
        let meta = SpaceMeta::copy(core.store.name(), core.clock.wall().as_unix_millis());
        let at = name(core.draw(), Epoch(core.epoch), &meta);
        self.offer(at, &core.store, slot).await
    }

    /// Room for a snapshot.
    pub(super) fn slot(&self) -> Result<Slot, Refusal> {
        let max = self.0.options.snapshots_max;
        self.0.pins.take().ok_or_else(|| {
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
        let kept = Arc::new(Kept::new(at));
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

async fn refuse(stream: &mut Stream, Refusal(why, text): Refusal) {
    reply(stream, &Reply::Refused { why, text }).await;
    // What the peer had still to say would reset the connection before it has read that.
    let _ = hello::within(REPLY_TIME_MAX, tokio::io::AsyncWriteExt::shutdown(stream)).await;
}
