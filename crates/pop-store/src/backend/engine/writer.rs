//! The group committer: one thread that writes all batches that are waiting as one, syncs
//! once, and answers all.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, TryRecvError},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;

use super::{
    Changes, Engine, Operation, Space,
    answer::Answer,
    checkpoint::Checkpoint,
    core::Core,
    disk::DiskGuard,
    layout::Layout,
    pace,
    preimage::Watched,
    readers::Readers,
    record,
    staged::{Retired, Staged},
};
use crate::{
    Durability, Error, ErrorKind, Keyspace, Result, WriteBatch,
    backend::folder::{DataFolder, HighWater},
    merge::Group,
};

// One group is at most this and one batch more: it bounds the latency that a group adds
// and the size of an engine's log record.
const GROUP_BYTES_MAX: usize = 8 << 20;
const GROUP_KEYS_MAX: usize = 16_384;

type TaskFn<E> = Box<dyn FnOnce(&mut Writer<E>) + Send>;

/// What the writer is asked to do, in the order asked.
pub(super) enum Job<E: Engine> {
    Write(Pending),
    Task(TaskFn<E>),
    Close(Answer<()>),
    #[cfg(test)]
    Die,
}

impl<E: Engine> fmt::Debug for Job<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Write(_) => "Write",
            Self::Task(_) => "Task",
            Self::Close(_) => "Close",
            #[cfg(test)]
            Self::Die => "Die",
        })
    }
}

/// A batch that waits for its group.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) batch: WriteBatch,
    pub(super) durability: Durability,
    pub(super) answer: Answer<()>,
    /// Its room in the queue, given back when it is answered.
    pub(super) permit: OwnedSemaphorePermit,
}

/// The batches of one group, by what is known of them so far.
#[derive(Default)]
struct Waiting {
    accepted: Vec<(Answer<()>, OwnedSemaphorePermit)>,
    // Answered with the group: the conflict was seen through batches that may yet fail.
    rejected: Vec<(Answer<()>, Error)>,
}

/// The writer's own state. Nothing else writes to the engine.
pub(super) struct Writer<E: Engine> {
    pub(super) core: Arc<Core>,
    pub(super) engine: Arc<E>,
    pub(super) inbox: Receiver<Job<E>>,
    pub(super) readers: Readers<E>,
    pub(super) folder: Option<DataFolder>,
    pub(super) high_water: Option<HighWater>,
    pub(super) disk: Option<DiskGuard>,
    pub(super) buffered_sync: Duration,
    pub(super) system: Space,
    /// The number of the last group that was applied.
    pub(super) sequence: u64,
    /// When the oldest group that is not synced was applied.
    pub(super) dirty_since: Option<Instant>,
    pub(super) staging: Option<Staged>,
    /// A staging that was checkpointed and let go of.
    pub(super) kept: Option<Checkpoint>,
    pub(super) retired: Retired,
    pub(super) watched: Watched,
    /// A job that was taken from the inbox while a group was gathered and is none of it.
    pub(super) carried: Option<Job<E>>,
}

enum Next<E: Engine> {
    Job(Job<E>),
    SyncDue,
    Abandoned,
}

/// Refuses all later calls when the writer ends, in whatever way.
struct StopOnDrop(Arc<Core>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0
            .stop("the store's writer thread ended: reopen the store");
    }
}

impl<E: Engine> Writer<E> {
    /// Works until the store is closed or every handle is gone.
    pub(super) fn run(mut self) {
        let _stop = StopOnDrop(Arc::clone(&self.core));
        let closing = loop {
            match self.next() {
                Next::Job(Job::Write(first)) => self.write_group(first),
                Next::Job(Job::Task(task)) => self.run_task(task),
                Next::Job(Job::Close(answer)) => break Some(answer),
                #[cfg(test)]
                Next::Job(Job::Die) => panic!("the writer was told to die"),
                Next::SyncDue => {}
                Next::Abandoned => break None,
            }
            // Also under steady load, in which the wait never times out.
            if self.sync_due_in() == Some(Duration::ZERO) {
                // A failure has poisoned the store; nobody waits for this sync.
                let _ = self.sync();
            }
        };
        self.finish(closing);
    }

