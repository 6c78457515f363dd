//! Channels: frames take their time, and get lost, doubled, out of order, or damaged.

use std::time::Duration;

use bytes::BytesMut;
use kv_restore::{
    ErrorKind, Failure,
    frame::{Frame, decode, encode},
};

use crate::world::{Event, World};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Receiver,
    Source,
}

#[derive(Debug)]
pub struct Channel {
    pub task: usize,
    pub attempt: u32,
    pub source: usize,
    pub dump: Option<usize>,
    /// When the last thing to each end arrives: channels keep their order.
    arrived: [Duration; 2],
    /// Whether each end still holds its half.
    pub open: [bool; 2],
    /// Frames that were lost or came out of order.
    pub lost: u32,
    pub cut: bool,
}

impl Channel {
    pub fn new(task: usize, attempt: u32, source: usize) -> Self {
        Self {
            task,
            attempt,
            source,
            dump: None,
            arrived: [Duration::ZERO; 2],
            open: [true; 2],
            lost: 0,
            cut: false,
        }
    }
}

impl End {
    pub fn index(self) -> usize {
        match self {
            Self::Receiver => 0,
            Self::Source => 1,
        }
    }

    pub fn other(self) -> Self {
        match self {
            Self::Receiver => Self::Source,
            Self::Source => Self::Receiver,
        }
    }
}

impl World {
    /// Sends a frame to one end of a channel.
    pub fn send(&mut self, channel: usize, to: End, frame: Frame) {
        let odds = self.odds();
        if self.lucky(odds.cut) {
            self.note(|| format!("channel {channel} is cut"));
            self.disturb(channel);
            self.close(channel, End::Receiver, true);
            self.close(channel, End::Source, true);
            return;
        }
        if self.lucky(odds.drop) {
            self.note(|| format!("lost to {to:?}: {frame:?}"));
            self.lose(channel);
            return;
        }
        let times = 1 + usize::from(self.lucky(odds.double));
        for _ in 0..times {
            self.deliver(channel, to, frame.clone());
        }
    }

    fn deliver(&mut self, channel: usize, to: End, frame: Frame) {
        let odds = self.odds();
        let latency = Duration::from_millis(1 + self.random.below(self.plan.latency_ms));
        let late = self.lucky(odds.reorder);
        let damaged = self.lucky(odds.damage);
        let now = self.now;
        let Some(state) = self.channels.get_mut(channel) else {
            return;
        };
        if !state.open.get(to.index()).copied().unwrap_or(false) || state.cut {
            return;
        }
        let Some(arrived) = state.arrived.get_mut(to.index()) else {
            return;
        };
        let mut at = (now + latency).max(*arrived);
        *arrived = at;
        if late {
            at += latency * 5;
            self.lose(channel);
        }
        let content = if damaged {
            self.damage(channel, frame)
        } else {
            Ok(frame)
        };
        self.after(
            at.saturating_sub(now),
            Event::Arrives {
                channel,
                to,
                content,
            },
        );
    }

    /// The frame as bytes, with a bit flipped or its end cut off, as the reader sees it.
    fn damage(&mut self, channel: usize, frame: Frame) -> Result<Frame, Failure> {
        self.disturb(channel);
        self.corrupt(channel);
        let mut bytes = BytesMut::new();
        if encode(&frame, &mut bytes).is_err() {
            return Ok(frame);
        }
        let place = self.random.index(bytes.len() * 8);
        if self.lucky(300) {
            bytes.truncate(place / 8);
        } else if let Some(byte) = bytes.get_mut(place / 8) {
            *byte ^= 1 << (place % 8);
        }
        match decode(&mut bytes) {
            Ok(Some(frame)) => {
                self.fail(format!("a damaged frame was read: {frame:?}"));
                Ok(frame)
            }
            Ok(None) => Err(Failure::new(ErrorKind::Transport, "cut off")),
            Err(error) => Err(error.into()),
        }
    }

    /// One end lets go of its half; the other learns it after what was sent before.
    pub fn close(&mut self, channel: usize, end: End, cut: bool) {
        let (now, latency) = (self.now, Duration::from_millis(1));
        let Some(state) = self.channels.get_mut(channel) else {
            return;
        };
        let Some(open) = state.open.get_mut(end.index()) else {
            return;
        };
        let was_open = std::mem::replace(open, false);
        state.cut |= cut;
        let to = end.other();
        let arrived = state.arrived.get(to.index()).copied().unwrap_or_default();
        let at = (now + latency).max(arrived);
        if was_open {
            self.after(at.saturating_sub(now), Event::Closes { channel, to });
        }
    }

    fn lose(&mut self, channel: usize) {
        if let Some(state) = self.channels.get_mut(channel) {
            state.lost += 1;
        }
        self.disturb(channel);
    }
}
