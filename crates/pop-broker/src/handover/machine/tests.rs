//! Every order of steps, losses and crashes of both sides, walked to the end.

use std::collections::{HashSet, VecDeque};

use super::*;

/// Handovers that are begun; a third would be like the second.
const ROUNDS: u8 = 2;

/// Both sides, and what is on its way between them. Each handover is a round with a
/// snapshot and a receipt of its own; 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct World {
    // Running, or `None` after a crash until it is started.
    source: Option<Source>,
    target: Option<Target>,
    round: u8,
    // What a crash leaves.
    marked: u8,
    installed: u8,
    adopted: bool,
    // A write that is under way; a crash decides it.
    marking: bool,
    adopting: bool,
    /// Said and not heard, and of which round.
    says_installed: u8,
    says_receipt: u8,
}

const START: World = World {
    source: Some(Source::Serving),
    target: Some(Target::Empty),
    round: 0,
    marked: 0,
    installed: 0,
    adopted: false,
    marking: false,
    adopting: false,
    says_installed: 0,
    says_receipt: 0,
};

impl World {
    fn source(mut self, event: SourceEvent) -> Option<Self> {
        let (state, action) = self.source?.step(event);
        self.source = Some(state);
        match action {
            // A connection of its own: what was said on the one before is not heard any more.
            Some(SourceAction::Flush) => (self.round, self.says_installed) = (self.round + 1, 0),
            Some(SourceAction::Mark) => self.marking = true,
            Some(SourceAction::Tell) => self.says_receipt = self.round,
            Some(SourceAction::Open) | None => {}
        }
        Some(self)
    }

    fn target(mut self, event: TargetEvent) -> Option<Self> {
        let (state, action) = self.target?.step(event);
        self.target = Some(state);
        match action {
            Some(TargetAction::Tell) => self.says_installed = self.installed,
            Some(TargetAction::Adopt) => self.adopting = true,
            None => {}
        }
        Some(self)
    }

    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// All that may happen next.
    fn next(self) -> Vec<Self> {
        let mut next = Vec::new();
        self.source_goes_on(&mut next);
        self.target_goes_on(&mut next);
        self.something_crashes(&mut next);
        next.extend(self.taken_back());
        next
    }

    /// An operator takes the source back, and the target begins anew, as they must. A receipt
    /// that was told before stays told.
    fn taken_back(self) -> Option<Self> {
        let target = !self.target_may_serve() && !self.adopting;
        let may = self.source == Some(Source::Retired) && target;
        may.then_some(Self {
            source: Some(Source::Serving),
            marked: 0,
            target: Some(Target::Empty),
            installed: 0,
            says_installed: 0,
            ..self
        })
    }

    fn source_goes_on(self, next: &mut Vec<Self>) {
        let mut may = |world: Option<Self>| next.extend(world);
        if self.round < ROUNDS {
            may(self.source(SourceEvent::Asked));
        }
        may(self.source(SourceEvent::Offered));
        may(self.source(SourceEvent::Left));
        if self.says_installed != 0 {
            let heard = self.with(|it| it.says_installed = 0);
            may(Some(heard));
            may(heard.source(SourceEvent::Installed));
        }
        if self.marking {
            let done = self.with(|it| it.marking = false);
            let marked = done.with(|it| it.marked = it.round);
            may(marked.source(SourceEvent::Marked));
            may(marked.source(SourceEvent::InDoubt));
            may(done.source(SourceEvent::InDoubt));
        }
        if self.source == Some(Source::Looking) {
            let marked = self.marked != 0;
            may(self.source(SourceEvent::Looked { marked }));
        }
        // The target asks again, or an operator carries the receipt over.
        if self.target == Some(Target::Awaiting) {
            may(self.source(SourceEvent::Asks));
        }
    }

    fn target_goes_on(self, next: &mut Vec<Self>) {
        let mut may = |world: Option<Self>| next.extend(world);
        // The rows flow while they are on offer; what waits is replaced by what comes again.
        let takes = matches!(self.target, Some(Target::Empty | Target::Awaiting));
        if self.source == Some(Source::Offering) && takes {
            let installed = self.with(|it| {
                (it.installed, it.target) = (it.round, Some(Target::Empty));
            });
            may(installed.target(TargetEvent::Installed));
        }
        if self.says_receipt != 0 {
            let heard = self.with(|it| it.says_receipt = 0);
            may(Some(heard));
            // Held against the digest that came with the snapshot.
            if self.says_receipt == self.installed {
                may(heard.target(TargetEvent::Receipt));
            }
        }
        if self.adopting {
            let done = self.with(|it| it.adopting = false);
            let adopted = done.with(|it| it.adopted = true);
            may(adopted.target(TargetEvent::Adopted));
            may(adopted.target(TargetEvent::Failed));
            may(done.target(TargetEvent::Failed));
        }
    }

    /// A crash takes what runs and what is on its way, and decides what was under way.
    fn something_crashes(self, next: &mut Vec<Self>) {
        let source = self.with(|it| (it.source, it.marking) = (None, false));
        next.push(source);
        if self.marking {
            next.push(source.with(|it| it.marked = it.round));
        }
        let target = self.with(|it| (it.target, it.adopting) = (None, false));
        next.push(target);
        if self.adopting {
            next.push(target.with(|it| it.adopted = true));
        }
        if self.source.is_none() {
            next.push(self.with(|it| {
                it.source = Some(match it.marked {
                    0 => Source::Serving,
                    _ => Source::Retired,
                });
            }));
        }
        if self.target.is_none() {
            next.push(self.with(|it| {
                it.target = Some(match (it.installed, it.adopted) {
                    (_, true) => Target::Owner,
                    (0, false) => Target::Empty,
                    _ => Target::Awaiting,
                });
            }));
        }
    }

    /// Whether the source serves, or would if somebody started it now.
    fn source_may_serve(self) -> bool {
        self.marked == 0 || self.source == Some(Source::Serving)
    }

    fn target_may_serve(self) -> bool {
        self.adopted || self.target == Some(Target::Owner)
    }

    fn check(self) {
        assert!(
            !(self.source_may_serve() && self.target_may_serve()),
            "two owners: {self:?}"
        );
        // At the worst an operator starts the source, or carries its receipt over. What the
        // target has is then the last that the source answered for.
        assert!(
            self.marked == 0 || self.installed == self.marked,
            "none: {self:?}"
        );
    }
}

// Mutants: the receipt is told when the mark is begun; the source serves again when the
// target leaves while the mark is under way; the target adopts what it installed at once;
// a receipt is not held against the snapshot that came.
#[test]
fn no_order_of_steps_losses_and_crashes_makes_two_owners_or_none() {
    let (mut seen, mut todo) = (HashSet::from([START]), VecDeque::from([START]));
    let mut ends = 0;
    while let Some(world) = todo.pop_front() {
        world.check();
        ends += usize::from(world.target == Some(Target::Owner));
        for next in world.next() {
            if seen.insert(next) {
                todo.push_back(next);
            }
        }
    }
    assert!(ends > 0, "it never comes to an end");
    assert!(seen.len() > 100, "{} worlds are not all", seen.len());
}
