//! Files that nobody needs: what a crash left in the folder of a store, and no open deleted.
//!
//! What is promised of rows says nothing about them, and a staged load that stays on the disk
//! is as large as the store itself.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use pop_broker::stores::Backend;

/// What a folder may have after an open and a close: the rows of the table *A data folder* in
/// `docs/FORMAT.md` that outlive an open which keeps no staging. `#` is a number, and what ends
/// with `/` is a folder.
const EVERYWHERE: &[&str] = &["pop.lock", "pop.synced", "pop.store", "engine/"];

/// The engine's own files, which it sweeps by itself. Those that it has only while it makes
/// them (`*.dbtmp` of RocksDB, `snap.#.generating` of sled) are none of them.
const fn of_engine(backend: Backend) -> &'static [&'static str] {
    match backend {
        Backend::Fjall => &[
            "lock",
            "version",
            "#.jnl",
            "keyspaces/",
            "keyspaces/#/",
            "keyspaces/#/current",
            "keyspaces/#/v#",
            "keyspaces/#/tables/",
            "keyspaces/#/tables/#",
        ],
        Backend::Rocksdb => &[
            "CURRENT",
            "IDENTITY",
            "LOCK",
            "LOG",
            "LOG.old.#",
            "MANIFEST-#",
            "OPTIONS-#",
            "#.sst",
            "#.log",
            // Ours.
            "pop.manifest",
        ],
        Backend::Sled => &["conf", "db", "snap.#", "blobs/"],
        Backend::Memory => &[],
    }
}

/// What is in the folder of a store that is closed, and should not be.
///
/// # Errors
///
/// If the folder can't be read.
pub(crate) fn find(backend: Backend, folder: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let mut folders = vec![String::new()];
    while let Some(inside) = folders.pop() {
        for entry in fs::read_dir(folder.join(&inside))? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_str().context("our engines name files in ASCII")?;
            let mut path = format!("{inside}{name}");
            let is_folder = entry.file_type()?.is_dir();
            if is_folder {
                path.push('/');
            }
            if !is_allowed(backend, &path) {
                found.push(path);
            } else if is_folder {
                folders.push(path);
            }
        }
    }
    found.sort_unstable();
    Ok(found)
}

fn is_allowed(backend: Backend, path: &str) -> bool {
    let is_any = |patterns: &[&str], path: &str| patterns.iter().any(|it| matches(it, path));
    let in_engine = path.strip_prefix("engine/");
    is_any(EVERYWHERE, path) || in_engine.is_some_and(|it| is_any(of_engine(backend), it))
}

fn matches(pattern: &str, text: &str) -> bool {
    let Some((before, after)) = pattern.split_once('#') else {
        return pattern == text;
    };
    // sled writes its numbers in capital hexadecimal digits.
    let is_digit = |it: char| it.is_ascii_digit() || matches!(it, 'A'..='F');
    text.strip_prefix(before).is_some_and(|number| {
        let rest = number.trim_start_matches(is_digit);
        rest.len() < number.len() && matches(after, rest)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mutants: RocksDB's `sweep_bulk_loads` does nothing (seen by cuts); look at files alone, or at
    /// the uppermost folder alone; take a name that begins
    /// as one that is allowed; take an empty number, or another engine's files.
    #[test]
    fn what_the_format_does_not_speak_of_is_litter() {
        let folder = tempfile::tempdir().unwrap();
        let make = |path: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        };
        for path in ["pop.lock", "pop.store", "pop.synced", "engine/CURRENT"] {
            make(path);
        }
        for name in [
            "000012.sst",
            "MANIFEST-000005",
            "LOG.old.17",
            "pop.manifest",
        ] {
            make(&format!("engine/{name}"));
        }
        assert_eq!(
            find(Backend::Rocksdb, folder.path()).unwrap(),
            [""; 0],
            "nothing of it is litter"
        );
        make("engine/staging/due@2/0000000000.sst");
        let litter = [
            "engine.new/version",
            "engine/.sst",
            "engine/3.jnl",
            "engine/MANIFEST-000005.before-cut",
            "engine/MANIFEST-000005.before-cut-new",
            "engine/keyspaces/7/current",
            "pop.store.new",
        ];
        litter.into_iter().for_each(make);
        assert_eq!(
            find(Backend::Rocksdb, folder.path()).unwrap(),
            [
                "engine.new/",
                "engine/.sst",
                "engine/3.jnl",
                "engine/MANIFEST-000005.before-cut",
                "engine/MANIFEST-000005.before-cut-new",
                "engine/keyspaces/",
                "engine/staging/",
                "pop.store.new",
            ]
        );
    }

    #[test]
    fn numbers_stand_where_the_pattern_has_them() {
        assert!(matches("keyspaces/#/v#", "keyspaces/12/v3"));
        assert!(matches("snap.#", "snap.00000000000A3F10"));
        for path in ["keyspaces/12/v", "keyspaces/12/v3x", "keyspaces//v3"] {
            assert!(!matches("keyspaces/#/v#", path), "{path}");
        }
        assert!(!matches("snap.#", "snap.00000000000A3F10.generating"));
    }
}
