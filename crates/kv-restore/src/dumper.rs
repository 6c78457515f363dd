//! The sending side of a process: the snapshots that it offers, and those who fetch them.

mod stats;

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use parking_lot::Mutex;
use pop_store::{Keyspace, Snapshot, Store};
use tokio::{sync::watch, time::Instant};
use tracing::Instrument;

pub use stats::DumpStats;
pub(crate) use stats::Watched;

use crate::{
    AbortCode, Admission, Digest, Failure, Limiter, Options, PeerId, SessionId, SnapshotId,
    SnapshotRef,
    driver::{
        Signals,
        send::{Ports, Session},
    },
    frame::{Body, Frame},
    machine::{Sender, Stop, sender::Request},
    registry::ask_to_stop,
    source::Cursor,
    transport::Channel,
};

/// Serves snapshots. Clones share everything.
#[derive(Clone, Debug)]
pub struct Dumper(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    options: Options,
    admission: Admission,
    limiter: Limiter,
    epoch: Instant,
    shutdown: watch::Sender<bool>,
    state: Mutex<State>,
    counts: Arc<stats::Counts>,
}

#[derive(Debug, Default)]
struct State {
    offers: HashMap<SnapshotId, Pinned>,
    running: HashMap<SessionId, Running>,
    closed: bool,
}

#[derive(Clone, Debug)]
struct Pinned {
    at: SnapshotRef,
    snapshot: Arc<dyn Snapshot>,
    keyspaces: Arc<[Keyspace]>,
}

#[derive(Debug)]
struct Running {
    peer: PeerId,
    attempt: u32,
    snapshot: SnapshotId,
    stop: watch::Sender<Option<Stop>>,
    watched: Watched,
}

/// A snapshot on offer. Dropping it ends the offer; who fetches it already keeps it pinned
/// until done.
#[derive(Debug)]
pub struct Offer {
    dumper: Dumper,
    id: SnapshotId,
}

impl Offer {
    /// How many sessions fetch it now, or have fetched it and did not say the outcome yet.
    #[must_use]
    pub fn fetching(&self) -> usize {
        let state = self.dumper.0.state.lock();
        let fetching = state.running.values().filter(|it| it.snapshot == self.id);
        fetching.count()
    }

    /// Ends the offer also for those who are fetching it: they are told that it is gone.
    pub fn withdraw(self) {
        let state = self.dumper.0.state.lock();
        let mut fetching = state.running.values();
        fetching
            .by_ref()
            .filter(|it| it.snapshot == self.id)
            .for_each(|it| ask_to_stop(&it.stop, Stop::Withdrawn));
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        // Not under the lock: the last of a snapshot is the store's.
        let ended = self.dumper.0.state.lock().offers.remove(&self.id);
        drop(ended);
    }
}

/// How a channel ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Served {
    /// The receiver has all rows and installed them.
    Installed {
        /// What it installed.
        snapshot: SnapshotId,
        /// What its rows add up to.
        totals: Digest,
    },
    /// It ended before that.
    Failed(Failure),
    /// The question was refused.
    Refused(AbortCode),
    /// Nothing was asked in time, or nothing that could be read.
    Nothing,
}

impl Served {
    /// One word for it, for counts and logs: that of the [kind](crate::ErrorKind::name) of
    /// what failed, `installed`, `refused` or `nothing`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Installed { .. } => "installed",
            Self::Failed(failure) => failure.kind.name(),
            Self::Refused(_) => "refused",
            Self::Nothing => "nothing",
        }
    }
}

impl Dumper {
    /// Serves with these bounds.
    #[must_use]
    pub fn new(options: Options, admission: Admission, limiter: Limiter) -> Self {
        Self(Arc::new(Inner {
            options,
            admission,
            limiter,
            epoch: Instant::now(),
            shutdown: watch::Sender::new(false),
            state: Mutex::default(),
            counts: Arc::default(),
        }))
    }

    /// Offers a snapshot of `store` under the names that `at` gives to it and its keyspaces.
    ///
    /// # Errors
    ///
    /// What is wrong with `at`: the store does not have its keyspaces, or its id is taken.
    pub fn offer(
        &self,
        at: SnapshotRef,
        store: &dyn Store,
        snapshot: Arc<dyn Snapshot>,
    ) -> Result<Offer, Failure> {
        let protocol = |detail: String| Failure::new(crate::ErrorKind::Protocol, detail);
        if let Some(flaw) = at.flaw() {
            return Err(protocol(flaw.to_owned()));
        }
        let known = |name: &String| {
            let mut all = store.keyspaces().iter().copied();
            let found = all.find(|it| it.name() == name);
            found.ok_or_else(|| protocol(format!("the source has no keyspace {name}")))
        };
        let keyspaces = at.keyspaces.iter().map(known);
        let keyspaces = keyspaces.collect::<Result<_, _>>()?;
        let id = at.id;
        let pinned = Pinned {
            at,
            snapshot,
            keyspaces,
        };
        match self.0.state.lock().offers.entry(id) {
            Entry::Vacant(entry) => entry.insert(pinned),
            Entry::Occupied(_) => return Err(protocol(format!("{id} is on offer already"))),
        };
        let dumper = self.clone();
        Ok(Offer { dumper, id })
    }

