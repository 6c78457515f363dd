//! A tree that is kept only for its number.
//!
//! fjall numbers its trees, and after a restart goes on behind the highest one that is there.
//! Its list of trees remembers deleted ones as tombstones, whose sequence numbers a restart
//! may begin below. A tree that got the number of a deleted one would then be hidden by those
//! tombstones: gone at the next open, with all that is in it. So before a tree is deleted, one
//! with a higher number is made and stays, and no number is ever given out twice.
//!
//! The same would become of a tree that got the number of one whose making was cut: its entry
//! in the list may be on the disk without its folder, which alone fjall looks at. Each tree has
//! its folder on the disk before the next one is made, so that the number in doubt is the one
//! behind the highest. An open skips it, and the first tree that is made then is a pin: so a
//! number that an open begins with is in doubt between pins alone.

use std::{fs, io, path::Path};

use fjall::{Database, Keyspace as Tree, KeyspaceCreateOptions};

// No space has such a name.
const PREFIX: &str = "pin-";

/// The trees that stand for the highest number.
pub(super) struct Pins {
    kept: Vec<(u64, Tree)>,
    // A tree may have been made behind them.
    outnumbered: bool,
    // One was made since the open.
    leads: bool,
}

impl Pins {
    /// Those of a database that was just opened.
    pub(super) fn of(database: &Database) -> fjall::Result<Self> {
        let names = database.list_keyspace_names();
        let numbers = names
            .iter()
            .filter_map(|it| it.strip_prefix(PREFIX)?.parse().ok());
        let kept = numbers.map(|number| Ok((number, tree(database, number)?)));
        Ok(Self {
            kept: kept.collect::<fjall::Result<_>>()?,
            outnumbered: true,
            leads: false,
        })
    }

    pub(super) fn a_tree_was_made(&mut self) {
        self.outnumbered = true;
    }

    /// Makes one before any other tree is made since the open.
    pub(super) fn lead(
        &mut self,
        database: &Database,
        sync_folder: impl FnOnce() -> io::Result<()>,
    ) -> fjall::Result<()> {
        match self.leads {
            true => Ok(()),
            false => self.outnumber(database, sync_folder),
        }
    }

    /// Makes sure that a tree stays whose number is above those of all others.
    pub(super) fn outnumber(
        &mut self,
        database: &Database,
        sync_folder: impl FnOnce() -> io::Result<()>,
    ) -> fjall::Result<()> {
        if !self.outnumbered {
            return Ok(());
        }
        let highest = self.kept.iter().map(|(number, _)| *number).max();
        let number = highest.map_or(0, |it| it + 1);
        let pin = tree(database, number)?;
        sync_folder()?;
        for (_, old) in self.kept.drain(..) {
            database.delete_keyspace(old)?;
        }
        self.kept.push((number, pin));
        self.outnumbered = false;
        self.leads = true;
        Ok(())
    }
}

/// Has the next open begin behind the number after the highest one: fjall counts a folder that
/// is empty and removes it. `trees` is where they are; without any there is nothing to skip.
pub(super) fn skip_number(trees: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(trees) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut highest: u64 = 0;
    for entry in entries {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|it| it.parse().ok());
        highest = highest.max(number.unwrap_or(0));
    }
    fs::create_dir(trees.join((highest + 1).to_string()))
}

fn tree(database: &Database, number: u64) -> fjall::Result<Tree> {
    database.keyspace(&format!("{PREFIX}{number}"), KeyspaceCreateOptions::default)
}
