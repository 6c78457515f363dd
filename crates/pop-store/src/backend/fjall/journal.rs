//! Looks at fjall's journals before fjall does.
//!
//! fjall 3.1.13 recovers a journal by reading batches until one can't be read. If that one's
//! structure is broken (a length, a tag, a missing end), it cuts the file there and goes on
//! as if nothing had been after it, in a full journal too, so that what the next journal
//! holds is applied over the hole. If only the batch's checksum is wrong, it refuses the
//! journal, also where that is the torn end of writes that nobody was promised.
//!
//! Here each batch is checked whole, and the group numbers in them are held against the last
//! group that was synced: damage before it is refused with nothing changed, an end torn
//! after it is cut and logged. The journal's format is that of the pinned version.
//!
//! fjall's checksum does not cover the batch's own number, by which it orders versions of a
//! key and skips what its trees already have. Here it must rise, by little. What is left: a
//! flip in the low two bytes of the number of the oldest batch that still is in a journal
//! can't be seen, and may have fjall skip that batch.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use xxhash_rust::xxh3::xxh3_64;

use super::NAME;
use crate::{
    Error, ErrorKind, Result,
    backend::{
        engine::record,
        folder::trial::{self, Trial},
    },
};

const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const END_MAGIC: &[u8] = b"FJL\x03";
// The first tree that is made in a database, which is the store's own.
const SYSTEM_TREE: u64 = 1;
// fjall numbers batches upward and gives numbers in between to tree versions: to far fewer
// than this between two batches.
const NUMBER_STEP_MAX: u64 = 1 << 16;

/// Checks the journals in `folder` against the last synced group.
///
/// # Errors
///
/// `Corrupt` with nothing changed, `Unavailable` if the files can't be read.
pub(super) fn check(folder: &Path, synced: u64) -> Result<Trial> {
    let journals = list(folder).map_err(|error| unreadable(folder, error))?;
    let mut trial = Trial::default();
    let mut last = Last::default();
    for (position, journal) in journals.iter().enumerate() {
        let bytes = fs::read(journal).map_err(|error| unreadable(journal, error))?;
        let walk = walk(&bytes, last);
        last = walk.last;
        let rest = bytes.get(walk.length..).unwrap_or_default();
        let torn = written(rest);
        let is_active = position + 1 == journals.len();
        let damage = Damage {
            journal,
            at: walk.length,
            group: last.group,
        };
        // A full journal was synced before the next one was begun: it has no torn end.
        if walk.gap || (torn > 0 && !is_active) {
            return Err(damage.refused("the groups after it are needed by what follows"));
        }
        if is_active && last.group.is_some_and(|group| group < synced) {
            return Err(damage.refused(&format!("group {synced} was synced")));
        }
        if torn > 0 {
            trial = damage
                .cut(torn, synced)
                .map_err(|error| unreadable(journal, error))?;
        }
    }
    Ok(trial)
}

/// How many bytes of `rest` there are up to the last that is not zero.
fn written(rest: &[u8]) -> usize {
    // A page at a time: most of a journal's room was never written.
    const ZERO: [u8; 4_096] = [0; 4_096];
    let is_zero = |chunk: &&[u8]| ZERO.get(..chunk.len()) == Some(*chunk);
    let empty = rest.rchunks(ZERO.len()).take_while(is_zero);
    let used = rest.len() - empty.map(<[u8]>::len).sum::<usize>();
    let last = rest.iter().take(used).rposition(|byte| *byte != 0);
    last.map_or(0, |at| at + 1)
}

/// The journals in the order they were written, if there is a database at all.
fn list(folder: &Path) -> io::Result<Vec<PathBuf>> {
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let mut journals = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|it| it.to_str());
        // Other names are fjall's to judge.
        if let Some(id) = name
            .and_then(|it| it.strip_suffix(".jnl"))
            .and_then(|it| it.parse::<u64>().ok())
        {
            Trial::recover(&path)?;
            journals.push((id, path));
        }
    }
    journals.sort();
    Ok(journals.into_iter().map(|(_, path)| path).collect())
}

fn unreadable(path: &Path, error: io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, NAME, "open")
        .with_detail(format!("{} can't be read or cut", path.display()))
        .with_source(error)
}

struct Damage<'a> {
    journal: &'a Path,
    at: usize,
    /// The last group before it.
    group: Option<u64>,
}

