//! The task of a receiving session.

use std::{future::pending, ops::ControlFlow, sync::Arc, time::Duration};

use tokio::{sync::watch, time::Instant};

use super::{
    Signals, Work, done, let_go,
    link::{Heard, Link},
    until,
};
use crate::{
    ErrorKind, Failure, Limiter, Mutant, Phase, Progress, Seal, Target,
    machine::{
        Receiver, Stop,
        receiver::{Action, Event, Installed, Opening},
    },
    registry::Completer,
    target::{Keep, Load, Room},
    transport::{Channel, Transport, TransportError},
};

// How long what was said last may take to get out.
const FLUSH_WITHIN: Duration = Duration::from_secs(5);

/// What a session works with.
pub(crate) struct Ports {
    pub(crate) target: Target,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) limiter: Limiter,
    pub(crate) epoch: Instant,
}

/// What our own side answered.
enum Answer {
    Opened(Result<Room, Failure>),
    Charged,
    Loaded(Load, Result<(), Failure>),
    Committed(Result<(), Failure>),
}

type Connected = (u32, Result<Channel, TransportError>);

/// A session and all that it owns. However it ends, the staging is given back before the
/// permits, and everything before anybody is told.
pub(crate) struct Session<P> {
    work: Option<Work<Answer>>,
    committing: bool,
    // Whether what was loaded is worth going on with; shared with the load.
    keep: Keep,
    load: Option<Load>,
    connecting: Option<Work<Connected>>,
    link: Option<Link>,
    permits: Option<P>,
    core: Receiver,
    ports: Ports,
    signals: Signals,
    commit: Option<watch::Receiver<bool>>,
    completer: Option<Completer>,
}

impl<P> Session<P> {
    pub(crate) fn new(
        core: Receiver,
        ports: Ports,
        permits: P,
        signals: Signals,
        commit: watch::Receiver<bool>,
        completer: Completer,
    ) -> Self {
        Self {
            work: None,
            committing: false,
            keep: Keep::default(),
            load: None,
            connecting: None,
            link: None,
            permits: Some(permits),
            core,
            ports,
            signals,
            commit: Some(commit),
            completer: Some(completer),
        }
    }

    pub(crate) async fn run(mut self) {
        let mut event = Event::Start;
        loop {
            let actions = self.core.handle(self.ports.epoch.elapsed(), event);
            self.report();
            for action in actions {
                if self.act(action).is_break() {
                    return self.flush().await;
                }
            }
            event = self.next().await;
        }
    }

