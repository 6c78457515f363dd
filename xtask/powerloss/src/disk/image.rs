//! The content of a file: sparse, and cheap to copy.

use std::{collections::BTreeMap, fs::File, io, os::unix::fs::FileExt, path::Path, sync::Arc};

const PAGE_BYTES: usize = 4_096;

/// Bytes that were never written are zero; those above the length too.
#[derive(Clone, Debug, Default)]
pub(crate) struct Image {
    length: u64,
    pages: BTreeMap<u64, Arc<[u8; PAGE_BYTES]>>,
}

impl Image {
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Writes, and makes the file longer if it ends before.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) {
        let mut at = offset;
        let mut rest = data;
        while !rest.is_empty() {
            let (page, start) = (at / PAGE_BYTES as u64, position(at));
            let (now, later) = rest.split_at(rest.len().min(PAGE_BYTES - start));
            let page = self.pages.entry(page);
            let page = Arc::make_mut(page.or_insert_with(|| Arc::new([0; PAGE_BYTES])));
            if let Some(place) = page.get_mut(start..start + now.len()) {
                place.copy_from_slice(now);
            }
            at += now.len() as u64;
            rest = later;
        }
        self.grow(at);
    }

    /// Makes a range zero, and the file no longer.
    pub(crate) fn zero(&mut self, offset: u64, length: u64) {
        let end = offset.saturating_add(length).min(self.length);
        let mut at = offset;
        while at < end {
            let (page, start) = (at / PAGE_BYTES as u64, position(at));
            let next = ((page + 1) * PAGE_BYTES as u64).min(end);
            if next - at == PAGE_BYTES as u64 {
                self.pages.remove(&page);
            } else if let Some(page) = self.pages.get_mut(&page) {
                let count = position(next - at);
                if let Some(place) = Arc::make_mut(page).get_mut(start..start + count) {
                    place.fill(0);
                }
            }
            at = next;
        }
    }

    pub(crate) fn set_length(&mut self, length: u64) {
        if length < self.length {
            self.zero(length, self.length - length);
        }
        self.length = length;
    }

    pub(crate) fn grow(&mut self, length: u64) {
        self.length = self.length.max(length);
    }

    /// Writes the file out, holes as holes.
    pub(crate) fn store(&self, path: &Path) -> io::Result<()> {
        let file = File::create(path)?;
        file.set_len(self.length)?;
        for (page, bytes) in &self.pages {
            let start = page * PAGE_BYTES as u64;
            let count = self.length.saturating_sub(start).min(PAGE_BYTES as u64);
            let count = usize::try_from(count).map_err(io::Error::other)?;
            file.write_all_at(bytes.get(..count).unwrap_or_default(), start)?;
        }
        Ok(())
    }

    /// The first byte in which the file at `path` is another one.
    pub(crate) fn differs_from(&self, path: &Path) -> io::Result<Option<u64>> {
        let file = std::fs::read(path)?;
        let length = file.len() as u64;
        if length != self.length {
            return Ok(Some(length.min(self.length)));
        }
        for (page, theirs) in file.chunks(PAGE_BYTES).enumerate() {
            let ours = self.pages.get(&(page as u64)).map(|it| it.as_slice());
            let ours = ours.unwrap_or(&[0; PAGE_BYTES]);
            let at = theirs
                .iter()
                .zip(ours)
                .position(|(their, our)| their != our);
            if let Some(at) = at {
                return Ok(Some((page * PAGE_BYTES + at) as u64));
            }
        }
        Ok(None)
    }
}

/// Where `offset` is in its page.
fn position(offset: u64) -> usize {
    usize::try_from(offset % PAGE_BYTES as u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use pop_store::testkit::Random;

    use super::*;

    #[test]
    fn it_is_what_a_file_would_be() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for seed in 0..50 {
            let mut random = Random::new(seed);
            let mut image = Image::default();
            let mut model: Vec<u8> = Vec::new();
            for _ in 0..20 {
                let (offset, length) = (random.index(20_000), random.index(9_000));
                match random.below(4) {
                    0 => {
                        image.set_length(offset as u64);
                        model.resize(offset, 0);
                    }
                    1 => {
                        image.zero(offset as u64, length as u64);
                        let end = (offset + length).min(model.len());
                        model[offset.min(end)..end].fill(0);
                    }
                    _ => {
                        let mut data = vec![0; length.max(1)];
                        random.fill(&mut data);
                        image.write(offset as u64, &data);
                        let end = model.len().max(offset + data.len());
                        model.resize(end, 0);
                        model[offset..offset + data.len()].copy_from_slice(&data);
                    }
                }
            }
            std::fs::write(&path, &model).unwrap();
            assert_eq!(image.differs_from(&path).unwrap(), None, "seed {seed}");
            image.store(&path).unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), model, "seed {seed}");
        }
    }

    #[test]
    fn another_byte_and_another_length_are_seen() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mut image = Image::default();
        image.write(5_000, b"x");
        image.store(&path).unwrap();
        image.write(5_000, b"y");
        assert_eq!(image.differs_from(&path).unwrap(), Some(5_000));
        image.set_length(5_000);
        assert_eq!(image.differs_from(&path).unwrap(), Some(5_000));
    }
}
