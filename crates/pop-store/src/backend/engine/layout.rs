//! Which generation of each keyspace is in use, and the record that says so.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{Space, record};
use crate::Keyspace;

/// The generation in use of every keyspace that the store ever had.
///
/// Keyspaces that the store was not opened with are kept: opening with fewer deletes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Layout {
    // The space is kept beside its generation, so that a read makes no name.
    generations: BTreeMap<String, (u64, Space)>,
}

impl Layout {
    /// Where `keyspace` lives now.
    pub(super) fn space(&self, keyspace: Keyspace) -> Option<&Space> {
        let (_, space) = self.generations.get(keyspace.name())?;
        Some(space)
    }

    /// All spaces in use.
    pub(super) fn spaces(&self) -> impl Iterator<Item = &Space> {
        self.generations.values().map(|(_, space)| space)
    }

    /// Where the next generation of `keyspace` will live.
    pub(super) fn next_space(&self, keyspace: Keyspace) -> Space {
        Space::new(keyspace.name(), self.next_generation(keyspace.name()))
    }

    /// Makes the next generation of `keyspace` the one in use.
    pub(super) fn advance(&mut self, keyspace: Keyspace) {
        let generation = self.next_generation(keyspace.name());
        self.set(keyspace.name(), generation);
    }

    fn set(&mut self, keyspace: &str, generation: u64) {
        let space = Space::new(keyspace, generation);
        self.generations
            .insert(keyspace.to_owned(), (generation, space));
    }

    /// Which generation of a keyspace is the next one.
    pub(super) fn next_generation(&self, keyspace: &str) -> u64 {
        self.generations
            .get(keyspace)
            .map_or(1, |(generation, _)| generation + 1)
    }

    /// The switch record: for each keyspace the length of its name in one byte, the name,
    /// the generation in eight.
    pub(super) fn encode(&self) -> Bytes {
        let mut payload = Vec::new();
        for (name, (generation, _)) in &self.generations {
            let length = u8::try_from(name.len()).expect("keyspace names have at most 32 bytes");
            payload.push(length);
            payload.extend_from_slice(name.as_bytes());
            payload.extend_from_slice(&generation.to_be_bytes());
        }
        record::seal(&payload)
    }

    /// Reads a switch record back; `None` if it is damaged.
    pub(super) fn decode(sealed: &[u8]) -> Option<Self> {
        let mut rest = record::unseal(sealed)?;
        let mut layout = Self::default();
        while let Some((&length, tail)) = rest.split_first() {
            let (name, tail) = tail.split_at_checked(usize::from(length))?;
            let (generation, tail) = tail.split_first_chunk::<8>()?;
            let name = std::str::from_utf8(name).ok()?;
            layout.set(name, u64::from_be_bytes(*generation));
            rest = tail;
        }
        Some(layout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_switch_record_reads_back_and_a_cut_one_does_not() {
        let mut layout = Layout::default();
        layout.advance(Keyspace::new("leases"));
        layout.advance(Keyspace::new("leases"));
        layout.advance(Keyspace::new("log"));
        let sealed = layout.encode();
        assert_eq!(Layout::decode(&sealed), Some(layout));
        assert_eq!(Layout::decode(&sealed[..sealed.len() - 1]), None);
    }
}
