//! A disk as the recorded process saw it, and as a power cut may leave it.
//!
//! Fed with the events of a record, one after the other, it keeps apart what is there for
//! sure and what was never synced. What was not synced survives or not, in whole or in
//! part, as a seed says; names that were not synced survive as a prefix of their changes.

mod file;
mod folder;
mod image;
mod names;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, ops::Range, sync::Arc};

use anyhow::{Context, Result, bail, ensure};
use pop_powerloss_trace::{Event, SyncCall};

pub(crate) use self::file::SECTOR_BYTES;
use self::{
    file::{Change, File},
    names::{Names, NodeId, ROOT},
};

/// What a file system promises of names and lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Model {
    /// One journal orders all changes of names; a sync of a file makes the file's making
    /// durable; a length covers only what was written. As ext4 with its defaults.
    Ext4,
    /// A name is durable once its folder was synced, and folders keep no order among each
    /// other; a length may come before its bytes. What POSIX leaves open.
    Strict,
}

/// What counts as durable.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) model: Model,
    /// As if `sync_file_range` were a sync. It is not.
    pub(crate) range_counts: bool,
    /// Syncs that count for nothing: by call, and by the end of the file's path.
    pub(crate) ignored: Vec<(SyncCall, String)>,
}

impl Model {
    pub(crate) const ALL: [Self; 2] = [Self::Ext4, Self::Strict];
}

impl Rules {
    pub(crate) fn of(model: Model) -> Self {
        Self {
            model,
            range_counts: false,
            ignored: Vec::new(),
        }
    }
}

#[derive(Clone, Debug)]
struct Open {
    node: NodeId,
    path: Arc<str>,
    sync: bool,
}

/// A disk at one moment of a record.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    rules: Arc<Rules>,
    log: Arc<Vec<u8>>,
    moment: u64,
    /// A folder is a node without content.
    files: HashMap<NodeId, File>,
    node_count: usize,
    names: Names,
    open: HashMap<u64, Open>,
    /// Syncs under way: what they sync, and the moment they promise.
    syncs: HashMap<u64, (NodeId, u64)>,
}

impl Disk {
    /// An empty folder, before the first event of `log`.
    pub(crate) fn new(rules: Rules, log: Arc<Vec<u8>>) -> Self {
        Self {
            rules: Arc::new(rules),
            log,
            moment: 0,
            files: HashMap::new(),
            node_count: ROOT + 1,
            names: Names::default(),
            open: HashMap::new(),
            syncs: HashMap::new(),
        }
    }

    /// The same disk, before the first event of `log`.
    pub(crate) fn with_log(mut self, log: Arc<Vec<u8>>) -> Self {
        self.log = log;
        self
    }

    /// Follows one event.
    ///
    /// # Errors
    ///
    /// If the record is not one of a folder that was empty, or has a blind spot.
    pub(crate) fn follow(&mut self, event: &Event<Range<usize>>) -> Result<()> {
        self.moment += 1;
        let moment = self.moment;
        match event {
            Event::Open {
                fd,
                path,
                create,
                truncate,
                sync,
            } => self.opened(*fd, path, (*create, *truncate, *sync))?,
            Event::Close { fd } => drop(self.open.remove(fd)),
            Event::Dup { old, new } => {
                let open = self.open_at(*old)?.clone();
                self.open.insert(*new, open);
            }
            Event::Write { fd, offset, data } => self.changed(
                *fd,
                Change::Write {
                    offset: *offset,
                    data: data.clone(),
                },
            )?,
            Event::Zero { fd, offset, length } => self.changed(
                *fd,
                Change::Zero {
                    offset: *offset,
                    length: *length,
                },
            )?,
            Event::SetLength { fd, length } => self.changed(*fd, Change::SetLength(*length))?,
            Event::Grow { fd, length } => self.changed(*fd, Change::Grow(*length))?,
            Event::SyncBegin { id, fd, call } => {
                let open = self.open_at(*fd)?;
                if self.counts(*call, &open.path) {
                    self.syncs.insert(*id, (open.node, moment));
                }
            }
            Event::SyncEnd { id } => self.synced(*id),
            Event::Rename { from, to } => {
                let renamed = self.names.rename(moment, from, to);
                renamed.with_context(|| format!("{from} became {to} and was not there"))?;
            }
            Event::Unlink { path } | Event::RemoveFolder { path } => {
                let removed = self.names.remove(moment, path);
                removed.with_context(|| format!("{path} went and was not there"))?;
            }
            Event::MakeFolder { path } => {
                let node = self.next_node();
                let made = self.names.put(moment, path, node, true);
                made.with_context(|| format!("{path} was made nowhere"))?;
            }
            Event::Link { from, to } => {
                let node = self.find(from)?;
                let linked = self.names.put(moment, to, node, false);
                linked.with_context(|| format!("{to} was made nowhere"))?;
            }
            Event::Mark { .. } => {}
            Event::Blind { what } => bail!("the recorder can't follow {what}"),
        }
        Ok(())
    }

    fn counts(&self, call: SyncCall, path: &str) -> bool {
        let rules = &self.rules;
        let is_ignored =
            |(ignored, end): &(SyncCall, String)| *ignored == call && path.ends_with(end.as_str());
        (call != SyncCall::Range || rules.range_counts) && !rules.ignored.iter().any(is_ignored)
    }

    fn next_node(&mut self) -> NodeId {
        self.node_count += 1;
        self.node_count - 1
    }

    fn find(&self, path: &str) -> Result<NodeId> {
        let found = self.names.find(path);
        found.with_context(|| format!("{path} was used and is not there"))
    }

    fn open_at(&self, fd: u64) -> Result<&Open> {
        let open = self.open.get(&fd);
        open.with_context(|| format!("descriptor {fd} was used and is not open"))
    }

    fn opened(
        &mut self,
        fd: u64,
        path: &str,
        (create, truncate, sync): (bool, bool, bool),
    ) -> Result<()> {
        let node = match self.names.find(path) {
            Some(node) => node,
            None => {
                ensure!(create, "{path} was opened and is not there");
                let node = self.next_node();
                self.files.insert(node, File::default());
                let made = self.names.put(self.moment, path, node, true);
                made.with_context(|| format!("{path} was made nowhere"))?;
                node
            }
        };
        let path = path.into();
        self.open.insert(fd, Open { node, path, sync });
        if truncate {
            self.changed(fd, Change::SetLength(0))?;
        }
        Ok(())
    }

    fn changed(&mut self, fd: u64, change: Change) -> Result<()> {
        let Open { node, path, sync } = self.open_at(fd)?.clone();
        let file = self.files.get_mut(&node);
        let file = file.with_context(|| format!("{path} was written and is a folder"))?;
        file.change(self.moment, change, sync);
        Ok(())
    }

    fn synced(&mut self, id: u64) {
        let Some((node, moment)) = self.syncs.remove(&id) else {
            return;
        };
        let model = self.rules.model;
        match self.files.get_mut(&node) {
            Some(file) => {
                file.sync(moment, &self.log);
                self.names.sync_file(moment, node, model);
            }
            None => self.names.sync_folder(moment, node, model),
        }
    }
}