    fn next(&mut self) -> Next<E> {
        if let Some(job) = self.carried.take() {
            return Next::Job(job);
        }
        let received = match self.sync_due_in() {
            Some(wait) => self.inbox.recv_timeout(wait),
            None => self
                .inbox
                .recv()
                .map_err(|_| RecvTimeoutError::Disconnected),
        };
        match received {
            Ok(job) => Next::Job(job),
            Err(RecvTimeoutError::Timeout) => Next::SyncDue,
            Err(RecvTimeoutError::Disconnected) => Next::Abandoned,
        }
    }

    fn sync_due_in(&self) -> Option<Duration> {
        let age = pace::now().duration_since(self.dirty_since?);
        Some(self.buffered_sync.saturating_sub(age))
    }

    fn write_group(&mut self, first: Pending) {
        let layout = Arc::clone(&self.core.layout.read());
        let mut group = Group::new();
        let mut waiting = Waiting::default();
        let mut sync = false;
        let mut next = Some(first);
        while let Some(mut pending) = next.take() {
            let added = self.core.check("write").and_then(|()| {
                group.add(self.core.name, pending.batch, |keyspace, key| {
                    self.read(&layout, keyspace, key)
                })
            });
            match added {
                Ok(()) => {
                    sync |= pending.durability == Durability::Synced;
                    pending.answer.begin();
                    waiting.accepted.push((pending.answer, pending.permit));
                }
                Err(error) => waiting.rejected.push((pending.answer, error)),
            }
            if group.byte_count() < GROUP_BYTES_MAX && group.key_count() < GROUP_KEYS_MAX {
                next = self.take_write();
            }
        }
        let outcome = if waiting.accepted.is_empty() {
            Ok(())
        } else if group.is_empty() {
            if sync { self.sync() } else { Ok(()) }
        } else {
            self.admit(group.byte_count())
                .and_then(|()| self.commit("write", changes(group, &layout), sync))
        };
        self.answer(waiting, &outcome);
    }

    fn take_write(&mut self) -> Option<Pending> {
        match self.inbox.try_recv() {
            Ok(Job::Write(pending)) => Some(pending),
            Ok(other) => {
                self.carried = Some(other);
                None
            }
            // The next blocking wait sees the disconnection.
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => None,
        }
    }

