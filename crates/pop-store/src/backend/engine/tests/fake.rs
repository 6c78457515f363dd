//! An engine in memory that counts, fails, panics and waits on demand.

use std::{
    collections::BTreeMap,
    ops::Bound,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    time::Duration,
};

use bytes::Bytes;
use parking_lot::Mutex;

use super::super::{BulkLoader, Changes, Engine, EngineStore, OpenOptions, Space};
use crate::{
    Capabilities, Direction, Entry, Error, ErrorKind, Keyspace, Result, Rows, Scan, WriteBatch,
};

pub(super) const A: Keyspace = Keyspace::new("a");
pub(super) const B: Keyspace = Keyspace::new("b");

pub(super) type Map = BTreeMap<Bytes, Bytes>;

/// What the next write or sync does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Refuse,
    Fail,
    Panic,
}

/// The engine's insides, which outlive it, so that a test can look and open again.
#[derive(Debug, Default)]
pub(super) struct Disk {
    pub(super) spaces: Mutex<BTreeMap<Space, Map>>,
    pub(super) apply_count: AtomicUsize,
    pub(super) sync_count: AtomicUsize,
    pub(super) fault: Mutex<Option<Fault>>,
    /// While a sender is here, each apply says that it began and waits for a word.
    pub(super) gate: Mutex<Option<Gate>>,
    /// The same once it is applied.
    pub(super) gate_behind: Mutex<Option<Gate>>,
    /// The same for the next read alone.
    pub(super) read_gate: Mutex<Option<Gate>>,
    pub(super) read_count: AtomicUsize,
    pub(super) open_count: AtomicUsize,
    /// What bulk loads put aside and did not finish.
    pub(super) aside: Mutex<BTreeMap<Space, Map>>,
    /// What the making of the next space does.
    pub(super) space_fault: Mutex<Option<Fault>>,
    pub(super) drop_fault: Mutex<Option<Fault>>,
    /// What the next call of a bulk loader does.
    pub(super) bulk_fault: Mutex<Option<Fault>>,
    /// Has each apply take a millisecond.
    pub(super) is_slow: AtomicBool,
}

#[derive(Debug)]
pub(super) struct Gate {
    pub(super) began: mpsc::Sender<()>,
    pub(super) go_on: mpsc::Receiver<()>,
}

impl Gate {
    fn wait(&self) {
        let _ = self.began.send(());
        let _ = self.go_on.recv();
    }
}

impl Disk {
    pub(super) fn applied(&self) -> usize {
        self.apply_count.load(Ordering::SeqCst)
    }

    pub(super) fn synced(&self) -> usize {
        self.sync_count.load(Ordering::SeqCst)
    }

    pub(super) fn fail_next(&self, fault: Fault) {
        *self.fault.lock() = Some(fault);
    }

    pub(super) fn space_names(&self) -> Vec<String> {
        let spaces = self.spaces.lock();
        spaces.keys().map(|it| it.name().to_owned()).collect()
    }

    /// Holds the next applies: the first end hears of each, the second lets each go on.
    pub(super) fn hold(&self) -> (mpsc::Receiver<()>, mpsc::Sender<()>) {
        Self::hold_at(&self.gate)
    }

    /// Holds the next applies once they are done.
    pub(super) fn hold_applied(&self) -> (mpsc::Receiver<()>, mpsc::Sender<()>) {
        Self::hold_at(&self.gate_behind)
    }

    /// Holds the next read before it reads.
    pub(super) fn hold_read(&self) -> (mpsc::Receiver<()>, mpsc::Sender<()>) {
        Self::hold_at(&self.read_gate)
    }

    fn hold_at(gate: &Mutex<Option<Gate>>) -> (mpsc::Receiver<()>, mpsc::Sender<()>) {
        let (began, begun) = mpsc::channel();
        let (release, go_on) = mpsc::channel();
        *gate.lock() = Some(Gate { began, go_on });
        (begun, release)
    }

    fn read(&self) {
        self.read_count.fetch_add(1, Ordering::SeqCst);
        let gate = self.read_gate.lock().take();
        if let Some(gate) = gate {
            gate.wait();
        }
    }

    fn meet_fault(&self) -> Result<()> {
        Self::meet(&self.fault)
    }

    fn meet(fault: &Mutex<Option<Fault>>) -> Result<()> {
        // Taken out first, so that a panic leaves no lock.
        let fault = fault.lock().take();
        match fault {
            None => Ok(()),
            Some(Fault::Panic) => panic!("the engine was told to panic"),
            Some(fault) => {
                let kind = if fault == Fault::Refuse {
                    ErrorKind::Unavailable
                } else {
                    ErrorKind::InDoubt
                };
                Err(Error::new(kind, "fake", "write").with_detail("as told"))
            }
        }
    }
}

#[derive(Debug)]
pub(super) struct FakeEngine {
    disk: Arc<Disk>,
    has_bulk_load: bool,
}

impl FakeEngine {
    pub(super) fn new(disk: &Arc<Disk>) -> Self {
        disk.open_count.fetch_add(1, Ordering::SeqCst);
        Self {
            disk: Arc::clone(disk),
            has_bulk_load: false,
        }
    }

    pub(super) fn with_bulk_load(mut self) -> Self {
        self.has_bulk_load = true;
        self
    }
}

