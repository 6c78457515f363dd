//! Keeping a snapshot as long as it is wanted: while a holder is there, while somebody
//! fetches it, and a while after that, but never beyond a bound.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use kv_restore::{Offer, SnapshotRef};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep, sleep_until},
};

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
    // Holders on connections of their own, who came back for it.
    holders: AtomicUsize,
    done: Notify,
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
    /// It was kept as long as it may be.
    TooOld,
}

impl Kept {
    pub(super) fn new(at: SnapshotRef) -> Self {
        Self {
            at,
            holders: AtomicUsize::new(0),
            done: Notify::new(),
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
pub(super) async fn hold(mut stream: Stream, offer: Offer, kept: &Kept, until: Instant) -> Ended {
    let wanted = async {
        match listen(&mut stream).await {
            true => Ended::Done,
            false => linger(&offer, kept).await,
        }
    };
    let ended = tokio::select! {
        ended = wanted => ended,
        () = kept.done.notified() => Ended::Done,
        () = sleep_until(until) => Ended::TooOld,
    };
    match ended {
        // Who still fetches it is told, and its pin ends with that.
        Ended::TooOld => offer.withdraw(),
        Ended::Done | Ended::Left => drop(offer),
    }
    ended
}

/// A holder that came back on another connection.
pub(super) async fn visit(stream: &mut Stream, kept: &Kept) {
    if listen(stream).await {
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

async fn linger(offer: &Offer, kept: &Kept) -> Ended {
    let mut wanted = Instant::now();
    while wanted.elapsed() <= GRACE {
        if offer.fetching() > 0 || kept.holders.load(Ordering::SeqCst) > 0 {
            wanted = Instant::now();
        }
        sleep(LOOK_EVERY).await;
    }
    Ended::Left
}
