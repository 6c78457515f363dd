//! Chance from a seed, so that every found failure can be found again.

/// A small generator (SplitMix64): the same seed gives the same numbers on every machine.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Numbers that follow from `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`.
    ///
    /// # Panics
    ///
    /// If `bound` is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "nothing is below zero");
        // The bias is below bound / 2^64, far less than any test could see.
        self.next_u64() % bound
    }

    /// An index into something of this length.
    ///
    /// # Panics
    ///
    /// If `len` is zero.
    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).expect("it is below a usize")
    }

    /// True with a chance of `parts` in `whole`.
    pub fn chance(&mut self, parts: u64, whole: u64) -> bool {
        self.below(whole) < parts
    }

    /// Fills `bytes`; they don't compress.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.next_u64().to_be_bytes();
            for (byte, random) in chunk.iter_mut().zip(word) {
                *byte = random;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_a_seed_never_change() {
        let mut random = Random::new(0);
        assert_eq!(random.next_u64(), 0xE220_A839_7B1D_CDAF);
        assert_eq!(random.next_u64(), 0x6E78_9E6A_A1B9_65F4);
    }

    #[test]
    fn filled_bytes_depend_on_the_seed_alone() {
        let fill = |seed| {
            let mut bytes = [0; 13];
            Random::new(seed).fill(&mut bytes);
            bytes
        };
        assert_eq!(fill(7), fill(7));
        assert_ne!(fill(7), fill(8));
    }
}
