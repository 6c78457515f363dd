//! Where the power is cut.

use pop_powerloss_trace::Event;
use pop_store::testkit::Random;

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
