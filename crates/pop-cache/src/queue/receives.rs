//! What the leases of one receive share, once for all of them.

use std::{
    collections::{HashMap, hash_map::Entry},
    num::NonZeroU32,
};

use pop_model::{LeaseTime, Offset};

/// A receive by its place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReceiveId(u32);

impl ReceiveId {
    pub(super) const fn new(raw: u32) -> Self {
        Self(raw)
    }

    pub(super) const fn get(self) -> u32 {
        self.0
    }
}

/// Leases that were handed out together, or one whose invisible duration was changed.
#[derive(Clone, Debug)]
pub(super) struct Receive {
    /// The lowest of its offsets, and how far they reach: see [`SPAN_MAX`].
    pub(super) first: Offset,
    pub(super) span: u16,
    /// How many of its leases are in memory. At 0 the place is free.
    pub(super) open: u16,
    /// When it is looked at again: it is due, or has stayed long enough.
    pub(super) visible_in_ms: u32,
    pub(super) delivered_at: LeaseTime,
    pub(super) attempt: u16,
    pub(super) suspend: bool,
    pub(super) auto_renew: bool,
    pub(super) attempt_id: Option<NameId>,
}

/// The client's name for a receive, by its place in a table of its own: few have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NameId(NonZeroU32);

/// The most offsets between the first and the last of a receive, so that a look at it is
/// short. A batch that is spread wider becomes several receives.
pub(super) const SPAN_MAX: u16 = 256;

impl Receive {
    pub(super) fn visible_at(&self) -> LeaseTime {
        let millis = self.delivered_at.as_millis();
        LeaseTime::from_millis(millis.saturating_add(u64::from(self.visible_in_ms)))
    }
}

const CHUNK: usize = 1_024;

/// A table in chunks: growing it copies nothing and leaves nothing unused behind.
#[derive(Debug, Default)]
pub(super) struct Receives {
    chunks: Vec<Vec<Option<Receive>>>,
    free: Vec<ReceiveId>,
    count: usize,
    names: HashMap<NonZeroU32, Box<str>>,
    last_name: u32,
}

const _: () = assert!(
    size_of::<Option<Receive>>() == 32,
    "part of 48 bytes a lease"
);

impl Receives {
    pub(super) fn insert(&mut self, receive: Receive) -> ReceiveId {
        self.count += 1;
        if let Some(id) = self.free.pop() {
            if let Some(place) = self.place_mut(id) {
                *place = Some(receive);
            }
            return id;
        }
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            // The first ones grow with need: most queues have few receives out.
            let capacity = if self.chunks.is_empty() { 4 } else { CHUNK };
            self.chunks.push(Vec::with_capacity(capacity));
        }
        let before = self.chunks.len().saturating_sub(1) * CHUNK;
        let Some(chunk) = self.chunks.last_mut() else {
            unreachable!("a chunk was just made");
        };
        let id = u32::try_from(before + chunk.len()).unwrap_or(u32::MAX);
        chunk.push(Some(receive));
        ReceiveId(id)
    }

    /// One more lease of a receive, `span` offsets from its first one.
    pub(super) fn join(&mut self, id: ReceiveId, span: u16) {
        if let Some(Some(receive)) = self.place_mut(id) {
            receive.open += 1;
            receive.span = receive.span.max(span);
        }
    }

    /// Keeps a name for one receive.
    pub(super) fn name(&mut self, name: &str) -> NameId {
        loop {
            self.last_name = self.last_name.wrapping_add(1);
            let Some(id) = NonZeroU32::new(self.last_name) else {
                continue;
            };
            if let Entry::Vacant(vacant) = self.names.entry(id) {
                vacant.insert(name.into());
                return NameId(id);
            }
        }
    }

    pub(super) fn name_of(&self, receive: &Receive) -> Option<&str> {
        let name = receive.attempt_id?;
        self.names.get(&name.0).map(AsRef::as_ref)
    }

    fn place_mut(&mut self, id: ReceiveId) -> Option<&mut Option<Receive>> {
        let index = id.0 as usize;
        self.chunks.get_mut(index / CHUNK)?.get_mut(index % CHUNK)
    }

    pub(super) fn get(&self, id: ReceiveId) -> Option<&Receive> {
        let index = id.0 as usize;
        self.chunks.get(index / CHUNK)?.get(index % CHUNK)?.as_ref()
    }

    /// One of its leases left memory.
    pub(super) fn leave(&mut self, id: ReceiveId) {
        let Some(place) = self.place_mut(id) else {
            return;
        };
        let Some(receive) = place else {
            return;
        };
        receive.open = receive.open.saturating_sub(1);
        if receive.open > 0 {
            return;
        }
        let name = receive.attempt_id;
        *place = None;
        if let Some(name) = name {
            self.names.remove(&name.0);
        }
        self.free.push(id);
        self.count -= 1;
        if self.count == 0 {
            // A burst gives its memory back.
            *self = Self::default();
        }
    }
}
