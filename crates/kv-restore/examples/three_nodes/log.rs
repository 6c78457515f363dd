//! A log in memory. What is in it survives the node, as a disk would.

use std::{collections::BTreeMap, fmt::Debug, io, ops::RangeBounds, sync::Arc};

use openraft::{
    LogState, OptionalSend, RaftLogReader,
    storage::{IOFlushed, RaftLogStorage},
    type_config::alias::{EntryOf, LogIdOf, VoteOf},
};
use parking_lot::Mutex;

use super::machine::Types;

/// The log of one node. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    entries: BTreeMap<u64, EntryOf<Types>>,
    purged: Option<LogIdOf<Types>>,
    vote: Option<VoteOf<Types>>,
}

impl RaftLogReader<Types> for Log {
    async fn try_get_log_entries<RB>(&mut self, range: RB) -> io::Result<Vec<EntryOf<Types>>>
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let inner = self.0.lock();
        Ok(inner.entries.range(range).map(|it| it.1.clone()).collect())
    }

    async fn read_vote(&mut self) -> io::Result<Option<VoteOf<Types>>> {
        Ok(self.0.lock().vote)
    }
}

impl RaftLogStorage<Types> for Log {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> io::Result<LogState<Types>> {
        let inner = self.0.lock();
        let last = inner.entries.last_key_value().map(|it| it.1.log_id);
        Ok(LogState {
            last_purged_log_id: inner.purged,
            last_log_id: last.or(inner.purged),
        })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &VoteOf<Types>) -> io::Result<()> {
        self.0.lock().vote = Some(*vote);
        Ok(())
    }

    async fn append<I>(&mut self, entries: I, done: IOFlushed<Types>) -> io::Result<()>
    where
        I: IntoIterator<Item = EntryOf<Types>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries = entries.into_iter().map(|it| (it.log_id.index(), it));
        self.0.lock().entries.extend(entries);
        done.io_completed(Ok(()));
        Ok(())
    }

    async fn truncate_after(&mut self, last: Option<LogIdOf<Types>>) -> io::Result<()> {
        let first_gone = last.map_or(0, |it| it.index() + 1);
        self.0.lock().entries.split_off(&first_gone);
        Ok(())
    }

    async fn purge(&mut self, upto: LogIdOf<Types>) -> io::Result<()> {
        let mut inner = self.0.lock();
        inner.purged = Some(upto);
        inner.entries = inner.entries.split_off(&(upto.index() + 1));
        Ok(())
    }
}
