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
