//! Keeping a snapshot as long as it is wanted: while a holder is there, while somebody
//! fetches it, and a while after that, but never beyond a bound.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use kv_restore::{Offer, SnapshotRef};
use pop_store::Store;
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use super::{
    Stream,
    hello::{self, Say},
    limits::{GRACE, HELLO_BYTES_MAX, SILENCE_MAX},
};

/// How long the last word of a session may be on its way.
const INSTALLED_WITHIN: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A snapshot that is kept.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) at: SnapshotRef,
    // What it is of: once that is closed, nothing can be read of it any more.
    store: Weak<dyn Store>,
    // Holders on connections of their own, who came back for it.
    holders: AtomicUsize,
    done: Notify,
    // Its holder left; and somebody else needs its room.
    is_left: AtomicBool,
    wanted_room: Notify,
    // It is not kept any more.
    over: CancellationToken,
    // What the rows add up to that a receiver has installed.
    installed: watch::Sender<Option<String>>,
}

/// A holder that came back, until it is dropped.
pub(super) struct Holder<'a>(&'a Kept);

/// Why a snapshot is not kept any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// Its holder has what it wanted.
    Done,
    /// Its holder left, and nobody came back.
    Left,
    /// The same, and another one was wanted in its place.
    GaveWay,
    /// It was kept as long as it may be.
    TooOld,
}

impl Ended {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Left => "left",
            Self::GaveWay => "gave-way",
            Self::TooOld => "too-old",
        }
    }
}

impl Kept {
    pub(super) fn new(at: SnapshotRef, store: &Arc<dyn Store>) -> Self {
        Self {
            at,
            store: Arc::downgrade(store),
            holders: AtomicUsize::new(0),
            done: Notify::new(),
            is_left: AtomicBool::new(false),
            wanted_room: Notify::new(),
            over: CancellationToken::new(),
            installed: watch::Sender::new(None),
        }
    }

    /// A receiver has installed it.
    pub(super) fn installed(&self, totals: String) {
        self.installed.send_replace(Some(totals));
    }

    /// Whether a receiver has installed these rows; what it says here may be heard before
    /// what it says there.
    pub(super) async fn is_installed(&self, totals: &str) -> bool {
        let mut installed = self.installed.subscribe();
        let known = installed.wait_for(Option::is_some);
        match tokio::time::timeout(INSTALLED_WITHIN, known).await {
            Ok(Ok(known)) => known.as_deref() == Some(totals),
            _ => false,
        }
    }

    /// Whether it is a snapshot of this very store, as it was opened.
    pub(super) fn is_of(&self, store: &Arc<dyn Store>) -> bool {
        let own = self.store.upgrade();
        own.is_some_and(|own| Arc::ptr_eq(&own, store))
    }

    /// Asks for its room, if its holder left. Whether it is given up it decides itself.
    pub(super) fn want_room(&self) -> bool {
        let is_left = self.is_left.load(Ordering::SeqCst);
        if is_left {
            self.wanted_room.notify_one();
        }
        is_left
    }

    /// Whoever came back for it has nothing to wait for any more.
    pub(super) fn end(&self) {
        self.over.cancel();
    }

    pub(super) fn come(&self) -> Holder<'_> {
        self.holders.fetch_add(1, Ordering::SeqCst);
        Holder(self)
    }
}

impl Drop for Holder<'_> {
    fn drop(&mut self) {
        self.0.holders.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Keeps an offer until it is not wanted any more.
pub(super) async fn hold(
    mut stream: Stream,
    offer: Offer,
    kept: &Kept,
    age_max: Duration,
) -> Ended {
    let offered = &offer;
    let wanted = async move {
        if listen(&mut stream).await {
            return Ended::Done;
        }
        // It has nothing more to say.
        drop(stream);
        linger(offered, kept).await
    };
    let ended = tokio::select! {
        ended = wanted => ended,
        () = kept.done.notified() => Ended::Done,
        () = sleep(age_max) => Ended::TooOld,
    };
    match ended {
        // Who still fetches it is told, and its pin ends with that.
        Ended::TooOld => offer.withdraw(),
        Ended::Done | Ended::Left | Ended::GaveWay => drop(offer),
    }
    ended
}

/// A holder that came back on another connection.
pub(super) async fn visit(stream: &mut Stream, kept: &Kept) {
    let done = tokio::select! {
        done = listen(stream) => done,
        () = kept.over.cancelled() => false,
    };
    if done {
        kept.done.notify_one();
    }
}

/// Hears whether the holder is there; true once it is done.
async fn listen(stream: &mut Stream) -> bool {
    loop {
        let said = hello::within(SILENCE_MAX, hello::read(stream, HELLO_BYTES_MAX)).await;
        match said {
            Ok(Say::Alive) => {}
            Ok(Say::Done) => return true,
            // Nothing is to be retired here: it is not a handover.
            Ok(Say::Retire { .. }) | Err(_) => return false,
        }
    }
}

/// Waits until nobody has fetched it for as long as a peer may be gone, and nobody has
/// installed it: whoever only says that it lives does not come to have it.
pub(super) async fn stands_still(offer: &Offer, kept: &Kept) {
    let mut moved = Instant::now();
    while moved.elapsed() <= GRACE {
        if offer.fetching() > 0 || kept.installed.borrow().is_some() {
            moved = Instant::now();
        }
        sleep(LOOK_EVERY).await;
    }
}

async fn linger(offer: &Offer, kept: &Kept) -> Ended {
    let is_used = || offer.fetching() > 0 || kept.holders.load(Ordering::SeqCst) > 0;
    kept.is_left.store(true, Ordering::SeqCst);
    let mut wanted = Instant::now();
    while wanted.elapsed() <= GRACE {
        if is_used() {
            wanted = Instant::now();
        }
        tokio::select! {
            () = sleep(LOOK_EVERY) => {}
            () = kept.wanted_room.notified() => {
                if !is_used() {
                    return Ended::GaveWay;
                }
            }
        }
    }
    Ended::Left
}
