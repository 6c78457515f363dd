//! One file: what of it is on the disk for sure, and what may be.

use std::{collections::HashMap, ops::Range};

use pop_store::testkit::Random;

use super::{Model, image::Image};

// What a disk writes whole or not at all.
pub(crate) const SECTOR_BYTES: u64 = 512;
// What the system writes back together.
const PAGE_BYTES: u64 = 4_096;

/// A change of a file's content. The bytes are a range of the log.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Write { offset: u64, data: Range<usize> },
    Zero { offset: u64, length: u64 },
    SetLength(u64),
    Grow(u64),
}

#[derive(Clone, Debug)]
struct Pending {
    moment: u64,
    change: Change,
    /// Durable although the ones before it may not be: written through `O_SYNC`.
    is_durable: bool,
}

/// What a power cut leaves of the changes that were not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Survival {
    Nothing,
    Everything,
    /// Those up to one of them, and a part of that one.
    Prefix,
    /// Each sector as it was at some moment of its own.
    Sectors,
    /// Each page as it was at some moment of its own.
    Pages,
}

impl Survival {
    pub(crate) fn draw(random: &mut Random) -> Self {
        match random.below(8) {
            0 => Self::Nothing,
            1 => Self::Everything,
            2..4 => Self::Prefix,
            4..6 => Self::Sectors,
            _ => Self::Pages,
        }
    }
}

/// A file, whatever names it has.
#[derive(Clone, Debug, Default)]
pub(crate) struct File {
    durable: Image,
    pending: Vec<Pending>,
}

impl File {
    /// A file with this content, durable.
    pub(crate) fn holding(content: &[u8]) -> Self {
        let mut file = Self::default();
        file.durable.write(0, content);
        file
    }

    pub(crate) fn change(&mut self, moment: u64, change: Change, is_durable: bool) {
        self.pending.push(Pending {
            moment,
            change,
            is_durable,
        });
    }

    /// What was changed before `moment` is durable.
    pub(crate) fn sync(&mut self, moment: u64, log: &[u8]) {
        let count = self.pending.partition_point(|it| it.moment < moment);
        for pending in self.pending.drain(..count) {
            apply(&mut self.durable, &pending.change, log);
        }
    }

    /// The content as every reader sees it while there is power.
    pub(crate) fn now(&self, log: &[u8]) -> Image {
        let mut image = self.durable.clone();
        for pending in &self.pending {
            apply(&mut image, &pending.change, log);
        }
        image
    }

    /// The content as a power cut may leave it.
    pub(crate) fn after_cut(
        &self,
        survival: Survival,
        model: Model,
        random: &mut Random,
        log: &[u8],
    ) -> Image {
        if self.pending.is_empty() {
            return self.durable.clone();
        }
        let cut = Cut::draw(self, survival, model, random);
        let mut image = self.durable.clone();
        for (index, pending) in self.pending.iter().enumerate() {
            match &pending.change {
                Change::Write { offset, data } => {
                    let bytes = log.get(data.clone()).unwrap_or_default();
                    for part in sectors(*offset, bytes.len() as u64) {
                        if cut.has(part.start / SECTOR_BYTES, index) {
                            let within = within(&part, *offset);
                            image.write(part.start, bytes.get(within).unwrap_or_default());
                        }
                    }
                }
                Change::Zero { offset, length } => {
                    for part in sectors(*offset, *length) {
                        if cut.has(part.start / SECTOR_BYTES, index) {
                            image.zero(part.start, part.end - part.start);
                        }
                    }
                }
                Change::SetLength(length) if index < cut.metadata => image.set_length(*length),
                Change::SetLength(_) | Change::Grow(_) => {}
            }
        }
        image.set_length(cut.length);
        image
    }

    /// The lengths after none, one, two ... of the pending changes.
    fn lengths(&self) -> Vec<u64> {
        let mut length = self.durable.length();
        let mut lengths = vec![length];
        for pending in &self.pending {
            length = match &pending.change {
                Change::Write { offset, data } => length.max(offset + data.len() as u64),
                Change::Zero { .. } => length,
                Change::SetLength(length) => *length,
                Change::Grow(at_least) => length.max(*at_least),
            };
            lengths.push(length);
        }
        lengths
    }
}

/// Which version of what survives, in numbers of pending changes that are in it.
struct Cut {
    /// Of each sector that a pending change touches.
    sectors: HashMap<u64, usize>,
    /// Of the length.
    metadata: usize,
    length: u64,
}