impl Drop for FakeEngine {
    fn drop(&mut self) {
        self.disk.open_count.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Engine for FakeEngine {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::core().with_durable(0)
    }

    fn spaces(&self) -> Result<Vec<Space>> {
        Ok(self.disk.spaces.lock().keys().cloned().collect())
    }

    fn open_space(&self, space: &Space) -> Result<()> {
        Disk::meet(&self.disk.space_fault)?;
        self.disk.spaces.lock().entry(space.clone()).or_default();
        Ok(())
    }

    fn drop_space(&self, space: &Space) -> Result<()> {
        Disk::meet(&self.disk.drop_fault)?;
        self.disk.spaces.lock().remove(space);
        self.disk.aside.lock().remove(space);
        Ok(())
    }

    fn apply(&self, changes: &Changes, sync: bool) -> Result<()> {
        if let Some(gate) = &*self.disk.gate.lock() {
            gate.wait();
        }
        if self.disk.is_slow.load(Ordering::SeqCst) {
            let (_silent, word) = mpsc::channel::<()>();
            let _ = word.recv_timeout(Duration::from_millis(1));
        }
        self.disk.meet_fault()?;
        let mut spaces = self.disk.spaces.lock();
        for (space, start, end) in &changes.range_deletes {
            let map = spaces.get_mut(space).unwrap();
            map.retain(|key, _| key < start || key >= end);
        }
        for operation in &changes.operations {
            let map = spaces.get_mut(&operation.space).unwrap();
            match &operation.value {
                Some(value) => map.insert(operation.key.clone(), value.clone()),
                None => map.remove(&operation.key),
            };
        }
        drop(spaces);
        if let Some(gate) = &*self.disk.gate_behind.lock() {
            gate.wait();
        }
        self.disk.apply_count.fetch_add(1, Ordering::SeqCst);
        if sync {
            self.disk.sync_count.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.disk.meet_fault()?;
        self.disk.sync_count.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn get(&self, space: &Space, key: &[u8]) -> Result<Option<Bytes>> {
        assert_ne!(key, b"panic", "the engine was told to panic");
        self.disk.read();
        Ok(self.disk.spaces.lock()[space].get(key).cloned())
    }

    fn scan(&self, space: &Space, scan: &Scan) -> Result<Vec<Entry>> {
        self.disk.read();
        let spaces = self.disk.spaces.lock();
        let end = scan.end.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let range = spaces[space].range::<Bytes, _>((Bound::Included(&scan.start), end));
        let entry = |(key, value): (&Bytes, &Bytes)| {
            Ok(Entry {
                key: key.clone(),
                value: value.clone(),
            })
        };
        match scan.direction {
            Direction::Forward => scan.collect(range.map(entry)),
            Direction::Backward => scan.collect(range.rev().map(entry)),
        }
    }

    fn has_bulk_load(&self) -> bool {
        self.has_bulk_load
    }

    fn bulk_load(&self, work: &mut dyn FnMut(&mut dyn BulkLoader)) {
        work(&mut FakeBulk(&self.disk));
    }

    fn resume_bulk_load(&self, space: &Space, files: u32) -> Result<bool> {
        // A row is a file.
        let mut aside = self.disk.aside.lock();
        let map = aside.entry(space.clone()).or_default();
        let files = usize::try_from(files).unwrap();
        let whole = map.len() >= files && self.disk.spaces.lock()[space].is_empty();
        while whole && map.len() > files {
            map.pop_last();
        }
        Ok(whole)
    }

    fn sweep_bulk_loads(&self, kept: &[Space]) -> Result<()> {
        self.disk.aside.lock().retain(|it, _| kept.contains(it));
        Ok(())
    }
}

struct FakeBulk<'a>(&'a Disk);

impl BulkLoader for FakeBulk<'_> {
    fn load(&mut self, space: &Space, rows: &Rows) -> Result<()> {
        Disk::meet(&self.0.bulk_fault)?;
        let mut aside = self.0.aside.lock();
        let map = aside.entry(space.clone()).or_default();
        for row in rows.entries() {
            assert!(map.range(row.key.clone()..).next().is_none(), "in order");
            map.insert(row.key, row.value);
        }
        Ok(())
    }

    fn checkpoint(&mut self, space: &Space) -> Result<u32> {
        Disk::meet(&self.0.bulk_fault)?;
        let aside = self.0.aside.lock();
        Ok(aside
            .get(space)
            .map_or(0, |it| u32::try_from(it.len()).unwrap()))
    }

    fn finish(&mut self, space: &Space) -> Result<()> {
        Disk::meet(&self.0.bulk_fault)?;
        let rows = self.0.aside.lock().remove(space).unwrap_or_default();
        let mut spaces = self.0.spaces.lock();
        let map = spaces.get_mut(space).unwrap();
        assert!(map.is_empty(), "a bulk load goes into an empty space");
        map.extend(rows);
        Ok(())
    }
}

pub(super) fn open(disk: &Arc<Disk>) -> EngineStore<FakeEngine> {
    open_with(disk, &OpenOptions::new(&[A, B]))
}

pub(super) fn open_with(disk: &Arc<Disk>, options: &OpenOptions) -> EngineStore<FakeEngine> {
    EngineStore::start(FakeEngine::new(disk), None, options).unwrap()
}

pub(super) fn put(key: &str, value: &str) -> WriteBatch {
    let mut batch = WriteBatch::new();
    batch.put(A, bytes(key), bytes(value));
    batch
}

pub(super) fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}
