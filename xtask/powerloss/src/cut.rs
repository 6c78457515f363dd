//! Where the power is cut.

use std::collections::HashMap;

use pop_powerloss_trace::{Event, SyncCall};
use pop_store::testkit::Random;

use crate::disk::SECTOR_BYTES;

/// A moment of a record, as the number of events before it, and how what was not synced
/// fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cut {
    pub(crate) events: usize,
    pub(crate) seed: u64,
}

/// Chooses `count` moments, in their order. Each kind of moment gets its share: right
/// before a sync returns, right after something was promised, around a change of names,
/// and anywhere.
pub(crate) fn choose<D>(events: &[Event<D>], count: usize, random: &mut Random) -> Vec<Cut> {
    let positions = |is_wanted: fn(&Event<D>) -> bool| -> Vec<usize> {
        let positions = events.iter().enumerate();
        positions
            .filter(|(_, event)| is_wanted(event))
            .map(|(at, _)| at)
            .collect()
    };
    let syncs = positions(|event| matches!(event, Event::SyncEnd { .. }));
    let marks = positions(|event| matches!(event, Event::Mark { .. }));
    let names = positions(is_of_names);
    let mut cuts: Vec<Cut> = (0..count)
        .map(|index| {
            let seed = random.next_u64();
            let mut any = |places: &[usize]| match places.len() {
                0 => random.index(events.len() + 1),
                count => places.get(random.index(count)).copied().unwrap_or(0),
            };
            let at = match index % 4 {
                0 => any(&syncs),
                1 => any(&marks) + 1,
                // Up to a few events after it, where it is not durable yet.
                2 => any(&names) + random.index(6),
                _ => random.index(events.len() + 1),
            };
            Cut {
                events: at.min(events.len()),
                seed,
            }
        })
        .collect();
    cuts.sort_unstable();
    cuts
}

/// Chooses `count` of `moments`, in their order.
pub(crate) fn choose_among(moments: &[usize], count: usize, random: &mut Random) -> Vec<Cut> {
    let count = if moments.is_empty() { 0 } else { count };
    let mut cuts: Vec<Cut> = (0..count)
        .map(|_| Cut {
            events: moments
                .get(random.index(moments.len()))
                .copied()
                .unwrap_or(0),
            seed: random.next_u64(),
        })
        .collect();
    cuts.sort_unstable();
    cuts
}

/// The moments within appends to a file whose name begins with `name`, where a part of what
/// is not synced may survive: after each write and right before each sync returns, if a
/// sector ends in between. A file that was never synced is not in use.
pub(crate) fn within_appends<D>(
    events: &[Event<D>],
    name: &str,
    length_of: impl Fn(&D) -> u64,
) -> Vec<usize> {
    let is_wanted = |path: &str| {
        path.rsplit('/')
            .next()
            .is_some_and(|it| it.starts_with(name))
    };
    let mut open: HashMap<u64, Appended> = HashMap::new();
    let mut syncs: HashMap<u64, (u64, u64)> = HashMap::new();
    let mut moments = Vec::new();
    for (at, event) in events.iter().enumerate() {
        match event {
            Event::Open { fd, path, .. } if is_wanted(path) => {
                open.insert(*fd, Appended::default());
            }
            Event::Close { fd } | Event::Open { fd, .. } => drop(open.remove(fd)),
            Event::Write { fd, offset, data } => {
                if let Some(file) = open.get_mut(fd) {
                    file.end = offset + length_of(data);
                    moments.extend(file.may_be_torn().then_some(at + 1));
                }
            }
            Event::SyncBegin { id, fd, call } if *call != SyncCall::Range => {
                syncs.extend(open.get(fd).map(|file| (*id, (*fd, file.end))));
            }
            Event::SyncEnd { id } => {
                let Some((fd, end)) = syncs.remove(id) else {
                    continue;
                };
                if let Some(file) = open.get_mut(&fd) {
                    moments.extend(file.may_be_torn().then_some(at));
                    file.synced = file.synced.max(end);
                }
            }
            _ => {}
        }
    }
    moments
}

