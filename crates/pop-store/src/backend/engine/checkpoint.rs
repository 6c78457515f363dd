//! What the store remembers of a staged load that a later process may go on with.

use std::collections::BTreeMap;

use bytes::{BufMut, Bytes};

use super::{Space, layout::Layout, record};
use crate::Keyspace;

/// The last durable point of a staging.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Checkpoint {
    /// What the caller calls the load.
    pub(super) name: Bytes,
    /// The caller's own bytes.
    pub(super) point: Bytes,
    /// How far each keyspace has come, by its name.
    pub(super) marks: BTreeMap<String, Mark>,
}

/// How far one keyspace has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Mark {
    /// Which generation is loaded.
    pub(super) generation: u64,
    /// How many files a bulk load has put aside.
    pub(super) files: u32,
    /// The last key; `None` if there is no row.
    pub(super) last: Option<Bytes>,
}

impl Checkpoint {
    /// Where the rows are.
    pub(super) fn spaces(&self) -> impl Iterator<Item = Space> {
        let marks = self.marks.iter();
        marks.map(|(keyspace, mark)| Space::new(keyspace, mark.generation))
    }

    /// How far `keyspace` has come.
    pub(super) fn mark(&self, keyspace: Keyspace) -> Option<&Mark> {
        self.marks.get(keyspace.name())
    }

    /// Whether it is of just these keyspaces.
    pub(super) fn is_of(&self, keyspaces: &[Keyspace]) -> bool {
        self.marks.len() == keyspaces.len() && keyspaces.iter().all(|it| self.mark(*it).is_some())
    }

    /// Whether its rows would be those of the next generations, and not of ones in use.
    pub(super) fn is_next_to(&self, layout: &Layout) -> bool {
        self.marks
            .iter()
            .all(|(keyspace, mark)| mark.generation == layout.next_generation(keyspace))
    }

    pub(super) fn encode(&self) -> Bytes {
        let mut payload = Vec::new();
        put(&mut payload, &self.name);
        put(&mut payload, &self.point);
        for (keyspace, mark) in &self.marks {
            put(&mut payload, keyspace.as_bytes());
            payload.put_u64(mark.generation);
            payload.put_u32(mark.files);
            payload.put_u8(u8::from(mark.last.is_some()));
            put(&mut payload, mark.last.as_deref().unwrap_or_default());
        }
        record::seal(&payload)
    }

    /// Reads a record back; `None` if it is damaged.
    pub(super) fn decode(sealed: &[u8]) -> Option<Self> {
        let mut rest = record::unseal(sealed)?;
        let mut checkpoint = Self {
            name: take(&mut rest)?,
            point: take(&mut rest)?,
            marks: BTreeMap::new(),
        };
        while !rest.is_empty() {
            let keyspace = std::str::from_utf8(&take(&mut rest)?).ok()?.to_owned();
            let generation = u64::from_be_bytes(take_array(&mut rest)?);
            let files = u32::from_be_bytes(take_array(&mut rest)?);
            let [has_rows] = take_array(&mut rest)?;
            let last = Some(take(&mut rest)?).filter(|_| has_rows == 1);
            let mark = Mark {
                generation,
                files,
                last,
            };
            checkpoint.marks.insert(keyspace, mark);
        }
        Some(checkpoint)
    }
}

fn put(payload: &mut Vec<u8>, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).expect("names, points and keys are bounded");
    payload.put_u32(length);
    payload.put_slice(bytes);
}

fn take(rest: &mut &[u8]) -> Option<Bytes> {
    let length = u32::from_be_bytes(take_array(rest)?);
    let (bytes, tail) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    *rest = tail;
    Some(Bytes::copy_from_slice(bytes))
}

fn take_array<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, tail) = rest.split_first_chunk::<N>()?;
    *rest = tail;
    Some(*bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_reads_back_and_a_damaged_one_does_not() {
        let mark = |generation, last: Option<&'static str>| Mark {
            generation,
            files: 3,
            last: last.map(Bytes::from),
        };
        let checkpoint = Checkpoint {
            name: Bytes::from("snapshot"),
            point: Bytes::from("point"),
            marks: BTreeMap::from([
                ("leases".to_owned(), mark(2, Some("k"))),
                ("log".to_owned(), mark(7, Some(""))),
                ("meta".to_owned(), mark(1, None)),
            ]),
        };
        let sealed = checkpoint.encode();
        assert_eq!(Checkpoint::decode(&sealed), Some(checkpoint));
        for at in 0..sealed.len() {
            let mut damaged = sealed.to_vec();
            damaged[at] ^= 1;
            assert_eq!(Checkpoint::decode(&damaged), None);
            assert_eq!(Checkpoint::decode(&sealed[..at]), None);
        }
    }
}
