//! What one message can be for one group, and what may be seen of it then.

use super::Redriven;

/// Milliseconds, of lease time or of the simulator's own.
pub type Millis = u64;
/// The number of a delivery that a client was handed, in the order of the run.
pub type Delivery = usize;

/// What a message is for a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It was never stored.
    Absent,
    /// It was stored before the group was there.
    Before,
    /// The group's filter does not want it.
    Unwanted,
    /// It can be handed out, with this attempt.
    Ready {
        /// The number of the attempt.
        attempt: u32,
        /// The delivery that a restart forgot: its handle may still acknowledge.
        last: Option<Delivery>,
    },
    /// It is out; once its time is up it is on its way to another attempt or its end.
    Leased(Lease),
    /// Acknowledged.
    Done,
    /// In the group's dead-letter topic.
    Dead,
    /// In quarantine for the group.
    PutAway(Redriven),
}

/// A delivery that is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The number of the attempt.
    pub attempt: u32,
    /// Which delivery; `None` where the answer with it was lost.
    pub delivery: Option<Delivery>,
    /// Before this, it belongs to its consumer alone.
    pub until_at_least: Millis,
    /// From this on, its time is up.
    pub until_at_most: Millis,
    /// The next delivery does not count.
    pub suspend: bool,
    /// The receive that got it.
    pub receive: Option<u64>,
}

impl Lease {
    /// Whether its time may be up.
    pub fn may_be_over(&self, now: Millis) -> bool {
        self.until_at_least <= now
    }

    /// Whether its time is up.
    pub fn is_over(&self, now: Millis) -> bool {
        self.until_at_most <= now
    }

    /// What comes after its time is up.
    pub fn next(&self, attempts_max: u32) -> State {
        let counted = self.attempt - u32::from(self.suspend);
        if counted >= attempts_max {
            State::Dead
        } else {
            State::Ready {
                attempt: counted + 1,
                last: None,
            }
        }
    }
}

impl State {
    /// A message that nobody was handed yet.
    pub const NEW: Self = Self::Ready {
        attempt: 1,
        last: None,
    };

    /// Whether nothing more happens to it.
    pub fn is_final(self) -> bool {
        !matches!(self, Self::Ready { .. } | Self::Leased(_))
    }

    /// The attempt with which it may be handed out at `now`.
    pub fn attempt_at(self, now: Millis, attempts_max: u32) -> Option<u32> {
        match self {
            Self::Ready { attempt, .. } => Some(attempt),
            Self::Leased(lease) if lease.may_be_over(now) => {
                lease.next(attempts_max).attempt_at(now, attempts_max)
            }
            _ => None,
        }
    }

    /// Whether a handle of this delivery may be good.
    pub fn accepts(self, of: Delivery) -> bool {
        match self {
            Self::Ready { last, .. } => last == Some(of),
            Self::Leased(lease) => lease.delivery == Some(of),
            _ => false,
        }
    }

    /// What it is if an acknowledgement of this delivery was told at `now` that it is over;
    /// `None` if that must not be.
    pub fn ack_refused(self, of: Delivery, now: Millis, attempts_max: u32) -> Option<Self> {
        match self.change_refused(of, now, attempts_max)? {
            Self::Ready { attempt, last } if last == Some(of) => Some(Self::Ready {
                attempt,
                last: None,
            }),
            other => Some(other),
        }
    }

    /// The same of a change. What is ready again may still be acknowledged.
    pub fn change_refused(self, of: Delivery, now: Millis, attempts_max: u32) -> Option<Self> {
        let lease = match self {
            Self::Leased(lease) if lease.delivery == Some(of) => lease,
            other => return Some(other),
        };
        lease
            .may_be_over(now)
            .then(|| match lease.next(attempts_max) {
                Self::Ready { attempt, .. } => Self::Ready {
                    attempt,
                    last: Some(of),
                },
                other => other,
            })
    }

    /// What has become of it by `now`, if it is a lease that may be over.
    pub fn ended(self, now: Millis, attempts_max: u32) -> Option<Self> {
        match self {
            Self::Leased(lease) if lease.may_be_over(now) => Some(lease.next(attempts_max)),
            _ => None,
        }
    }

    /// What has become of a lease if its last change was forgotten, and its time was up.
    pub fn unchanged(self, attempts_max: u32) -> Option<Self> {
        match self {
            Self::Leased(lease) => Some(
                Lease {
                    suspend: false,
                    ..lease
                }
                .next(attempts_max),
            ),
            _ => None,
        }
    }

    /// What it may be after a restart that lost what was in memory alone, beside what it
    /// was: a lease is forgotten and the attempt is repeated (P4).
    pub fn forgotten(self) -> Option<Self> {
        match self {
            Self::Leased(lease) => Some(Self::Ready {
                attempt: lease.attempt,
                last: lease.delivery,
            }),
            _ => None,
        }
    }
}