impl Cut {
    fn draw(file: &File, survival: Survival, model: Model, random: &mut Random) -> Self {
        let count = file.pending.len();
        let touched = touched(&file.pending);
        let lengths = file.lengths();
        let length_after = |changes: usize| lengths.get(changes).copied().unwrap_or_default();
        let prefix = random.index(count + 1);
        let must = |touching: &[usize]| {
            let durable =
                |index: &&usize| file.pending.get(**index).is_some_and(|it| it.is_durable);
            touching.iter().rfind(durable).map_or(0, |index| index + 1)
        };
        let all: Vec<usize> = (0..count).collect();
        let metadata = match survival {
            Survival::Nothing => 0,
            Survival::Everything => count,
            Survival::Prefix => prefix,
            Survival::Sectors | Survival::Pages => random.index(count + 1),
        };
        let metadata = metadata.max(must(&all));
        let mut length = length_after(metadata);
        // The change after the prefix, of which a part survives.
        let torn = file.pending.get(prefix).and_then(|it| match &it.change {
            Change::Write { offset, data } if survival == Survival::Prefix => {
                let end = offset + random.below(data.len() as u64 + 1);
                let floor = |at: u64| at / SECTOR_BYTES * SECTOR_BYTES;
                Some(floor(*offset)..floor(end))
            }
            _ => None,
        });
        if let Some(torn) = &torn {
            length = length.max(match model {
                Model::Ext4 => torn.end.min(length_after(prefix + 1)),
                Model::Strict => length_after(prefix + 1),
            });
        }
        let unit = if survival == Survival::Pages {
            PAGE_BYTES
        } else {
            SECTOR_BYTES
        };
        // How much of it the disk had written: from little to nearly all.
        let share = random.below(11);
        let mut units: HashMap<u64, (bool, u64)> = HashMap::new();
        let mut sectors = HashMap::with_capacity(touched.len());
        let mut numbers: Vec<_> = touched.keys().copied().collect();
        numbers.sort_unstable();
        for sector in numbers {
            let touching = touched.get(&sector).map_or(&[][..], Vec::as_slice);
            let start = sector * SECTOR_BYTES;
            let drawn = match survival {
                Survival::Nothing => 0,
                Survival::Everything => count,
                Survival::Prefix if torn.as_ref().is_some_and(|it| it.contains(&start)) => {
                    prefix + 1
                }
                Survival::Prefix => prefix,
                Survival::Sectors | Survival::Pages => {
                    let draw = || (random.chance(share, 10), random.next_u64());
                    let (is_new, chance) = *units.entry(start / unit).or_insert_with(draw);
                    if is_new {
                        count
                    } else {
                        version(touching, chance)
                    }
                }
            };
            let mut at_least = must(touching);
            // The length on the disk covers only what was written there.
            let is_appended = start + SECTOR_BYTES > file.durable.length() && start < length;
            if model == Model::Ext4 && is_appended {
                let before = touching.iter().rfind(|index| **index < metadata);
                at_least = at_least.max(before.map_or(0, |index| index + 1));
            }
            sectors.insert(sector, drawn.max(at_least));
        }
        Self {
            sectors,
            metadata,
            length,
        }
    }

    fn has(&self, sector: u64, index: usize) -> bool {
        self.sectors
            .get(&sector)
            .is_some_and(|version| *version > index)
    }
}

/// One of the versions that the changes at `touching` made.
fn version(touching: &[usize], chance: u64) -> usize {
    let drawn = usize::try_from(chance % (touching.len() as u64 + 1)).unwrap_or(0);
    let last = drawn.checked_sub(1).and_then(|at| touching.get(at));
    last.map_or(0, |index| index + 1)
}

/// By sector, which changes touch it.
fn touched(pending: &[Pending]) -> HashMap<u64, Vec<usize>> {
    let mut touched: HashMap<u64, Vec<usize>> = HashMap::new();
    for (index, pending) in pending.iter().enumerate() {
        let (offset, length) = match &pending.change {
            Change::Write { offset, data } => (*offset, data.len() as u64),
            Change::Zero { offset, length } => (*offset, *length),
            Change::SetLength(_) | Change::Grow(_) => continue,
        };
        for part in sectors(offset, length) {
            touched
                .entry(part.start / SECTOR_BYTES)
                .or_default()
                .push(index);
        }
    }
    touched
}

/// The parts of a range that lie in a sector each.
fn sectors(offset: u64, length: u64) -> impl Iterator<Item = Range<u64>> {
    let end = offset + length;
    let numbers = offset / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES);
    numbers.map(move |sector| {
        let start = sector * SECTOR_BYTES;
        start.max(offset)..(start + SECTOR_BYTES).min(end)
    })
}

/// Where `part` is in data that begins at `offset`.
fn within(part: &Range<u64>, offset: u64) -> Range<usize> {
    let place = |at: u64| usize::try_from(at - offset).unwrap_or(usize::MAX);
    place(part.start)..place(part.end)
}

fn apply(image: &mut Image, change: &Change, log: &[u8]) {
    match change {
        Change::Write { offset, data } => {
            image.write(*offset, log.get(data.clone()).unwrap_or_default());
        }
        Change::Zero { offset, length } => image.zero(*offset, *length),
        Change::SetLength(length) => image.set_length(*length),
        Change::Grow(length) => image.grow(*length),
    }
}