    /// How many sessions fetch something now.
    #[must_use]
    pub fn running(&self) -> usize {
        self.0.state.lock().running.len()
    }

    /// Ends all sessions and serves no more.
    pub fn close(&self) {
        let mut state = self.0.state.lock();
        state.closed = true;
        let offers = std::mem::take(&mut state.offers);
        drop(state);
        self.0.shutdown.send_replace(true);
        drop(offers);
    }

    /// Serves one channel until its session is over, and says how that was.
    ///
    /// It keeps a thread for about a millisecond a chunk. Where others wait for answers in the
    /// same process, spawn it on a runtime of its own, with [`pop_store::run_in_background`] on
    /// its threads.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the session; the other side sees the channel close.
    pub async fn serve(&self, peer: &PeerId, channel: Channel) -> Served {
        let mut ending = self.0.counts.ending();
        let served = self.serve_to_its_end(peer, channel).await;
        ending.how = served.name();
        served
    }

    async fn serve_to_its_end(&self, peer: &PeerId, mut channel: Channel) -> Served {
        let first = channel.rx.recv();
        let first = tokio::time::timeout(self.0.options.first_frame_within, first).await;
        let Ok(Ok(Some(frame))) = first else {
            tracing::debug!(%peer, "a channel was opened and nothing was asked for");
            return Served::Nothing;
        };
        let stream = frame.stream;
        match self.begin(peer, frame) {
            Ok((request, pinned, stop, watched)) => {
                let _running = Guard {
                    dumper: self.clone(),
                    request: request.clone(),
                };
                let ports = Ports {
                    pinned: pinned.map(|it| Cursor::new(it.snapshot, it.keyspaces)),
                    admission: self.0.admission.clone(),
                    limiter: self.0.limiter.clone(),
                    epoch: self.0.epoch,
                    watched,
                };
                let span = tracing::info_span!(
                    "dump", session = %stream.session, %peer, space = request.at.space
                );
                let snapshot = request.at.id;
                let core = Sender::new(request, self.0.options.clone());
                let signals = Signals::new(stop, self.0.shutdown.subscribe());
                let session = Session::new(core, channel, ports, signals);
                match session.run().instrument(span).await {
                    Ok(totals) => Served::Installed { snapshot, totals },
                    Err(failure) => Served::Failed(failure),
                }
            }
            Err((code, text)) => {
                let body = Body::Abort {
                    code,
                    text: text.to_owned(),
                };
                let told = channel.tx.send(Frame { stream, body });
                // Whether it hears that or not, it gets nothing.
                let _ = tokio::time::timeout(self.0.options.first_frame_within, told).await;
                Served::Refused(code)
            }
        }
    }

    #[expect(clippy::type_complexity, reason = "what a session begins with, once")]
    fn begin(
        &self,
        peer: &PeerId,
        frame: Frame,
    ) -> Result<
        (
            Request,
            Option<Pinned>,
            watch::Receiver<Option<Stop>>,
            Watched,
        ),
        (AbortCode, &'static str),
    > {
        let request =
            Request::of(frame).ok_or((AbortCode::UnknownSession, "there is no such session"))?;
        let mut state = self.0.state.lock();
        if state.closed {
            return Err((AbortCode::Closing, "the source shuts down"));
        }
        let pinned = state.offers.get(&request.at.id).cloned();
        let same = pinned.as_ref().is_none_or(|it| {
            it.at.space == request.at.space && it.at.keyspaces == request.at.keyspaces
        });
        if !same {
            return Err((AbortCode::Protocol, "that snapshot is of something else"));
        }
        let (stop, stopped) = watch::channel(None);
        let watched = Watched::new(&self.0.counts);
        let running = Running {
            peer: peer.clone(),
            attempt: request.stream.attempt,
            snapshot: request.at.id,
            stop,
            watched: watched.clone(),
        };
        match state.running.entry(request.stream.session) {
            Entry::Vacant(entry) => {
                entry.insert(running);
            }
            Entry::Occupied(mut entry) => {
                let other = entry.get();
                if other.peer != running.peer || other.snapshot != running.snapshot {
                    return Err((AbortCode::Protocol, "that session is somebody else's"));
                }
                if other.attempt >= running.attempt {
                    return Err((AbortCode::Protocol, "that session is being served"));
                }
                ask_to_stop(&other.stop, Stop::Superseded);
                entry.insert(running);
            }
        }
        self.0.counts.begun();
        Ok((request, pinned, stopped, watched))
    }
}

/// Takes a session off the list, however it ends.
struct Guard {
    dumper: Dumper,
    request: Request,
}

impl Drop for Guard {
    fn drop(&mut self) {
        let stream = self.request.stream;
        let mut state = self.dumper.0.state.lock();
        let running = state.running.get(&stream.session);
        if running.is_some_and(|it| it.attempt == stream.attempt) {
            state.running.remove(&stream.session);
        }
    }
}
