//! Durable stores that are wrong on purpose, each caught by the check named here.

use std::{
    collections::VecDeque,
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::Arc,
};

use async_trait::async_trait;
use bytes::Bytes;
use pop_store::{
    Capabilities, Durability, Entry, ErrorKind, Keyspace, Result, Scan, Snapshot, Staging, Store,
    WriteBatch,
    testkit::{KEYSPACES, Kit, StoreFactory, checks, run},
};

#[expect(dead_code, reason = "its `main` and its tests run on their own")]
#[path = "../../examples/custom_backend/main.rs"]
mod custom_backend;

use custom_backend::JournalStore;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    AnswersSyncedBeforeItWrites,
    LeavesBufferedWritesBehind,
    ForgetsAtOpen,
    KeepsItsLockAfterClose,
    OpensTwice,
    PublishesKeyspaceByKeyspace,
}

#[derive(Debug)]
struct WrongStore {
    inner: Arc<JournalStore>,
    mistake: Mistake,
    // Answered, and written by a later call: a kill at any moment finds some.
    late: Late,
}

type Late = Arc<tokio::sync::Mutex<VecDeque<WriteBatch>>>;

// Several synced writes of each writer, so that the moment of a kill makes no difference.
const LATE: usize = 40;

impl WrongStore {
    async fn catch_up(&self) -> Result<()> {
        let mut late = self.late.lock().await;
        while let Some(batch) = late.pop_front() {
            self.inner.write(batch, Durability::Synced).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl Store for WrongStore {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn capabilities(&self) -> Capabilities {
        match self.mistake {
            Mistake::PublishesKeyspaceByKeyspace => self.inner.capabilities().with_replace(),
            _ => self.inner.capabilities(),
        }
    }

    fn keyspaces(&self) -> &[Keyspace] {
        self.inner.keyspaces()
    }

    async fn write(&self, batch: WriteBatch, durability: Durability) -> Result<()> {
        let is_late = match self.mistake {
            Mistake::AnswersSyncedBeforeItWrites => true,
            Mistake::LeavesBufferedWritesBehind => durability == Durability::Buffered,
            _ => false,
        };
        if !is_late {
            return self.inner.write(batch, durability).await;
        }
        // Held while one is written, so that late is the only thing that is wrong.
        let mut late = self.late.lock().await;
        late.push_back(batch);
        if late.len() <= LATE {
            return Ok(());
        }
        let batch = late.pop_front().expect("it has some");
        self.inner.write(batch, durability).await
    }

    async fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>> {
        self.inner.get(keyspace, key).await
    }

    async fn scan(&self, keyspace: Keyspace, scan: Scan) -> Result<Vec<Entry>> {
        self.inner.scan(keyspace, scan).await
    }

    async fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        self.inner.snapshot().await
    }

    async fn begin_replace(&self, keyspaces: &[Keyspace]) -> Result<Box<dyn Staging>> {
        if self.mistake != Mistake::PublishesKeyspaceByKeyspace {
            return self.inner.begin_replace(keyspaces).await;
        }
        self.catch_up().await?;
        Ok(Box::new(WrongStaging {
            store: Arc::clone(&self.inner),
            late: Arc::clone(&self.late),
            rows: Vec::new(),
        }))
    }

    async fn close(&self) -> Result<()> {
        match self.mistake {
            Mistake::KeepsItsLockAfterClose => Ok(()),
            Mistake::PublishesKeyspaceByKeyspace => {
                self.catch_up().await?;
                self.inner.close().await
            }
            _ => self.inner.close().await,
        }
    }
}

#[derive(Debug)]
struct WrongStaging {
    store: Arc<JournalStore>,
    late: Late,
    rows: Vec<(Keyspace, Entry)>,
}

#[async_trait]
impl Staging for WrongStaging {
    async fn load(&mut self, keyspace: Keyspace, entries: Vec<Entry>) -> Result<()> {
        let rows = entries.into_iter().map(|row| (keyspace, row));
        self.rows.extend(rows);
        Ok(())
    }

    async fn publish(self: Box<Self>) -> Result<()> {
        // One at once, the others when the store is called again.
        let mut late = self.late.lock().await;
        for keyspace in KEYSPACES {
            let mut batch = WriteBatch::new();
            for (_, row) in self.rows.iter().filter(|it| it.0 == keyspace) {
                batch.put(keyspace, row.key.clone(), row.value.clone());
            }
            if batch.is_empty() {
                continue;
            }
            if keyspace == KEYSPACES[0] {
                self.store.write(batch, Durability::Synced).await?;
            } else {
                late.push_back(batch);
            }
        }
        Ok(())
    }

    async fn abort(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

struct Wrong(Mistake);

impl StoreFactory for Wrong {
    type Store = WrongStore;

    async fn open(&self, folder: &Path) -> Result<WrongStore> {
        if self.0 == Mistake::ForgetsAtOpen {
            // There is none at the first open.
            let _ = fs::remove_file(folder.join("journal"));
        }
        let mut inner = JournalStore::open(folder, &KEYSPACES);
        let locked = |it: &Result<_>| matches!(it, Err(it) if it.kind() == ErrorKind::Locked);
        if self.0 == Mistake::OpensTwice && locked(&inner) {
            let second = folder.join("second");
            fs::create_dir_all(&second).expect("a folder in a folder can be made");
            inner = JournalStore::open(&second, &KEYSPACES);
        }
        Ok(WrongStore {
            inner: Arc::new(inner?),
            mistake: self.0,
            late: Late::default(),
        })
    }
}

/// Checks that `check` fails on the mistake, with these words. That it passes without one
/// is shown by the suite of the store below.
#[track_caller]
fn caught<C: AsyncFn(&Kit<Wrong>)>(test: &'static str, mistake: Mistake, check: C, words: &str) {
    let outcome = catch_unwind(AssertUnwindSafe(|| run(test, Wrong(mistake), check)));
    let panic = outcome.expect_err("the mistake must be caught");
    let said = panic.downcast_ref::<String>().expect("a check says why");
    assert!(said.contains(words), "caught for another reason: {said}");
}

macro_rules! caught {
    ($($test:ident: $mistake:ident by $module:ident::$check:ident, $words:literal;)+) => {
        $(
            #[test]
            fn $test() {
                let path = concat!(module_path!(), "::", stringify!($test));
                caught(path, Mistake::$mistake, checks::$module::$check, $words);
            }
        )+
    };
}

caught! {
    synced_before_it_is_written_is_caught:
        AnswersSyncedBeforeItWrites by crash::a_kill_loses_nothing_synced_and_leaves_no_hole,
        "was told that";
    a_hole_of_buffered_writes_is_caught:
        LeavesBufferedWritesBehind by crash::a_kill_loses_nothing_synced_and_leaves_no_hole,
        "has each batch up to the last";
    a_publish_that_a_kill_leaves_half_done_is_caught:
        PublishesKeyspaceByKeyspace by crash::a_kill_around_a_replace_leaves_the_old_or_the_new_content,
        "whole and alone";
    an_open_that_forgets_is_caught:
        ForgetsAtOpen by durable::a_reopened_store_shows_everything,
        "opened 1 times before";
    a_lock_kept_after_close_is_caught:
        KeepsItsLockAfterClose by durable::a_closed_folder_opens_at_once_while_old_handles_are_held,
        "the store opens";
    a_second_open_is_caught:
        OpensTwice by durable::a_folder_that_is_open_is_locked,
        "the call must be refused";
}
