//! The message groups of an ordered queue: what of each is known and open, in order.
//!
//! A message group is *blocked* while a delivery of it is out. Then its other messages are
//! held, and those of other groups are not. What is handed out of a group is always its
//! lowest open offsets.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use pop_model::{Mutant, Offset};

#[derive(Debug, Default)]
struct Group {
    // Open offsets, each with the number of its next delivery.
    open: BTreeMap<Offset, u32>,
    leased: usize,
    // The lowest of its offsets that are parked and not in memory. All open ones are below.
    parked: Option<Offset>,
}

#[derive(Debug, Default)]
pub(super) struct MessageGroups {
    groups: HashMap<u64, Group>,
    of: HashMap<Offset, u64>,
    // The groups that may be handed out, by their lowest open offset.
    ready: BTreeMap<Offset, u64>,
    // The groups of which all that is left is parked, by the lowest of that.
    waiting: BTreeMap<Offset, u64>,
    // What is out, by the client's name for the receive.
    named: HashMap<Box<str>, BTreeSet<Offset>>,
    // What was out when the queue was loaded and is not read yet: it blocks its group, too.
    unread: HashMap<Offset, u64>,
}

impl MessageGroups {
    pub(super) fn knows(&self, offset: Offset) -> bool {
        self.of.contains_key(&offset)
    }

    pub(super) fn group_of(&self, offset: Offset) -> Option<u64> {
        self.of.get(&offset).copied()
    }

    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Whether a new offset of a group must wait behind what is parked of it, or, with
    /// `is_full`, behind what is open of it.
    pub(super) fn is_behind(&self, offset: Offset, group: u64, is_full: bool) -> bool {
        let is_before = |first: Option<Offset>| first.is_some_and(|first| first < offset);
        self.groups.get(&group).is_some_and(|members| {
            let first_open = members.open.first_key_value().map(|(first, _)| *first);
            is_before(members.parked) || is_full && is_before(first_open)
        })
    }

    /// An offset of a group is parked.
    pub(super) fn park(&mut self, offset: Offset, group: u64) {
        self.change(group, |members| {
            let first = members.parked.map_or(offset, |first| first.min(offset));
            members.parked = Some(first);
        });
    }

    /// The first group of which all that is left is parked, and the lowest of that.
    pub(super) fn waiting(&self) -> Option<(u64, Offset)> {
        let (first, group) = self.waiting.first_key_value()?;
        Some((*group, *first))
    }

    /// What is parked of a group begins at `next` from here on.
    pub(super) fn parked_from(&mut self, group: u64, next: Option<Offset>) {
        self.change(group, |members| members.parked = next);
    }

    /// How many offsets are open.
    pub(super) fn open_count(&self) -> usize {
        self.of.len()
    }

    /// An offset turned out to belong to `group`; its next delivery is the `attempt`th.
    pub(super) fn admit(&mut self, offset: Offset, group: u64, attempt: u32) {
        self.change(group, |members| {
            members.open.insert(offset, attempt);
        });
        self.of.insert(offset, group);
    }

    pub(super) fn attempt(&self, offset: Offset) -> u32 {
        let group = self
            .of
            .get(&offset)
            .and_then(|group| self.groups.get(group));
        let attempt = group.and_then(|group| group.open.get(&offset));
        attempt.copied().unwrap_or(1)
    }

    /// The next delivery of an open offset is the `attempt`th.
    pub(super) fn set_attempt(&mut self, offset: Offset, attempt: u32) {
        let group = self.of.get(&offset);
        let group = group.and_then(|group| self.groups.get_mut(group));
        if let Some(group) = group {
            group.open.insert(offset, attempt);
        }
    }

    pub(super) fn lease(&mut self, offset: Offset) {
        if let Some(group) = self.group_of(offset) {
            self.change(group, |members| members.leased += 1);
        }
    }

    pub(super) fn unlease(&mut self, offset: Offset) {
        if let Some(group) = self.group_of(offset) {
            self.change(group, |members| {
                members.leased = members.leased.saturating_sub(1);
            });
        }
    }

    /// A row says that a delivery of this group is out, before its message is read: what lies
    /// before it in its group may be read first, and must wait for it.
    pub(super) fn block_until_read(&mut self, offset: Offset, group: u64) {
        if self.unread.insert(offset, group).is_none() {
            self.change(group, |members| members.leased += 1);
        }
    }

    /// The message was read, or its delivery is over before it was.
    pub(super) fn is_read(&mut self, offset: Offset) {
        if let Some(group) = self.unread.remove(&offset) {
            self.change(group, |members| {
                members.leased = members.leased.saturating_sub(1);
            });
        }
    }

    /// An offset is settled. If it was leased, it is no longer.
    pub(super) fn remove(&mut self, offset: Offset) {
        self.is_read(offset);
        if let Some(group) = self.of.remove(&offset) {
            self.change(group, |members| {
                members.open.remove(&offset);
            });
        }
    }

    /// The lowest open offsets of the first group that is not blocked, up to `count`.
    pub(super) fn take(&self, count: usize, after: Option<Offset>) -> Option<Vec<Offset>> {
        let from = after.map_or(Offset::ZERO, Offset::next);
        let (_, group) = self.ready.range(from..).next()?;
        let open = &self.groups.get(group)?.open;
        if Mutant::FifoPassesTheHead.is_on() && open.len() > 1 {
            return Some(open.keys().skip(1).take(count).copied().collect());
        }
        Some(open.keys().take(count).copied().collect())
    }

    pub(super) fn name(&mut self, name: &str, offset: Offset) {
        match self.named.get_mut(name) {
            Some(offsets) => {
                offsets.insert(offset);
            }
            None => {
                self.named.insert(name.into(), BTreeSet::from([offset]));
            }
        }
    }

    pub(super) fn unname(&mut self, name: &str, offset: Offset) {
        if let Some(offsets) = self.named.get_mut(name) {
            offsets.remove(&offset);
            if offsets.is_empty() {
                self.named.remove(name);
            }
        }
    }

    /// What is out of the receive with this name, in order.
    pub(super) fn named(&self, name: &str) -> Vec<Offset> {
        let offsets = self.named.get(name).into_iter().flatten();
        offsets.copied().collect()
    }

    /// Changes a group, and whether it may be handed out.
    fn change(&mut self, group: u64, change: impl FnOnce(&mut Group)) {
        let members = self.groups.entry(group).or_default();
        if let Some((head, _)) = members.open.first_key_value() {
            self.ready.remove(head);
        }
        if let Some(parked) = members.parked {
            self.waiting.remove(&parked);
        }
        change(members);
        match members.open.first_key_value() {
            None if members.leased == 0 => match members.parked {
                Some(parked) => {
                    self.waiting.insert(parked, group);
                }
                None => {
                    self.groups.remove(&group);
                }
            },
            Some((head, _)) if members.leased == 0 || Mutant::FifoSecondBatch.is_on() => {
                self.ready.insert(*head, group);
            }
            _ => {}
        }
    }
}