    fn read(&self, layout: &Layout, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>> {
        match layout.space(keyspace) {
            Some(space) => self.read_engine(|engine| engine.get(space, key)),
            None => Ok(None),
        }
    }

    fn answer(&self, waiting: Waiting, outcome: &Result<()>) {
        let Err(error) = outcome else {
            for (answer, _permit) in waiting.accepted {
                answer.send(Ok(()));
            }
            for (answer, error) in waiting.rejected {
                answer.send(Err(error));
            }
            return;
        };
        for (answer, _permit) in waiting.accepted {
            answer.send(Err(again(error, error.kind())));
        }
        // They had no effect either way, but the content they were judged by may not stand.
        let kind = match error.kind() {
            ErrorKind::InDoubt => ErrorKind::Poisoned,
            kind => kind,
        };
        for (answer, _) in waiting.rejected {
            answer.send(Err(again(error, kind)));
        }
    }

    fn run_task(&mut self, task: TaskFn<E>) {
        if catch_unwind(AssertUnwindSafe(|| task(self))).is_err() {
            self.core
                .stop("the store's writer panicked: reopen the store");
        }
    }

    /// Refuses `bytes` of writes while the disk is nearly full.
    pub(super) fn admit(&mut self, bytes: usize) -> Result<()> {
        match &mut self.disk {
            Some(disk) => disk.admit(self.core.name, bytes),
            None => Ok(()),
        }
    }

    /// Applies `changes` under the next sequence number.
    ///
    /// The error is a refusal if nothing happened; on any other failure the store is
    /// poisoned and the error is `InDoubt`.
    pub(super) fn commit(
        &mut self,
        operation: &'static str,
        mut changes: Changes,
        sync: bool,
    ) -> Result<()> {
        self.keep_pre_images(&mut changes);
        let sequence = self.sequence + 1;
        changes.operations.push(Operation {
            space: self.system.clone(),
            key: Bytes::from_static(record::SEQUENCE),
            value: Some(record::seal_number(sequence)),
        });
        self.write_engine(operation, |engine| engine.apply(&changes, sync))?;
        self.sequence = sequence;
        if sync {
            return self.synced();
        }
        self.dirty_since.get_or_insert_with(pace::now);
        Ok(())
    }

    /// Makes everything that was applied durable.
    fn sync(&mut self) -> Result<()> {
        self.core.check("sync")?;
        if self.dirty_since.is_none() {
            return Ok(());
        }
        self.write_engine("sync", E::sync)?;
        self.synced()
    }

    fn synced(&mut self) -> Result<()> {
        self.dirty_since = None;
        let Some(high_water) = &mut self.high_water else {
            return Ok(());
        };
        let recorded = high_water.record(self.sequence);
        recorded.map_err(|error| self.poison("sync", &error))
    }

    /// Runs a read of the engine on this thread; a panic poisons the store.
    pub(super) fn read_engine<T>(&self, read: impl FnOnce(&E) -> Result<T>) -> Result<T> {
        self.core.check("read")?;
        catch_unwind(AssertUnwindSafe(|| read(&self.engine))).unwrap_or_else(|_| {
            self.core
                .stop("the engine panicked in a read: reopen the store");
            Err(self.core.stopped_error("read"))
        })
    }

    /// Runs a write of the engine; any failure but a refusal poisons the store.
    pub(super) fn write_engine(
        &self,
        operation: &'static str,
        write: impl FnOnce(&E) -> Result<()>,
    ) -> Result<()> {
        self.core.check(operation)?;
        match catch_unwind(AssertUnwindSafe(|| write(&self.engine))) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) if error.kind().is_refusal() => Err(error),
            Ok(Err(error)) => Err(self.poison(operation, &error)),
            Err(_) => Err(self.poison(operation, &"the engine panicked")),
        }
    }

    fn poison(&self, operation: &'static str, cause: &dyn fmt::Display) -> Error {
        tracing::error!(store = self.core.name, operation, %cause, "the store is poisoned");
        self.core.stop(format!(
            "{operation} failed before: {cause}; reopen the store"
        ));
        self.core
            .error(ErrorKind::InDoubt, operation)
            .with_detail(cause.to_string())
    }

    /// Syncs, stops the readers, lets go of the engine and the folder, then answers.
    fn finish(mut self, closing: Option<Answer<()>>) {
        let synced = self.sync().and_then(|()| match &mut self.high_water {
            Some(high_water) => high_water
                .seal()
                .map_err(|error| self.poison("close", &error)),
            None => Ok(()),
        });
        self.core.stop("the store was closed");
        let Self {
            core,
            engine,
            inbox,
            mut readers,
            folder,
            staging,
            carried,
            ..
        } = self;
        readers.stop();
        if let Some(staged) = staging {
            staged.stop();
        }
        for view in core.views.lock().drain(..).filter_map(|it| it.upgrade()) {
            view.release();
        }
        let mut closing: Vec<_> = closing.into_iter().collect();
        // Everything else that waits behind the close is answered by being dropped.
        for job in carried.into_iter().chain(inbox.try_iter()) {
            if let Job::Close(answer) = job {
                closing.push(answer);
            }
        }
        drop(inbox);
        // The folder is free only once the engine is out of it.
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(engine)));
        drop(folder);
        let outcome = synced.and_then(|()| {
            dropped.map_err(|_| {
                core.error(ErrorKind::InDoubt, "close")
                    .with_detail("the engine panicked while it closed")
            })
        });
        if outcome.is_ok() {
            core.set_closed();
        }
        for answer in closing {
            answer.send(match &outcome {
                Ok(()) => Ok(()),
                Err(error) => Err(again(error, error.kind())),
            });
        }
    }
}

fn changes(group: Group, layout: &Layout) -> Changes {
    let space = |keyspace| {
        layout
            .space(keyspace)
            .expect("every opened keyspace is in the layout")
            .clone()
    };
    let range_deletes = group.range_deletes().iter();
    let range_deletes = range_deletes
        .map(|(keyspace, start, end)| (space(*keyspace), start.clone(), end.clone()))
        .collect();
    // The sequence number of the group is added.
    let mut operations: Vec<Operation> = Vec::with_capacity(group.key_count() + 1);
    let mut last: Option<(Keyspace, Space)> = None;
    for (keyspace, key, value) in group.into_operations() {
        let space = match last.take() {
            Some((of, space)) if of == keyspace => space,
            _ => space(keyspace),
        };
        last = Some((keyspace, space.clone()));
        operations.push(Operation { space, key, value });
    }
    Changes {
        range_deletes,
        operations,
    }
}

/// The same failure for another waiter of the group.
fn again(error: &Error, kind: ErrorKind) -> Error {
    let same = Error::new(kind, error.backend(), "write");
    match error.detail() {
        Some(detail) => same.with_detail(detail),
        None => same,
    }
}
