//! The task of a sending session.

use std::{ops::ControlFlow, time::Duration};

use pop_store::Estimate;
use tokio::time::Instant;

use super::{
    Signals, Work, done, let_go,
    link::{Heard, Link},
    until,
};
use crate::{
    Admission, Digest, Failure, Limiter,
    admission::Permit,
    dumper::Watched,
    frame::Part,
    machine::{
        Sender,
        sender::{Action, Counted, Event},
    },
    source::Cursor,
    transport::Channel,
};

// How long what was said last may take to get out.
const FLUSH_WITHIN: Duration = Duration::from_secs(5);

/// What a session works with.
pub(crate) struct Ports {
    /// The snapshot, pinned, or `None` if it is not here.
    pub(crate) pinned: Option<Cursor>,
    pub(crate) admission: Admission,
    pub(crate) limiter: Limiter,
    pub(crate) epoch: Instant,
    /// Who looks on.
    pub(crate) watched: Watched,
}

/// What our own side answered.
enum Answer {
    Opened(Option<(Permit, Cursor, Counted, Option<Estimate>)>),
    Counted(Cursor, Result<Counted, Failure>),
    Read(Cursor, Result<Vec<Part>, Failure>),
    Charged,
}

/// A session and all that it owns.
pub(crate) struct Session {
    work: Option<Work<Answer>>,
    cursor: Option<Cursor>,
    permit: Option<Permit>,
    link: Option<Link>,
    core: Sender,
    ports: Ports,
    signals: Signals,
    outcome: Option<Result<Digest, Failure>>,
}

impl Session {
    pub(crate) fn new(core: Sender, channel: Channel, ports: Ports, signals: Signals) -> Self {
        Self {
            work: None,
            cursor: None,
            permit: None,
            link: Some(Link::new(channel)),
            core,
            ports,
            signals,
            outcome: None,
        }
    }

    pub(crate) async fn run(mut self) -> Result<Digest, Failure> {
        let mut event = Event::Start;
        loop {
            let actions = self.core.handle(self.ports.epoch.elapsed(), event);
            self.ports.watched.is_at(self.core.far());
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
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                stop = self.signals.next() => return Event::Stop(stop),
                answer = done(&mut self.work) => return self.answered(answer),
                () = deadline => return Event::Tick,
                heard = heard => match heard {
                    Heard::Frame(frame) => return Event::Received(frame),
                    Heard::Broken(failure) => {
                        let_go(self.link.take());
                        return Event::Broken(failure);
                    }
                    Heard::Sent => {}
                },
            }
        }
    }

    fn answered(&mut self, answer: Answer) -> Event {
        match answer {
            Answer::Opened(Some((permit, cursor, counted, about))) => {
                self.core.set_about(about);
                (self.permit, self.cursor) = (Some(permit), Some(cursor));
                Event::Opened(Ok(Some(counted)))
            }
            Answer::Opened(None) => Event::Opened(Ok(None)),
            Answer::Counted(cursor, result) => {
                self.cursor = Some(cursor);
                Event::Opened(result.map(Some))
            }
            Answer::Read(cursor, result) => {
                self.cursor = Some(cursor);
                Event::Read(result)
            }
            Answer::Charged => Event::Charged,
        }
    }

    fn act(&mut self, action: Action) -> ControlFlow<()> {
        match action {
            Action::Open => self.open(),
            Action::Count => self.count(),
            Action::Read(bytes) => {
                if let Some(mut cursor) = self.cursor.take() {
                    self.work = Some(Box::pin(async move {
                        let rows = cursor.read(bytes).await;
                        Answer::Read(cursor, rows)
                    }));
                }
            }
            Action::Charge(bytes) => {
                let limiter = self.ports.limiter.clone();
                self.work = Some(Box::pin(async move {
                    limiter.acquire(bytes).await;
                    Answer::Charged
                }));
            }
            Action::Send(frame) => {
                if let Some(link) = &mut self.link {
                    link.send(frame);
                }
            }
            Action::Release => self.give_back(),
            Action::Finish(outcome) => {
                match &outcome {
                    Ok(totals) => tracing::info!(%totals, "sent, and installed there"),
                    Err(failure) => tracing::info!(
                        why = failure.kind.name(),
                        detail = failure.detail,
                        "ended without being installed"
                    ),
                }
                self.give_back();
                self.outcome = Some(outcome);
            }
            Action::Hangup => return ControlFlow::Break(()),
        }
        ControlFlow::Continue(())
    }

    fn give_back(&mut self) {
        let_go(self.work.take());
        let_go(self.cursor.take());
        let_go(self.ports.pinned.take());
        self.permit = None;
    }

    fn open(&mut self) {
        let pinned = self.ports.pinned.take();
        let admission = self.ports.admission.clone();
        let request = self.core.request().clone();
        self.work = Some(Box::pin(async move {
            let Some(cursor) = pinned else {
                return Answer::Opened(None);
            };
            let permit = admission.enter(&request.at).await;
            let counted = Counted {
                totals: Digest::default(),
                all: request.resume.is_none(),
            };
            let about = cursor.estimate().await;
            Answer::Opened(Some((permit, cursor, counted, about)))
        }));
    }

    fn count(&mut self) {
        let resume = self.core.request().resume.clone();
        if let (Some(mut cursor), Some(resume)) = (self.cursor.take(), resume) {
            self.work = Some(Box::pin(async move {
                let counted = cursor.count(&resume).await;
                Answer::Counted(cursor, counted)
            }));
        }
    }

    /// Lets what was said last get out.
    async fn flush(mut self) -> Result<Digest, Failure> {
        // The machine finishes before it hangs up.
        let lost = || Err(Failure::from(crate::ErrorKind::TaskLost));
        let outcome = self.outcome.take().unwrap_or_else(lost);
        let Some(mut link) = self.link.take() else {
            return outcome;
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
        outcome
    }
}

/// For a session that is lost: it is dropped, or it panics.
impl Drop for Session {
    fn drop(&mut self) {
        let_go(self.link.take());
        self.give_back();
    }
}
