//! The reader's side: the present, and the pre-images over it.

use std::{collections::BTreeMap, iter, ops::Bound};

use bytes::Bytes;

use super::{PreImage, PreImages};
use crate::{
    Direction, Entry, Keyspace, Result, Scan,
    backend::engine::{Engine, Space},
    ext::successor,
};

// A scan reads at least so much at a time, although it asks for less: what it finds may be
// hidden by pre-images that say that it was not there.
const STRETCH_ENTRIES_MIN: usize = 64;
const STRETCH_BYTES_MIN: usize = 64 << 10;

impl PreImages {
    /// Reads one key as of the moment of the snapshot.
    pub(in crate::backend::engine) fn get(
        &self,
        engine: &dyn Engine,
        keyspace: Keyspace,
        key: &[u8],
    ) -> Result<Option<Bytes>> {
        let Some(space) = self.layout.space(keyspace) else {
            return Ok(None);
        };
        // Before the pre-images: what is written from here on has left one by then.
        let present = engine.get(space, key)?;
        Ok(self.find(engine, space, key)?.unwrap_or(present))
    }

    /// Reads a range as of the moment of the snapshot.
    pub(in crate::backend::engine) fn scan(
        &self,
        engine: &dyn Engine,
        keyspace: Keyspace,
        scan: &Scan,
    ) -> Result<Vec<Entry>> {
        let Some(space) = self.layout.space(keyspace) else {
            return Ok(Vec::new());
        };
        let mut rest = Some(Scan {
            entries_max: clamp(
                scan.entries_max,
                STRETCH_ENTRIES_MIN,
                Scan::ENTRIES_MAX_DEFAULT,
            ),
            bytes_max: clamp(scan.bytes_max, STRETCH_BYTES_MIN, Scan::BYTES_MAX_DEFAULT),
            ..scan.clone()
        });
        let mut ready = Vec::new().into_iter();
        scan.collect(iter::from_fn(|| {
            loop {
                if let Some(entry) = ready.next() {
                    return Some(Ok(entry));
                }
                let range = rest.take()?;
                match self.stretch(engine, space, &range) {
                    Ok((entries, behind)) => {
                        ready = entries.into_iter();
                        rest = behind;
                    }
                    Err(error) => return Some(Err(error)),
                }
            }
        }))
    }

    /// The pre-image of a key, if there is one.
    pub(super) fn find(
        &self,
        engine: &dyn Engine,
        space: &Space,
        key: &[u8],
    ) -> Result<Option<PreImage>> {
        let spilled = {
            let kept = self.kept.read();
            self.check(&kept)?;
            if let Some(image) = kept.rows.get(space).and_then(|it| it.get(key)) {
                return Ok(Some(image.clone()));
            }
            kept.spilled
        };
        if !spilled {
            return Ok(None);
        }
        let row = engine.get(&self.scratch, &Self::scratch_key(space, key))?;
        row.map(|it| self.decode(&it)).transpose()
    }

    /// What there was in the near part of `range`, and the range behind it.
    ///
    /// The part is as long as each of the three, the present and the pre-images in memory
    /// and on disk, was read within the limits.
    fn stretch(
        &self,
        engine: &dyn Engine,
        space: &Space,
        range: &Scan,
    ) -> Result<(Vec<Entry>, Option<Scan>)> {
        let mut part = range.clone();
        // First, as in `get`.
        let present = engine.scan(space, &part)?;
        if is_full(range, &present) {
            end_at(&mut part, present.last().map(|it| &it.key));
        }
        let (kept, spilled) = self.kept_in(space, &mut part)?;
        let spilled = match spilled {
            true => self.spilled_in(engine, space, &mut part)?,
            false => Vec::new(),
        };
        let mut merged: BTreeMap<Bytes, PreImage> = present
            .into_iter()
            .map(|it| (it.key, Some(it.value)))
            .collect();
        merged.extend(kept);
        merged.extend(spilled);
        let merged = merged
            .into_iter()
            .filter(|(key, _)| *key >= part.start && part.end.as_ref().is_none_or(|it| key < it))
            .filter_map(|(key, value)| Some(Entry { key, value: value? }));
        let entries = match range.direction {
            Direction::Forward => merged.collect(),
            Direction::Backward => merged.rev().collect(),
        };
        Ok((entries, behind(range, part)))
    }

    /// The pre-images in memory of `part`, which ends where the limits are reached, and
    /// whether there are others on disk.
    fn kept_in(&self, space: &Space, part: &mut Scan) -> Result<(Vec<(Bytes, PreImage)>, bool)> {
        let kept = self.kept.read();
        self.check(&kept)?;
        let Some(rows) = kept.rows.get(space) else {
            return Ok((Vec::new(), kept.spilled));
        };
        let start = Bound::Included(&part.start);
        let end = part.end.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut rows = rows.range::<Bytes, _>((start, end));
        let mut taken = Vec::new();
        let mut bytes = 0;
        let mut take = |(key, image): (&Bytes, &PreImage)| {
            bytes += key.len() + image.as_ref().map_or(0, Bytes::len);
            taken.push((key.clone(), image.clone()));
            taken.len() >= part.entries_max || bytes >= part.bytes_max
        };
        let is_full = match part.direction {
            Direction::Forward => rows.any(&mut take),
            Direction::Backward => rows.rev().any(&mut take),
        };
        if is_full {
            end_at(part, taken.last().map(|(key, _)| key));
        }
        Ok((taken, kept.spilled))
    }

    /// The same of the pre-images on disk.
    fn spilled_in(
        &self,
        engine: &dyn Engine,
        space: &Space,
        part: &mut Scan,
    ) -> Result<Vec<(Bytes, PreImage)>> {
        let prefix = space.name().len() + 1;
        let end = match &part.end {
            Some(end) => Self::scratch_key(space, end),
            None => [space.name().as_bytes(), &[1]].concat().into(),
        };
        let scan = Scan {
            start: Self::scratch_key(space, &part.start),
            end: Some(end),
            ..part.clone()
        };
        let rows = engine.scan(&self.scratch, &scan)?;
        let is_full = is_full(&scan, &rows);
        let images = rows
            .iter()
            .map(|row| Ok((row.key.slice(prefix..), self.decode(&row.value)?)))
            .collect::<Result<Vec<_>>>()?;
        if is_full {
            end_at(part, images.last().map(|(key, _)| key));
        }
        Ok(images)
    }
}

fn clamp(limit: usize, min: usize, max: usize) -> usize {
    limit.max(min).min(max)
}

/// Whether a page may have ended by a limit.
fn is_full(limits: &Scan, page: &[Entry]) -> bool {
    let bytes = page.iter().map(|it| it.key.len() + it.value.len());
    page.len() >= limits.entries_max || bytes.sum::<usize>() >= limits.bytes_max
}

/// Has `part` end with the key `last`.
fn end_at(part: &mut Scan, last: Option<&Bytes>) {
    let Some(last) = last else { return };
    match part.direction {
        Direction::Forward => part.end = Some(successor(last)),
        Direction::Backward => part.start = last.clone(),
    }
}

/// What is left of `range` behind its near part.
fn behind(range: &Scan, part: Scan) -> Option<Scan> {
    let behind = match range.direction {
        Direction::Forward => Scan {
            start: part.end?,
            ..range.clone()
        },
        Direction::Backward => Scan {
            end: Some(part.start),
            ..range.clone()
        },
    };
    (!behind.is_empty()).then_some(behind)
}