    async fn next(&mut self) -> Event {
        loop {
            let deadline = until(self.ports.epoch, self.core.deadline());
            let heard = async {
                match &mut self.link {
                    Some(link) => link.next().await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                stop = self.signals.next() => return Event::Stop(stop),
                () = asked(&mut self.commit) => return Event::Commit,
                answer = done(&mut self.work) => return self.answered(answer),
                () = deadline => return Event::Tick,
                (attempt, channel) = done(&mut self.connecting) => {
                    let connected = channel.map(|channel| self.link = Some(Link::new(channel)));
                    return Event::Connected(attempt, connected.map_err(Failure::from));
                }
                heard = heard => match heard {
                    Heard::Frame(frame) => return Event::Received(frame),
                    Heard::Broken(failure) => {
                        let_go(self.link.take());
                        return Event::Broken(self.core.attempt(), failure);
                    }
                    Heard::Sent => {}
                },
            }
        }
    }

    fn answered(&mut self, answer: Answer) -> Event {
        match answer {
            Answer::Opened(Ok(Room::Made(load, begun))) => {
                self.load = Some(load);
                Event::Opened(Ok(begun.map_or(Opening::Fresh, Opening::Resumed)))
            }
            Answer::Opened(Ok(Room::Needless(seal))) => Event::Opened(Ok(Opening::Installed(seal))),
            Answer::Opened(Err(failure)) => Event::Opened(Err(failure)),
            Answer::Charged => Event::Charged,
            Answer::Loaded(load, result) => {
                self.load = Some(load);
                Event::Loaded(result)
            }
            Answer::Committed(result) => {
                self.committing = false;
                if self.completer.is_none() {
                    // It hung and was told so. Now it is known, and others may go on.
                    tracing::warn!(?result, "a switch that hung has ended");
                    self.permits = None;
                }
                Event::Committed(result)
            }
        }
    }

    fn act(&mut self, action: Action) -> ControlFlow<()> {
        match action {
            Action::Open => self.open(),
            Action::Connect { attempt, source } => self.connect(attempt, source),
            Action::Send(frame) => {
                if let Some(link) = &mut self.link {
                    link.send(frame);
                }
            }
            Action::Charge(bytes) => {
                let limiter = self.ports.limiter.clone();
                self.work = Some(Box::pin(async move {
                    limiter.acquire(bytes).await;
                    Answer::Charged
                }));
            }
            Action::Load { rows, point } => {
                if let Some(mut load) = self.load.take() {
                    self.work = Some(Box::pin(async move {
                        let result = load.rows(rows, point).await;
                        Answer::Loaded(load, result)
                    }));
                }
            }
            Action::Commit(seal) => self.commit(seal),
            Action::Finish(outcome) => self.finish(outcome),
            Action::Hangup => return ControlFlow::Break(()),
        }
        ControlFlow::Continue(())
    }

    fn open(&mut self) {
        let (target, at) = (self.ports.target.clone(), self.at());
        if self.load.is_some() {
            self.keep.forget();
            (self.load, self.keep) = (None, Keep::default());
        }
        let keep = self.keep.clone();
        self.work = Some(Box::pin(async move {
            Answer::Opened(target.open(&at, keep).await)
        }));
    }

    fn connect(&mut self, attempt: u32, source: usize) {
        let_go(self.link.take());
        let_go(self.connecting.take());
        let request = self.completer.as_ref().map(Completer::request);
        let Some(peer) = request.and_then(|it| it.sources.get(source)).cloned() else {
            return;
        };
        let transport = Arc::clone(&self.ports.transport);
        let stream = self.core.stream();
        self.connecting = Some(Box::pin(async move {
            (attempt, transport.connect(&peer, stream).await)
        }));
    }

    fn commit(&mut self, seal: Seal) {
        if let Some(load) = self.load.take() {
            self.committing = true;
            let at = self.at();
            self.work = Some(Box::pin(async move {
                Answer::Committed(load.commit(&at, &seal).await)
            }));
        }
    }

    fn at(&self) -> Arc<crate::SnapshotRef> {
        self.core.at()
    }

    fn finish(&mut self, outcome: Result<Installed, (Phase, Failure)>) {
        let_go(self.connecting.take());
        let Some(completer) = self.completer.take() else {
            return;
        };
        match &outcome {
            Ok(installed) => tracing::info!(totals = %installed.seal.totals, "installed"),
            Err((phase, failure)) => {
                let why = failure.kind.name();
                tracing::info!(%phase, why, kind = %failure.kind, detail = failure.detail, "ended");
            }
        }
        if let Err((_, failure)) = &outcome
            && failure.spoils_staging()
        {
            self.keep.forget();
        }
        if self.committing || Mutant::ToldBeforeReleased.is_on() {
            return completer.finish(outcome);
        }
        self.give_back();
        completer.finish(outcome);
    }

    fn give_back(&mut self) {
        let_go(self.work.take());
        self.load = None;
        self.permits = None;
    }

    fn report(&self) {
        let Some(completer) = &self.completer else {
            return;
        };
        let (totals, before) = (self.core.totals(), self.core.begun());
        completer.progress(Progress {
            phase: self.core.phase(),
            source: self.core.source(),
            attempt: self.core.attempt(),
            rows: totals.rows(),
            bytes: totals.bytes(),
            rows_before: before.rows(),
            bytes_before: before.bytes(),
            about: self.core.about(),
        });
    }

    /// Lets what was said last get out, and a commit that hangs come to its end.
    async fn flush(mut self) {
        if self.committing {
            done(&mut self.work).await;
        }
        self.permits = None;
        let Some(mut link) = self.link.take() else {
            return;
        };
        let flushed = async {
            while !link.is_flushed() {
                if let Heard::Broken(_) = link.next().await {
                    return;
                }
            }
        };
        // Nobody waits for it any more, so that it is not worth a word.
        let _ = tokio::time::timeout(FLUSH_WITHIN, flushed).await;
        let_go(link);
    }
}

/// For a task that is lost: it is aborted, it panics, or its runtime ends.
impl<P> Drop for Session<P> {
    fn drop(&mut self) {
        let_go(self.connecting.take());
        let_go(self.link.take());
        self.give_back();
    }
}

/// Waits until the switch is asked for, once.
async fn asked(commit: &mut Option<watch::Receiver<bool>>) {
    let Some(waited) = commit else {
        return pending().await;
    };
    let nobody = waited.wait_for(|asked| *asked).await.is_err();
    *commit = None;
    if nobody {
        pending().await
    }
}

/// Waits for the permits of a session, or ends it.
pub(crate) async fn queue<P>(
    permits: impl Future<Output = P>,
    within: Duration,
    mut signals: Signals,
    completer: Completer,
) -> Option<(P, Signals, Completer)> {
    let kind = tokio::select! {
        biased;
        stop = signals.next() => match stop {
            Stop::Superseded => ErrorKind::Superseded,
            Stop::Closed => ErrorKind::Closed,
            Stop::Cancelled | Stop::Withdrawn => ErrorKind::Cancelled,
        },
        permits = tokio::time::timeout(within, permits) => match permits {
            Ok(permits) => return Some((permits, signals, completer)),
            Err(_) => ErrorKind::Busy,
        },
    };
    completer.finish(Err((Phase::Queued, kind.into())));
    None
}
