//! The tasks that do what the machines say. Each session has one, which owns everything of
//! it: machine, channel, staging or snapshot, permits, and the duty to end it.

mod link;
pub(crate) mod receive;
pub(crate) mod send;

use std::{
    future::{pending, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::Poll,
    time::Duration,
};

use tokio::{
    sync::watch,
    time::{Instant, timeout},
};

use crate::machine::{Now, Stop};

// A switch that failed is not told later than this for it.
const SWEPT_WITHIN: Duration = Duration::from_secs(5);

/// Work that is under way. What it needs it owns and gives back with its result, so that
/// waiting for several things at once loses nothing.
pub(crate) type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Does something with what is a store's or a transport's that can't fail. If it panics, that
/// changes no outcome and keeps nothing else from being given back.
pub(crate) fn shielded(what: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(what)).is_err() {
        tracing::error!("the store or the transport panicked as something was given back to it");
    }
}

/// Drops what is a store's or a transport's, or has something of one.
pub(crate) fn let_go<T>(theirs: T) {
    shielded(|| drop(theirs));
}

/// Waits for a call of a store that only cleans up, as long as that is worth it.
pub(crate) async fn swept<T>(call: impl Future<Output = T>) {
    let mut call = Box::pin(call);
    let polled = poll_fn(|cx| {
        let poll = catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(cx).map(let_go)));
        poll.unwrap_or(Poll::Ready(()))
    });
    if timeout(SWEPT_WITHIN, polled).await.is_err() {
        tracing::warn!("what a full disk left could not be swept in time");
    }
    let_go(call);
}

/// Waits for work, if there is any, and clears it.
async fn done<T>(work: &mut Option<Work<T>>) -> T {
    let Some(running) = work else {
        return pending().await;
    };
    let result = running.as_mut().await;
    *work = None;
    result
}

/// Who may want a session to end: those who wait for it, and whoever owns the place.
pub(crate) struct Signals {
    stop: watch::Receiver<Option<Stop>>,
    shutdown: watch::Receiver<bool>,
    stopped: bool,
    shut: bool,
}

impl Signals {
    pub(crate) fn new(
        stop: watch::Receiver<Option<Stop>>,
        shutdown: watch::Receiver<bool>,
    ) -> Self {
        Self {
            stop,
            shutdown,
            stopped: false,
            shut: false,
        }
    }

    /// Waits for the next who wants it; each of them is heard once.
    ///
    /// Dropping the future loses nothing.
    async fn next(&mut self) -> Stop {
        let asked = async {
            let asked = self.stop.wait_for(Option::is_some).await.map(|it| *it);
            match asked {
                Ok(stop) => stop.unwrap_or(Stop::Cancelled),
                // Nobody is left who could ask.
                Err(_) => pending().await,
            }
        };
        // A place that is gone is closed.
        let shutdown = async { self.shutdown.wait_for(|shut| *shut).await.is_err() };
        tokio::select! {
            biased;
            _ = shutdown, if !self.shut => {
                self.shut = true;
                Stop::Closed
            }
            stop = asked, if !self.stopped => {
                self.stopped = true;
                stop
            }
            else => pending().await,
        }
    }
}

/// Waits for a deadline of a machine.
async fn until(epoch: Instant, deadline: Option<Now>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(epoch + deadline).await,
        None => pending().await,
    }
}
