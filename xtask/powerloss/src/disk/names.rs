//! Names: which there are, and which of the changes to them are on the disk.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use pop_store::testkit::Random;

use super::Model;

/// A file or a folder, whatever its name.
pub(crate) type NodeId = usize;

/// The folder that everything is in.
pub(crate) const ROOT: NodeId = 0;

/// What is in each folder.
pub(crate) type Tree = HashMap<NodeId, BTreeMap<String, NodeId>>;

#[derive(Clone, Debug)]
enum Change {
    Put {
        folder: NodeId,
        name: String,
        node: NodeId,
        is_new: bool,
    },
    Remove {
        folder: NodeId,
        name: String,
    },
    Move {
        from: (NodeId, String),
        to: (NodeId, String),
        node: NodeId,
    },
}

impl Change {
    fn touches(&self, node: NodeId) -> bool {
        match self {
            Self::Put { folder, .. } | Self::Remove { folder, .. } => *folder == node,
            Self::Move { from, to, .. } => from.0 == node || to.0 == node,
        }
    }

    fn makes(&self, made: NodeId) -> bool {
        matches!(self, Self::Put { node, is_new: true, .. } if *node == made)
    }

    fn folders(&self) -> Vec<NodeId> {
        match self {
            Self::Put { folder, .. } | Self::Remove { folder, .. } => vec![*folder],
            Self::Move { from, to, .. } => vec![from.0, to.0],
        }
    }

    fn apply(&self, tree: &mut Tree) {
        let mut remove = |(folder, name): (NodeId, &String)| {
            if let Some(names) = tree.get_mut(&folder) {
                names.remove(name);
            }
        };
        match self {
            Self::Put {
                folder, name, node, ..
            } => {
                tree.entry(*folder).or_default().insert(name.clone(), *node);
            }
            Self::Remove { folder, name } => remove((*folder, name)),
            Self::Move { from, to, node } => {
                remove((from.0, &from.1));
                tree.entry(to.0).or_default().insert(to.1.clone(), *node);
            }
        }
    }
}

/// All names, as they are and as they are for sure.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    now: Tree,
    durable: Tree,
    pending: Vec<(u64, Change)>,
}

impl Names {
    pub(crate) fn now(&self) -> &Tree {
        &self.now
    }

    /// What has the name `path`, which is relative to the root.
    pub(crate) fn find(&self, path: &str) -> Option<NodeId> {
        let names = path.split('/').filter(|name| !name.is_empty());
        let mut node = ROOT;
        for name in names {
            node = *self.now.get(&node)?.get(name)?;
        }
        Some(node)
    }

    /// The folder that `path` is in, and its last name.
    fn parent(&self, path: &str) -> Option<(NodeId, String)> {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        Some((self.find(folder)?, name.to_owned()))
    }

    fn change(&mut self, moment: u64, change: Change) {
        change.apply(&mut self.now);
        self.pending.push((moment, change));
    }

    /// Gives `node` the name `path`; `None` if there is no such folder.
    pub(crate) fn put(
        &mut self,
        moment: u64,
        path: &str,
        node: NodeId,
        is_new: bool,
    ) -> Option<()> {
        let (folder, name) = self.parent(path)?;
        self.change(
            moment,
            Change::Put {
                folder,
                name,
                node,
                is_new,
            },
        );
        Some(())
    }

    pub(crate) fn remove(&mut self, moment: u64, path: &str) -> Option<()> {
        let (folder, name) = self.parent(path)?;
        self.change(moment, Change::Remove { folder, name });
        Some(())
    }

    pub(crate) fn rename(&mut self, moment: u64, from: &str, to: &str) -> Option<()> {
        let node = self.find(from)?;
        let (from, to) = (self.parent(from)?, self.parent(to)?);
        self.change(moment, Change::Move { from, to, node });
        Some(())
    }

    /// All names are durable.
    pub(crate) fn sync_all(&mut self) {
        self.pending.clear();
        self.durable.clone_from(&self.now);
    }

    /// A folder was synced: its names of before `moment` are durable. Where one journal
    /// orders all changes, those before them are too.
    pub(crate) fn sync_folder(&mut self, moment: u64, folder: NodeId, model: Model) {
        match model {
            Model::Ext4 => self.sync_prefix(moment, |change| change.touches(folder)),
            Model::Strict => {
                let durable = &mut self.durable;
                self.pending.retain(|(at, change)| {
                    let is_synced = *at < moment && change.touches(folder);
                    if is_synced {
                        change.apply(durable);
                    }
                    !is_synced
                });
            }
        }
    }

    /// A file was synced: where one journal orders all changes, its making is durable.
    pub(crate) fn sync_file(&mut self, moment: u64, file: NodeId, model: Model) {
        match model {
            Model::Ext4 => self.sync_prefix(moment, |change| change.makes(file)),
            Model::Strict => {}
        }
    }

    fn sync_prefix(&mut self, moment: u64, is_asked: impl Fn(&Change) -> bool) {
        let last = self
            .pending
            .iter()
            .rposition(|(at, change)| *at < moment && is_asked(change));
        let count = last.map_or(0, |last| last + 1);
        for (_, change) in self.pending.drain(..count) {
            change.apply(&mut self.durable);
        }
    }

    /// The names as a power cut may leave them: of the changes that were not synced, a
    /// prefix, of all or of each folder's.
    pub(crate) fn after_cut(&self, model: Model, random: &mut Random) -> Tree {
        let mut tree = self.durable.clone();
        match model {
            Model::Ext4 => {
                let count = draw(random, self.pending.len());
                for (_, change) in self.pending.iter().take(count) {
                    change.apply(&mut tree);
                }
            }
            Model::Strict => {
                let mut left = HashMap::new();
                for folder in self.pending_folders() {
                    let count = self.pending.iter().filter(|it| it.1.touches(folder));
                    left.insert(folder, draw(random, count.count()));
                }
                for (_, change) in &self.pending {
                    let folders: BTreeSet<_> = change.folders().into_iter().collect();
                    let survives = |folder| left.get(folder).is_some_and(|left| *left > 0);
                    let survives = folders.iter().all(survives);
                    for folder in folders {
                        if let Some(left) = left.get_mut(&folder) {
                            *left = if survives { *left - 1 } else { 0 };
                        }
                    }
                    if survives {
                        change.apply(&mut tree);
                    }
                }
            }
        }
        tree
    }

    fn pending_folders(&self) -> BTreeSet<NodeId> {
        self.pending
            .iter()
            .flat_map(|(_, it)| it.folders())
            .collect()
    }
}

/// How many of `count` survive: none and all more often than their share.
fn draw(random: &mut Random, count: usize) -> usize {
    match random.below(4) {
        0 => 0,
        1 => count,
        _ => random.index(count + 1),
    }
}
