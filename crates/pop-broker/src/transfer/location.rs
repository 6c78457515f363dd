//! `STORE:FOLDER`: where a store lies, as an operator types it.

use std::{
    convert::Infallible,
    fmt, fs, io,
    path::{Path, PathBuf},
    str::FromStr,
};

use crate::stores::Backend;

// What every store in a folder says of itself; see `pop_store::backend`.
pub(super) const MARKER: &str = "pop.store";

/// A folder, and the store in it where it was named: `rocksdb:/var/lib/pop-broker`, or the
/// path alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The store that was named.
    pub store: Option<Backend>,
    /// The folder.
    pub folder: PathBuf,
}

/// A folder that holds no store of ours, where one is needed.
#[derive(Debug, thiserror::Error)]
pub enum LocationError {
    /// It is not there.
    #[error("folder {} is not there", .0.display())]
    Missing(PathBuf),
    /// It is there, and no store was made in it.
    #[error("folder {} holds no store: there is no {MARKER} in it", .0.display())]
    NoStore(PathBuf),
    /// Its marker names no store of this program.
    #[error("folder {} holds a store that this program does not know: its {MARKER} says {:?}", .folder.display(), .marker)]
    Unknown {
        /// The folder.
        folder: PathBuf,
        /// What its marker says.
        marker: String,
    },
    /// Something else has its name.
    #[error("{} is no folder: name the folder that the store is in, or is to be made in", .0.display())]
    NoFolder(PathBuf),
    /// It holds other files.
    #[error("folder {} holds other files ({entry:?}, for one): choose an empty one, or one that is not there", .folder.display())]
    Taken {
        /// The folder.
        folder: PathBuf,
        /// One of them.
        entry: String,
    },
    /// Memory has no folder.
    #[error("the store memory keeps nothing in a folder: take fjall, rocksdb or sled")]
    Memory,
    /// It can't be looked at.
    #[error("folder {} can't be read", .folder.display())]
    Unreadable {
        /// The folder.
        folder: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl FromStr for Location {
    type Err = Infallible;

    /// What stands before the first colon is a store if it has the name of one.
    fn from_str(text: &str) -> Result<Self, Infallible> {
        let named = text.split_once(':').and_then(|(store, folder)| {
            let store = Some(store.parse().ok()?);
            let folder = folder.into();
            Some(Self { store, folder })
        });
        Ok(named.unwrap_or_else(|| Self {
            store: None,
            folder: text.into(),
        }))
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.store {
            Some(store) => write!(f, "{store}:{}", self.folder.display()),
            None => write!(f, "{}", self.folder.display()),
        }
    }
}

impl Location {
    /// The store that lies there: the one that was named, or the one that the folder names.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn existing(&self) -> Result<Backend, LocationError> {
        if self.store == Some(Backend::Memory) {
            return Err(LocationError::Memory);
        }
        match (stored_in(&self.folder)?, self.store) {
            // A folder of another store is refused when it is opened, by name.
            (Some(_), Some(named)) => Ok(named),
            (Some(found), None) => Ok(found),
            (None, _) if self.folder.is_dir() => Err(LocationError::NoStore(self.folder.clone())),
            (None, _) if self.folder.exists() => Err(LocationError::NoFolder(self.folder.clone())),
            (None, _) => Err(LocationError::Missing(self.folder.clone())),
        }
    }

    /// The store that is there or is to be made there: the one that was named, the one that
    /// the folder names, or else `usual`.
    ///
    /// # Errors
    ///
    /// If it can't be one.
    pub fn wanted(&self, usual: Backend) -> Result<Backend, LocationError> {
        match self.store {
            Some(Backend::Memory) => Err(LocationError::Memory),
            Some(store) => Ok(store),
            None => Ok(stored_in(&self.folder)?.unwrap_or(usual)),
        }
    }
}

/// The store that a folder says it holds.
fn stored_in(folder: &Path) -> Result<Option<Backend>, LocationError> {
    let marker = match fs::read_to_string(folder.join(MARKER)) {
        Ok(marker) => marker,
        Err(error) if is_absent(&error) => return Ok(None),
        Err(source) => {
            let folder = folder.to_owned();
            return Err(LocationError::Unreadable { folder, source });
        }
    };
    let name = marker.lines().find_map(|it| it.strip_prefix("backend "));
    let known = name.and_then(|name| name.parse().ok());
    known.map(Some).ok_or_else(|| LocationError::Unknown {
        folder: folder.to_owned(),
        marker: marker.chars().take(80).collect(),
    })
}

fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(text: &str) -> Location {
        text.parse().unwrap()
    }

    #[test]
    fn a_store_is_named_before_the_first_colon_and_other_colons_are_of_the_path() {
        let named = location("rocksdb:/data");
        assert_eq!(named.store, Some(Backend::Rocksdb));
        assert_eq!(named.folder, Path::new("/data"));
        assert_eq!(named.to_string(), "rocksdb:/data");
        for alone in ["/data", "/da:ta", "C:/data", "rocksdb"] {
            let expected = Location {
                store: None,
                folder: alone.into(),
            };
            assert_eq!(location(alone), expected);
        }
    }

    // Mutant: the marker is not looked at.
    #[test]
    fn a_folder_says_which_store_it_holds() {
        let folder = tempfile::tempdir().unwrap();
        let at = location(folder.path().to_str().unwrap());
        assert!(matches!(at.existing(), Err(LocationError::NoStore(_))));
        assert_eq!(at.wanted(Backend::Fjall).unwrap(), Backend::Fjall);
        let write = |text: &str| fs::write(folder.path().join(MARKER), text).unwrap();
        write("pop-store\nformat 1\nbackend sled\n");
        assert_eq!(at.existing().unwrap(), Backend::Sled);
        assert_eq!(at.wanted(Backend::Fjall).unwrap(), Backend::Sled);
        write("pop-store\nformat 1\nbackend marble\n");
        assert!(matches!(at.existing(), Err(LocationError::Unknown { .. })));
    }

    #[test]
    fn what_is_not_there_and_what_can_not_be_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let missing = Location {
            store: None,
            folder: folder.path().join("missing"),
        };
        assert!(matches!(missing.existing(), Err(LocationError::Missing(_))));
        let memory = location("memory:/data");
        assert!(matches!(memory.existing(), Err(LocationError::Memory)));
        assert!(matches!(
            memory.wanted(Backend::Fjall),
            Err(LocationError::Memory)
        ));
    }
}