/// How far a file was written and synced.
#[derive(Default)]
struct Appended {
    synced: u64,
    end: u64,
}

impl Appended {
    fn may_be_torn(&self) -> bool {
        self.synced > 0 && self.synced / SECTOR_BYTES < self.end.saturating_sub(1) / SECTOR_BYTES
    }
}

/// The moment after each step of a record, each once: after every sync, every change of
/// names, and every mark.
pub(crate) fn after_each_step<D>(events: &[Event<D>], random: &mut Random) -> Vec<Cut> {
    let steps = events.iter().enumerate().filter(|(_, event)| {
        matches!(event, Event::SyncEnd { .. } | Event::Mark { .. }) || is_of_names(event)
    });
    let cut = |(at, _): (usize, &Event<D>)| Cut {
        events: at + 1,
        seed: random.next_u64(),
    };
    steps.map(cut).collect()
}

fn is_of_names<D>(event: &Event<D>) -> bool {
    matches!(
        event,
        Event::Rename { .. }
            | Event::Unlink { .. }
            | Event::MakeFolder { .. }
            | Event::RemoveFolder { .. }
            | Event::Link { .. }
            | Event::Open { create: true, .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_chooses_the_same_moments_and_all_kinds_of_them() {
        let mut events: Vec<Event<()>> = vec![Event::Close { fd: 1 }; 1_000];
        events[500] = Event::SyncEnd { id: 1 };
        events[700] = Event::Mark { data: () };
        let cuts = choose(&events, 40, &mut Random::new(7));
        assert_eq!(cuts, choose(&events, 40, &mut Random::new(7)));
        let count = |at| cuts.iter().filter(|cut| cut.events == at).count();
        assert!(count(500) >= 10 && count(701) >= 10, "{cuts:?}");
    }

    /// Mutants: go by any file's writes; by any file's syncs; count a part as synced; take a
    /// file that was not synced yet; take appends within a sector.
    #[test]
    fn an_append_is_cut_after_its_writes_and_before_its_sync_returns() {
        let open = |fd, path: &str| Event::Open {
            fd,
            path: path.to_owned(),
            create: true,
            truncate: false,
            sync: false,
        };
        let write = |fd, offset, data: u64| Event::Write { fd, offset, data };
        let begin = |id, fd, call| Event::SyncBegin { id, fd, call };
        let end = |id| Event::SyncEnd { id };
        let events = [
            open(1, "engine/MANIFEST-000005"),
            open(2, "engine/000004.log"),
            write(2, 0, 9_000),
            write(1, 0, 600),
            begin(0, 1, SyncCall::Data),
            end(0),
            write(1, 600, 400),
            write(1, 1_000, 100),
            begin(1, 1, SyncCall::Range),
            end(1),
            begin(2, 2, SyncCall::Data),
            begin(3, 1, SyncCall::Data),
            end(2),
            end(3),
            write(1, 1_100, 100),
            write(2, 9_000, 900),
        ];
        let moments = within_appends(&events, "MANIFEST", |length| *length);
        assert_eq!(moments, [8, 13]);
        let cuts = choose_among(&moments, 60, &mut Random::new(7));
        assert!(
            moments
                .iter()
                .all(|at| cuts.iter().any(|cut| cut.events == *at))
        );
        assert_eq!(choose_among(&[], 60, &mut Random::new(7)), []);
    }

    #[test]
    fn each_step_is_cut_once_and_what_is_none_is_not() {
        let mut events: Vec<Event<()>> = vec![Event::Close { fd: 1 }; 9];
        events[2] = Event::SyncEnd { id: 1 };
        events[5] = Event::Mark { data: () };
        events[8] = Event::RemoveFolder { path: "a".into() };
        let cuts = after_each_step(&events, &mut Random::new(7));
        let at: Vec<_> = cuts.iter().map(|it| it.events).collect();
        assert_eq!(at, [3, 6, 9]);
    }
}
