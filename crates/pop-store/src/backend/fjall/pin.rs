//! A tree that is kept only for its number.
//!
//! fjall numbers its trees, and after a restart goes on behind the highest one that is there.
//! Its list of trees remembers deleted ones as tombstones, whose sequence numbers a restart
//! may begin below. A tree that got the number of a deleted one would then be hidden by those
//! tombstones: gone at the next open, with all that is in it. So before a tree is deleted, one
//! with a higher number is made and stays, and no number is ever given out twice.

use std::io;

use fjall::{Database, Keyspace as Tree, KeyspaceCreateOptions};

// No space has such a name.
const PREFIX: &str = "pin-";

/// The trees that stand for the highest number.
pub(super) struct Pins {
    kept: Vec<(u64, Tree)>,
    // A tree may have been made behind them.
    outnumbered: bool,
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
        })
    }

    pub(super) fn a_tree_was_made(&mut self) {
        self.outnumbered = true;
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
        Ok(())
    }
}

fn tree(database: &Database, number: u64) -> fjall::Result<Tree> {
    database.keyspace(&format!("{PREFIX}{number}"), KeyspaceCreateOptions::default)
}
