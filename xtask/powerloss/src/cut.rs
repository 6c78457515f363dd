//! Where the power is cut.

use std::{collections::HashMap, iter::repeat_n, ops::Range};

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

/// How a record is gone through step by step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EachStep {
    /// How many layouts are drawn of a moment at which something is written and not synced.
    pub(crate) layouts: usize,
    /// After at most so many of the writes outside of switches.
    pub(crate) writes_max: usize,
}

/// The moments of a record, step by step.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Steps {
    pub(crate) cuts: Vec<Cut>,
    /// How many writes there are.
    pub(crate) writes: usize,
    /// After how many of them there is no cut.
    pub(crate) left_out: usize,
}

impl EachStep {
    /// Between every two steps, which are syncs that return, writes, changes of names and
    /// marks: several times before a sync returns, after a write of `switches` and after some
    /// of the other writes, which are drawn; else once.
    pub(crate) fn of<D>(
        self,
        events: &[Event<D>],
        switches: &[Range<usize>],
        random: &mut Random,
    ) -> Steps {
        let steps = events.iter().enumerate();
        let steps: Vec<_> = steps.filter(|(_, event)| is_step(event)).collect();
        let mut moments = Vec::new();
        let mut others = Vec::new();
        let mut writes = 0;
        for (number, &(at, event)) in steps.iter().enumerate() {
            let next = steps.get(number + 1);
            let is_before_sync = matches!(next, Some((_, Event::SyncEnd { .. })));
            let is_write = is_of_content(event);
            writes += usize::from(is_write);
            let after = at + 1;
            if is_before_sync || is_write && switches.iter().any(|it| it.contains(&at)) {
                moments.extend(repeat_n(after, self.layouts));
            } else if is_write {
                others.push(after);
            } else {
                moments.push(after);
            }
        }
        let left_out = others.len().saturating_sub(self.writes_max);
        for _ in 0..left_out {
            others.swap_remove(random.index(others.len()));
        }
        moments.extend(others.into_iter().flat_map(|it| repeat_n(it, self.layouts)));
        moments.sort_unstable();
        let cuts = moments.into_iter().map(|events| Cut {
            events,
            seed: random.next_u64(),
        });
        Steps {
            cuts: cuts.collect(),
            writes,
            left_out,
        }
    }
}

fn is_step<D>(event: &Event<D>) -> bool {
    matches!(event, Event::SyncEnd { .. } | Event::Mark { .. })
        || is_of_names(event)
        || is_of_content(event)
}

const fn is_of_content<D>(event: &Event<D>) -> bool {
    matches!(
        event,
        Event::Write { .. } | Event::Zero { .. } | Event::SetLength { .. } | Event::Grow { .. }
    )
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
    use std::collections::HashSet;

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

    /// Mutants: draw one layout before a sync returns, or of a write; leave out writes of a
    /// switch; take more of the others, or none.
    #[test]
    fn between_every_two_steps_there_is_a_cut_and_more_of_them_at_what_is_not_synced() {
        let write = || Event::Write {
            fd: 1,
            offset: 0,
            data: (),
        };
        let mut events: Vec<Event<()>> = vec![Event::Close { fd: 1 }; 40];
        for at in [2, 31, 35] {
            events[at] = Event::SyncEnd { id: 1 };
        }
        for at in [5, 33] {
            events[at] = Event::Mark { data: () };
        }
        events[8] = Event::RemoveFolder { path: "a".into() };
        events[11] = write();
        events[12] = Event::SetLength { fd: 1, length: 1 };
        events[20..30].fill(write());
        let how = EachStep {
            layouts: 2,
            writes_max: 3,
        };
        let switches = [0..1, 10..13];
        let steps = how.of(&events, &switches, &mut Random::new(7));
        assert_eq!(steps, how.of(&events, &switches, &mut Random::new(7)));
        assert_eq!((steps.writes, steps.left_out), (12, 6));
        let at = steps.cuts.iter().map(|it| it.events);
        let (drawn, always): (Vec<_>, Vec<_>) = at.partition(|at| (21..30).contains(at));
        assert_eq!(always, [3, 6, 9, 12, 12, 13, 13, 30, 30, 32, 34, 34, 36]);
        assert_eq!(drawn.len(), 6);
        assert!(drawn.chunks(2).all(|it| it[0] == it[1]), "{drawn:?}");
        let seeds: HashSet<_> = steps.cuts.iter().map(|it| it.seed).collect();
        assert_eq!(seeds.len(), steps.cuts.len(), "each layout is another one");
    }
}
