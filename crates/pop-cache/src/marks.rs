//! Which offsets are settled, in pages of 4,096, as they are stored.

use std::collections::BTreeMap;

use pop_model::{MarkPage, Offset};

/// Settled offsets at or above the committed one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Marks {
    pages: BTreeMap<u64, MarkPage>,
}

impl Marks {
    pub(crate) fn restore(pages: impl IntoIterator<Item = (u64, MarkPage)>) -> Self {
        Self {
            pages: pages.into_iter().collect(),
        }
    }

    pub(crate) fn contains(&self, offset: Offset) -> bool {
        let (page, bit) = MarkPage::locate(offset);
        self.pages.get(&page).is_some_and(|marks| marks.get(bit))
    }

    pub(crate) fn insert(&mut self, offset: Offset) {
        let (page, bit) = MarkPage::locate(offset);
        self.pages.entry(page).or_default().set(bit);
    }

    /// The page as it is with `offsets` settled too.
    pub(crate) fn page_with(&self, page: u64, offsets: &[Offset]) -> MarkPage {
        let mut marks = self.pages.get(&page).cloned().unwrap_or_default();
        for offset in offsets {
            let (of, bit) = MarkPage::locate(*offset);
            if of == page {
                marks.set(bit);
            }
        }
        marks
    }

    /// The pages that lie wholly below `gate`.
    pub(crate) fn pages_below(&self, gate: Offset) -> Vec<u64> {
        let (first_kept, _) = MarkPage::locate(gate);
        self.pages
            .range(..first_kept)
            .map(|(page, _)| *page)
            .collect()
    }

    pub(crate) fn drop_pages(&mut self, pages: &[u64]) {
        for page in pages {
            self.pages.remove(page);
        }
    }
}
