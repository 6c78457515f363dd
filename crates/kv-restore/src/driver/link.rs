//! One end of a channel, with what waits to be sent on it.

use std::{collections::VecDeque, future::ready};

use super::{Work, done};
use crate::{
    ErrorKind, Failure,
    frame::{Body, Frame},
    transport::{Channel, FrameRx, FrameTx, TransportError},
};

/// Answers that wait to be sent. Each is said again, so that one more can be left out.
const ANSWERS_MAX: usize = 1_024;

type Sent = (Box<dyn FrameTx>, Result<(), TransportError>);
type Got = (Box<dyn FrameRx>, Result<Option<Frame>, TransportError>);

/// Sends and receives at the same time: two ends that only sent would wait for each other.
pub(super) struct Link {
    // Bounded by the credit of the session and `ANSWERS_MAX`.
    out: VecDeque<Frame>,
    tx: Option<Box<dyn FrameTx>>,
    sending: Option<Work<Sent>>,
    receiving: Option<Work<Got>>,
    // Nothing can be sent any more.
    broken: Option<Failure>,
}

/// What happened on a channel.
pub(super) enum Heard {
    Frame(Frame),
    Broken(Failure),
    Sent,
}

impl Link {
    pub(super) fn new(channel: Channel) -> Self {
        let mut link = Self {
            out: VecDeque::new(),
            tx: Some(channel.tx),
            sending: None,
            receiving: None,
            broken: None,
        };
        link.receive(channel.rx);
        link
    }

    fn receive(&mut self, mut rx: Box<dyn FrameRx>) {
        self.receiving = Some(Box::pin(async move {
            let got = rx.recv().await;
            (rx, got)
        }));
    }

    pub(super) fn send(&mut self, frame: Frame) {
        // A peer that makes us answer and takes no answers must not fill our memory.
        let rows = matches!(frame.body, Body::Chunk { .. } | Body::End { .. });
        let full = self.out.len() >= ANSWERS_MAX && !rows;
        if self.broken.is_none() && !full {
            self.out.push_back(frame);
            self.send_next();
        }
    }

    fn send_next(&mut self) {
        if self.sending.is_none()
            && let Some(mut tx) = self.tx.take()
        {
            let Some(frame) = self.out.pop_front() else {
                self.tx = Some(tx);
                return;
            };
            self.sending = Some(Box::pin(async move {
                let sent = tx.send(frame).await;
                (tx, sent)
            }));
        }
    }

    /// Whether all that was said is on its way.
    pub(super) fn is_flushed(&self) -> bool {
        self.broken.is_some() || self.out.is_empty() && self.sending.is_none()
    }

    /// Waits for the next thing to happen. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Heard {
        if let Some(failure) = self.broken.clone() {
            // What had come before it broke is still worth something.
            return tokio::select! {
                biased;
                got = done(&mut self.receiving) => self.got(got),
                () = ready(()) => Heard::Broken(failure),
            };
        }
        tokio::select! {
            biased;
            (tx, sent) = done(&mut self.sending) => {
                match sent {
                    Ok(()) => self.tx = Some(tx),
                    Err(error) => self.broken = Some(error.into()),
                }
                self.send_next();
                Heard::Sent
            }
            got = done(&mut self.receiving) => self.got(got),
        }
    }

    fn got(&mut self, (rx, got): Got) -> Heard {
        match got {
            Ok(Some(frame)) => {
                self.receive(rx);
                Heard::Frame(frame)
            }
            Ok(None) => Heard::Broken(closed()),
            Err(error) => Heard::Broken(error.into()),
        }
    }
}

fn closed() -> Failure {
    Failure::new(ErrorKind::Transport, "the other end closed the channel")
}
