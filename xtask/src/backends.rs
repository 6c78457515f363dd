//! The backends that the store can be built with, and how a flag names them.

use std::fmt;
use std::str::FromStr;

/// One engine under the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// Always compiled in; keeps nothing.
    Memory,
    /// The default of the broker: pure Rust, built by rustc alone.
    Fjall,
    /// Pure Rust, built by rustc alone.
    Sled,
    /// C++, so it needs more than rustc: see [`native`](crate::native).
    Rocksdb,
}

impl Backend {
    /// Cheapest to build first, so that a failure shows early.
    pub const ALL: [Self; 4] = [Self::Memory, Self::Fjall, Self::Sled, Self::Rocksdb];

    /// What rustc builds alone.
    pub const RUST_ALONE: [Self; 3] = [Self::Memory, Self::Fjall, Self::Sled];

    /// What `--store` and `--backend` call it; also its Cargo feature, if it has one.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Fjall => "fjall",
            Self::Sled => "sled",
            Self::Rocksdb => "rocksdb",
        }
    }

    /// The Cargo feature that compiles it in.
    pub const fn feature(self) -> Option<&'static str> {
        match self {
            Self::Memory => None,
            Self::Fjall | Self::Sled | Self::Rocksdb => Some(self.name()),
        }
    }

    /// Whether a record outlives the process.
    pub fn is_durable(self) -> bool {
        self != Self::Memory
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Backend {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|backend| backend.name() == name)
            .ok_or_else(|| format!("no backend `{name}`: take memory, fjall, sled or rocksdb"))
    }
}

/// The value of a `--backend` that also takes `all`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// Every backend there is.
    All,
    /// This one alone.
    One(Backend),
}

impl Selection {
    /// The backends selected, cheapest first.
    pub fn backends(self) -> Vec<Backend> {
        match self {
            Self::All => Backend::ALL.to_vec(),
            Self::One(backend) => vec![backend],
        }
    }
}

impl FromStr for Selection {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "all" => Ok(Self::All),
            _ => Backend::from_str(name)
                .map(Self::One)
                .map_err(|error| format!("{error}, or all")),
        }
    }
}

/// The features of a broker with `backends`: they, and what its program has on any of them.
pub fn broker_features(backends: &[Backend]) -> String {
    let features = backends.iter().filter_map(|it| it.feature());
    let features: Vec<_> = features.chain(["mimalloc"]).collect();
    features.join(",")
}

/// A list for `--features`; empty if `backends` need none.
pub fn features(backends: &[Backend]) -> String {
    let features: Vec<_> = backends.iter().filter_map(|it| it.feature()).collect();
    features.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_backend_is_found_by_its_name() {
        for backend in Backend::ALL {
            assert_eq!(backend.name().parse(), Ok(backend));
            assert_eq!(backend.name().parse(), Ok(Selection::One(backend)));
        }
    }

    #[test]
    fn a_wrong_name_is_answered_with_the_right_ones() {
        let error = "leveldb"
            .parse::<Selection>()
            .expect_err("there is no such backend");
        for backend in Backend::ALL {
            assert!(error.contains(backend.name()), "{error}");
        }
        assert!(error.contains("all"), "{error}");
    }

    #[test]
    fn memory_needs_no_feature() {
        assert_eq!(features(&[Backend::Memory]), "");
        assert_eq!(broker_features(&[Backend::Memory]), "mimalloc");
        assert_eq!(features(&Backend::ALL), "fjall,sled,rocksdb");
    }
}
