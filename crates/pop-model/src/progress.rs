//! How far a group has come in a queue: the committed offset, and what is settled above.

use bytes::BufMut;

use crate::{
    CodecError, Offset, StoredValue, SubscriptionEpoch, codec::reader::Reader,
    limits::MARK_PAGE_OFFSETS,
};

/// The committed offset of a subscription queue: everything below it is settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Where popping resumes.
    pub committed: Offset,
    /// How often the offset was reset before.
    pub epoch: SubscriptionEpoch,
}

impl StoredValue for Progress {
    const WHAT: &'static str = "progress";

    fn write(&self, out: &mut Vec<u8>) {
        out.put_u64(self.committed.get());
        out.put_u64(self.epoch.get());
    }

    fn read(reader: &mut Reader) -> Result<Self, CodecError> {
        Ok(Self {
            committed: Offset::new(reader.u64()?),
            epoch: SubscriptionEpoch::new(reader.u64()?),
        })
    }

    fn size_hint(&self) -> usize {
        16
    }
}

const WORDS: usize = 64;
const _: () = assert!(
    WORDS as u64 * 64 == MARK_PAGE_OFFSETS,
    "a page is 64 words of 64 bits"
);

/// 4,096 offsets, each settled or not.
#[derive(Clone, PartialEq, Eq)]
pub struct MarkPage {
    words: Box<[u64; WORDS]>,
}

impl MarkPage {
    /// The page of an offset, and its place on that page.
    #[must_use]
    pub const fn locate(offset: Offset) -> (u64, u16) {
        let place = offset.get() % MARK_PAGE_OFFSETS;
        let place = place as u16;
        (offset.get() / MARK_PAGE_OFFSETS, place)
    }

    /// Whether the offset at `place` is settled. Nothing outside the page is.
    #[must_use]
    pub fn get(&self, place: u16) -> bool {
        let word = self.words.get(usize::from(place) / 64);
        word.is_some_and(|word| word >> (place % 64) & 1 == 1)
    }

    /// Settles the offset at `place`, which [`MarkPage::locate`] gave.
    ///
    /// # Panics
    ///
    /// If the page has no such place: the mark would be lost, and its message delivered
    /// again.
    pub fn set(&mut self, place: u16) {
        let Some(word) = self.words.get_mut(usize::from(place) / 64) else {
            panic!("place {place} is not on a page of {MARK_PAGE_OFFSETS}");
        };
        *word |= 1 << (place % 64);
    }

    /// Opens the offset at `place` again, where a page is written without it.
    pub fn clear(&mut self, place: u16) {
        if let Some(word) = self.words.get_mut(usize::from(place) / 64) {
            *word &= !(1 << (place % 64));
        }
    }

    /// The first place from `place` on that is not settled.
    #[must_use]
    pub fn first_open_from(&self, place: u16) -> Option<u16> {
        let first = usize::from(place) / 64;
        // Those below `place` in its own word count as settled.
        let mut below = (1_u64 << (place % 64)) - 1;
        for (index, word) in self.words.iter().enumerate().skip(first) {
            let settled = word | below;
            below = 0;
            if settled != u64::MAX {
                let place = index * 64 + settled.trailing_ones() as usize;
                return u16::try_from(place).ok();
            }
        }
        None
    }

    /// The offset after the last settled one of page `number`; its first one if none is.
    #[must_use]
    pub fn end(&self, number: u64) -> Offset {
        let base = number.saturating_mul(MARK_PAGE_OFFSETS);
        let last = self
            .words
            .iter()
            .enumerate()
            .rev()
            .find(|(_, word)| **word != 0);
        let after = last.map_or(0, |(index, word)| {
            index as u64 * 64 + 64 - u64::from(word.leading_zeros())
        });
        Offset::new(base.saturating_add(after))
    }

    /// How many places from `from` up to and without `to` are settled; up to the end of the
    /// page without a `to`.
    #[must_use]
    pub fn count_between(&self, from: u16, to: Option<u16>) -> u32 {
        let to = to.map_or(WORDS * 64, usize::from);
        let from = usize::from(from);
        let mut count = 0;
        for (index, word) in self.words.iter().enumerate() {
            let base = index * 64;
            let mut word = *word;
            if base + 64 <= from || base >= to {
                continue;
            }
            if from > base {
                word &= u64::MAX << (from - base);
            }
            if to < base + 64 {
                word &= (1 << (to - base)) - 1;
            }
            count += word.count_ones();
        }
        count
    }

    /// How many offsets are settled.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }
}

impl Default for MarkPage {
    fn default() -> Self {
        Self {
            words: Box::new([0; WORDS]),
        }
    }
}

impl std::fmt::Debug for MarkPage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MarkPage({} settled)", self.count())
    }
}

impl StoredValue for MarkPage {
    const WHAT: &'static str = "page of settled marks";

    /// A mask of the words that are not zero, and those words: a page with few marks is small.
    fn write(&self, out: &mut Vec<u8>) {
        let mask = self
            .words
            .iter()
            .rev()
            .fold(0_u64, |mask, word| mask << 1 | u64::from(*word != 0));
        out.put_u64(mask);
        for word in self.words.iter().filter(|word| **word != 0) {
            out.put_u64(*word);
        }
    }

    fn read(reader: &mut Reader) -> Result<Self, CodecError> {
        let mask = reader.u64()?;
        let mut page = Self::default();
        for (index, word) in page.words.iter_mut().enumerate() {
            if mask >> index & 1 == 1 {
                *word = reader.u64()?;
                // One form for one page, so that comparing bytes compares pages.
                if *word == 0 {
                    return Err(reader.bad("mask"));
                }
            }
        }
        Ok(page)
    }

    fn size_hint(&self) -> usize {
        8 + 8 * self.words.iter().filter(|word| **word != 0).count()
    }
}