impl Damage<'_> {
    fn refused(&self, why: &str) -> Error {
        let last = self.group.map_or_else(
            || "no group is before it".to_owned(),
            |group| format!("group {group} is the last before it"),
        );
        Error::new(ErrorKind::Corrupt, NAME, "open").with_detail(format!(
            "journal {} is damaged at byte {}: {last}, and {why}; nothing was changed; \
             restore the folder from a backup",
            self.journal.display(),
            self.at,
        ))
    }

    /// Cuts an end that was written and never synced.
    fn cut(&self, torn: usize, synced: u64) -> io::Result<Trial> {
        tracing::warn!(
            journal = %self.journal.display(),
            at = self.at,
            bytes = torn,
            last_group = self.group,
            "cut the torn end of a journal, which had not been synced"
        );
        // Without a group before it, whether the trees hold what was synced is seen only
        // when they are open.
        if self.group.is_none() && synced > 0 {
            return Trial::cut(self.journal, self.at);
        }
        trial::cut(self.journal, self.at)?;
        Ok(Trial::default())
    }
}

/// What the batches so far ended with.
#[derive(Clone, Copy, Default)]
struct Last {
    group: Option<u64>,
    number: Option<u64>,
}

struct Walk {
    /// How many bytes are whole batches.
    length: usize,
    last: Last,
    /// Whether what comes right after them is whole and can't come there.
    gap: bool,
}

fn walk(bytes: &[u8], before: Last) -> Walk {
    let mut walk = Walk {
        length: 0,
        last: before,
        gap: false,
    };
    while let Some(batch) = bytes.get(walk.length..).and_then(Batch::read) {
        if !batch.follows(walk.last) {
            walk.gap = true;
            return walk;
        }
        walk.last.group = batch.group.or(walk.last.group);
        walk.last.number = Some(batch.number);
        walk.length += batch.length;
    }
    walk
}

/// A whole batch.
struct Batch {
    length: usize,
    number: u64,
    group: Option<u64>,
}

impl Batch {
    /// The batch that `bytes` begins with.
    fn read(bytes: &[u8]) -> Option<Self> {
        let mut cursor = Cursor(bytes);
        let mut group = None;
        (cursor.byte()? == START).then_some(())?;
        let item_count = cursor.number(4)?;
        let number = cursor.number(8)?;
        let items = cursor.0;
        for _ in 0..item_count {
            group = item(&mut cursor)?.or(group);
        }
        let items = items.get(..items.len() - cursor.0.len())?;
        (cursor.byte()? == END).then_some(())?;
        let checksum = cursor.number(8)?;
        (cursor.take(END_MAGIC.len())? == END_MAGIC).then_some(())?;
        (xxh3_64(items) == checksum).then_some(Self {
            length: bytes.len() - cursor.0.len(),
            number,
            group,
        })
    }

    fn follows(&self, last: Last) -> bool {
        let next_group = match (last.group, self.group) {
            (Some(last), Some(group)) => group == last + 1,
            _ => true,
        };
        let number_rises = last
            .number
            .is_none_or(|last| self.number > last && self.number - last <= NUMBER_STEP_MAX);
        next_group && number_rises
    }
}

/// The group that an item carries, if it is the store's own record of it.
fn item(cursor: &mut Cursor<'_>) -> Option<Option<u64>> {
    (cursor.byte()? == ITEM).then_some(())?;
    // The kind of value and its compression.
    cursor.take(2)?;
    let tree = cursor.number(8)?;
    let key_length = cursor.number(2)?;
    // The length of the value before compression.
    cursor.take(4)?;
    let value_length = cursor.number(4)?;
    let key = cursor.take(usize::try_from(key_length).ok()?)?;
    let value = cursor.take(usize::try_from(value_length).ok()?)?;
    let is_group = tree == SYSTEM_TREE && key == record::SEQUENCE;
    Some(is_group.then(|| record::unseal_number(value)).flatten())
}

/// What is left of a journal.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    /// A number of `width` bytes, in fjall's order: the lowest byte first.
    fn number(&mut self, width: usize) -> Option<u64> {
        let bytes = self.take(width)?;
        Some(
            bytes
                .iter()
                .rev()
                .fold(0, |high, low| high << 8 | u64::from(*low)),
        )
    }
}
