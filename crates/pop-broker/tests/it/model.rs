//! What must be true of each message of each group: a plain model that shares no code with
//! the broker. It follows what clients are told, and is held against the rows.

use std::collections::BTreeMap;

use crate::audit::{Audit, Place};

/// A lease as a client knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) attempt: u32,
    pub(crate) deadline_ms: u64,
    /// The next delivery is not counted.
    pub(crate) suspend: bool,
    /// `None` where the answer with it was lost.
    pub(crate) handle: Option<String>,
}

/// Where a message of a group is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Its send was refused.
    Absent,
    Ready,
    Leased(Lease),
    /// Ready for this attempt.
    Retry(u32),
    /// Acknowledged, or skipped by a filter.
    Done,
    Dead,
}

impl State {
    /// What a group has of the message at `now`: a lease whose time is up is another
    /// delivery, or the end of it.
    fn at(self, now_ms: u64, attempts_max: u32) -> Self {
        match self {
            Self::Leased(lease) if lease.deadline_ms <= now_ms => {
                let counted = lease.attempt - u32::from(lease.suspend);
                if counted >= attempts_max {
                    Self::Dead
                } else {
                    Self::Retry(counted + 1)
                }
            }
            other => other,
        }
    }

    /// The attempt with which it would be handed out now.
    pub(crate) fn next_attempt(&self) -> Option<u32> {
        match self {
            Self::Ready => Some(1),
            Self::Retry(attempt) => Some(*attempt),
            _ => None,
        }
    }

    fn fits(&self, places: Option<&Vec<Place>>) -> bool {
        let Some(places) = places else {
            return *self == Self::Absent;
        };
        match (self, places.as_slice()) {
            (Self::Ready, [Place::Ready])
            | (Self::Done, [])
            | (Self::Dead, [Place::DeadLettered]) => true,
            (Self::Retry(expected), [Place::Retry { attempt }]) => expected == attempt,
            (
                Self::Leased(lease),
                [
                    Place::Leased {
                        attempt,
                        deadline_ms,
                    },
                ],
            ) => lease.attempt == *attempt && lease.deadline_ms == *deadline_ms,
            _ => false,
        }
    }
}

/// One message of one group.
#[derive(Clone, Debug)]
pub(crate) struct Track {
    pub(crate) now: State,
    /// What it may be as well, since an answer did not say.
    or: Vec<State>,
    // What it was after each operation since the last write that is known to be synced:
    // a power cut may bring any of these back, and nothing else (P4).
    since_sync: Vec<State>,
}

impl Track {
    /// An answer did not say: it may be this as well.
    pub(crate) fn may_be(&mut self, state: State) {
        self.or.push(state);
    }
}

/// Every message of every group.
#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) tracks: BTreeMap<(String, String), Track>,
    pub(crate) attempts_max: BTreeMap<String, u32>,
}

impl Model {
    /// A send was answered: OK, refused, or in doubt.
    pub(crate) fn sent(&mut self, id: &str, states: &[State]) {
        for group in self.attempts_max.keys() {
            let track = Track {
                now: states[0].clone(),
                or: states[1..].into(),
                since_sync: vec![State::Absent],
            };
            self.tracks.insert((group.clone(), id.to_owned()), track);
        }
    }

    pub(crate) fn track(&mut self, group: &str, id: &str) -> &mut Track {
        let key = (group.to_owned(), id.to_owned());
        self.tracks
            .get_mut(&key)
            .unwrap_or_else(|| panic!("{id} of {group} was never sent"))
    }

    /// A delivery arrived. It must be of a message that was ready, with the attempt that
    /// was due: anything else is a second owner (P3), a repeat (P4) or a wrong count.
    pub(crate) fn delivered(&mut self, group: &str, id: &str, lease: Lease) {
        let track = self.track(group, id);
        assert_eq!(
            track.now.next_attempt(),
            Some(lease.attempt),
            "{id} of {group} was handed out while it was {:?}",
            track.now
        );
        track.now = State::Leased(lease);
    }

    /// An operation may have moved everything of `group` that is ready to another state.
    pub(crate) fn maybe(&mut self, group: &str, state: impl Fn(&str, u32) -> Option<State>) {
        let own = self.tracks.iter_mut().filter(|((of, _), _)| of == group);
        for ((_, id), track) in own {
            let moved = track.now.next_attempt();
            let moved = moved.and_then(|attempt| state(id, attempt));
            track.or.extend(moved);
        }
    }

    /// An operation may have moved everything of `group` that is ready to another state,
    /// and on from there.
    pub(crate) fn passes_through(
        &mut self,
        group: &str,
        state: impl Fn(&str, u32) -> Option<State>,
    ) {
        let own = self.tracks.iter_mut().filter(|((of, _), _)| of == group);
        for ((_, id), track) in own {
            let moved = track.now.next_attempt();
            let moved = moved.and_then(|attempt| state(id, attempt));
            track.since_sync.extend(moved);
        }
    }

    /// The store failed while leases ended: their revive may have failed, once or again, and
    /// then they are stored for later as they were.
    pub(crate) fn revives_may_fail(&mut self, now_ms: u64) {
        for track in self.tracks.values_mut() {
            let State::Leased(lease) = &track.now else {
                continue;
            };
            if lease.deadline_ms <= now_ms {
                let later = [10_000, 30_000, 60_000].map(|delay_ms| {
                    State::Leased(Lease {
                        deadline_ms: now_ms + delay_ms,
                        ..lease.clone()
                    })
                });
                track.or.extend(later);
            }
        }
    }

    /// The leases whose handle is known, with their group and message.
    pub(crate) fn leases(&self) -> Vec<(String, String, Lease)> {
        let lease = |((group, id), track): (&(String, String), &Track)| match &track.now {
            State::Leased(lease) if lease.handle.is_some() => {
                Some((group.clone(), id.clone(), lease.clone()))
            }
            _ => None,
        };
        self.tracks.iter().filter_map(lease).collect()
    }

    pub(crate) fn has_ready(&self, group: &str) -> bool {
        let own = self.tracks.iter().filter(|((of, _), _)| of == group);
        own.map(|(_, track)| &track.now)
            .any(|state| state.next_attempt().is_some())
    }

    /// A power cut lost what was not synced: each message is what it was at some moment
    /// since then.
    pub(crate) fn lost_the_unsynced(&mut self) {
        for track in self.tracks.values_mut() {
            track.or.append(&mut track.since_sync.clone());
        }
    }

    /// Holds the model against the rows (P1, P3, P4): each message is in a place that what
    /// its clients were told allows. From here on the model knows which.
    pub(crate) fn hold_against(&mut self, audit: &Audit, now_ms: u64, is_synced: bool) {
        for (key, track) in &mut self.tracks {
            let attempts_max = self.attempts_max[&key.0];
            let candidates = std::iter::once(track.now.clone()).chain(track.or.drain(..));
            let candidates: Vec<State> = candidates
                .map(|state| state.at(now_ms, attempts_max))
                .collect();
            let places = audit.get(key);
            let found = candidates.iter().find(|state| state.fits(places));
            let Some(found) = found else {
                panic!(
                    "{} of {} is in {places:?}, and may be {candidates:?}",
                    key.1, key.0
                );
            };
            track.now = found.clone();
            if is_synced {
                track.since_sync.clear();
            }
            if track.since_sync.last() != Some(&track.now) {
                track.since_sync.push(track.now.clone());
            }
        }
    }

    /// Nothing is left to be delivered or acknowledged.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.tracks
            .values()
            .all(|track| matches!(track.now, State::Absent | State::Done | State::Dead))
    }
}
