//! Stores that are wrong on purpose: each mistake must be caught by the check named here.
//!
//! A check that nothing fails proves nothing. The mistakes of durable stores are in the
//! integration tests, beside a store that has files.

use std::{collections::BTreeMap, panic::AssertUnwindSafe, path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;

use super::{KEYSPACES, Kit, StoreFactory, checks, run};
use crate::{
    Capabilities, Direction, Durability, Entry, Keyspace, MemStore, Result, Scan, Snapshot,
    Staging, Store, WriteBatch, batch::Precondition,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    None,
    DropsPreconditions,
    ChecksPreconditionsBeforeItsTurn,
    WritesBeforePreconditions,
    ForgetsThatAKeyMustBeAbsent,
    PutsBeforeRangeDeletes,
    DeletesAfterPuts,
    LosesAKeyspace,
    WritesKeyspaceByKeyspace,
    SplitsWhatIsTooBig,
    AnswersBeforeItIsDone,
    HoldsALockAcrossAnAwait,
    EmptyValueIsMissing,
    EmptyKeyIsMissing,
    OneTreeForAll,
    SignedBytes,
    SortsWhatIsAsked,
    UnknownKeyspaceIsEmpty,
    IncludesTheEnd,
    EndsAtAHighKey,
    LimitsTheWrongSide,
    IgnoresTheByteLimit,
    HidesWhatIsTooBig,
    ReadsAZeroLimitAsNone,
    ScansInSteps,
    SnapshotIsLive,
    SnapshotKeyspaceByKeyspace,
    PublishesIntoTheOld,
    PublishesKeyspaceByKeyspace,
    LoadsIntoTheLive,
    OpensASecondStaging,
    KeepsAbortedRows,
    GoesOnAfterClose,
    SaysThatItIsDurable,
}

use Mistake as M;

#[derive(Clone, Debug)]
struct WrongStore {
    inner: MemStore,
    mistake: Mistake,
    lock: Arc<tokio::sync::Mutex<()>>,
    aborted: Arc<parking_lot::Mutex<Vec<(Keyspace, Entry)>>>,
}

impl WrongStore {
    fn new(mistake: Mistake) -> Self {
        Self {
            inner: MemStore::new(&KEYSPACES),
            mistake,
            lock: Arc::default(),
            aborted: Arc::default(),
        }
    }

    /// Writes the parts of a batch as batches of their own, with a pause between.
    async fn write_apart(&self, parts: Vec<WriteBatch>) -> Result<()> {
        for part in parts.into_iter().filter(|it| !it.is_empty()) {
            self.inner.write(part, Durability::Buffered).await?;
            pause().await;
        }
        Ok(())
    }

    /// A batch by keyspace, preconditions first and apart.
    fn by_keyspace(batch: &WriteBatch) -> Vec<WriteBatch> {
        let mut asks = WriteBatch::new();
        asks.preconditions.clone_from(&batch.preconditions);
        let mut parts = vec![asks];
        for keyspace in KEYSPACES {
            let mut part = WriteBatch::new();
            for range in &batch.range_deletes {
                if range.keyspace == keyspace {
                    part.delete_range(keyspace, range.start.clone(), range.end.clone());
                }
            }
            for (_, key) in batch.deletes.iter().filter(|it| it.0 == keyspace) {
                part.delete(keyspace, key.clone());
            }
            for (_, key, value) in batch.puts.iter().filter(|it| it.0 == keyspace) {
                part.put(keyspace, key.clone(), value.clone());
            }
            parts.push(part);
        }
        parts
    }

    /// All entries of a range, as the checks' ranges are small.
    async fn whole(&self, keyspace: Keyspace, scan: &Scan) -> Result<Vec<Entry>> {
        let mut scan = scan.clone();
        scan.entries_max = usize::MAX;
        scan.bytes_max = usize::MAX;
        self.inner.scan(keyspace, scan).await
    }
}

#[async_trait]
impl Store for WrongStore {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn capabilities(&self) -> Capabilities {
        match self.mistake {
            M::SaysThatItIsDurable => self.inner.capabilities().with_durable(0),
            _ => self.inner.capabilities(),
        }
    }

    fn keyspaces(&self) -> &[Keyspace] {
        self.inner.keyspaces()
    }

    async fn write(&self, mut batch: WriteBatch, durability: Durability) -> Result<()> {
        match self.mistake {
            M::DropsPreconditions => batch.preconditions.clear(),
            M::ForgetsThatAKeyMustBeAbsent => batch
                .preconditions
                .retain(|it: &Precondition| it.expected.is_some()),
            M::ChecksPreconditionsBeforeItsTurn => {
                let mut asks = WriteBatch::new();
                asks.preconditions = std::mem::take(&mut batch.preconditions);
                return self.write_apart(vec![asks, batch]).await;
            }
            M::WritesBeforePreconditions => {
                let mut parts = Self::by_keyspace(&batch);
                parts.rotate_left(1);
                return self.write_apart(parts).await;
            }
            M::PutsBeforeRangeDeletes => {
                let mut ranges = WriteBatch::new();
                ranges.range_deletes = std::mem::take(&mut batch.range_deletes);
                return self.write_apart(vec![batch, ranges]).await;
            }
            M::DeletesAfterPuts => {
                let mut deletes = WriteBatch::new();
                deletes.deletes = std::mem::take(&mut batch.deletes);
                return self.write_apart(vec![batch, deletes]).await;
            }
            M::LosesAKeyspace => batch.puts.retain(|it| it.0 != KEYSPACES[2]),
            M::WritesKeyspaceByKeyspace => {
                return self.write_apart(Self::by_keyspace(&batch)).await;
            }
            M::SplitsWhatIsTooBig if batch.key_count() > WriteBatch::KEYS_MAX => {
                let mut rest = WriteBatch::new();
                rest.puts = batch.puts.split_off(1);
                return self.write_apart(vec![batch, rest]).await;
            }
            M::AnswersBeforeItIsDone => {
                let store = self.inner.clone();
                tokio::spawn(async move {
                    pause().await;
                    store.write(batch, durability).await
                });
                return Ok(());
            }
            M::HoldsALockAcrossAnAwait => {
                let _guard = self.lock.lock().await;
                pause().await;
                return self.inner.write(batch, durability).await;
            }
            M::EmptyKeyIsMissing => batch.puts.retain(|it| !it.1.is_empty()),
            M::OneTreeForAll => {
                for put in &mut batch.puts {
                    put.0 = KEYSPACES[0];
                }
            }
            _ => {}
        }
        self.inner.write(batch, durability).await
    }

    async fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>> {
        let keyspace = match self.mistake {
            M::UnknownKeyspaceIsEmpty if !KEYSPACES.contains(&keyspace) => return Ok(None),
            M::OneTreeForAll => KEYSPACES[0],
            _ => keyspace,
        };
        let value = self.inner.get(keyspace, key).await?;
        Ok(value.filter(|it| self.mistake != M::EmptyValueIsMissing || !it.is_empty()))
    }

    async fn multi_get(&self, keyspace: Keyspace, keys: &[Bytes]) -> Result<Vec<Option<Bytes>>> {
        let mut keys = keys.to_vec();
        if self.mistake == M::SortsWhatIsAsked {
            keys.sort();
        }
        self.inner.multi_get(keyspace, &keys).await
    }

    async fn scan(&self, keyspace: Keyspace, mut scan: Scan) -> Result<Vec<Entry>> {
        let backward = scan.direction == Direction::Backward;
        match self.mistake {
            M::IncludesTheEnd => {
                scan.end = scan.end.map(|end| [&end[..], &[0]].concat().into());
            }
            M::EndsAtAHighKey => {
                scan.end = scan.end.or_else(|| Some(vec![0xFF; 64].into()));
            }
            M::LimitsTheWrongSide if backward => {
                scan.direction = Direction::Forward;
                let mut entries = self.inner.scan(keyspace, scan).await?;
                entries.reverse();
                return Ok(entries);
            }
            M::IgnoresTheByteLimit => scan.bytes_max = usize::MAX,
            M::HidesWhatIsTooBig => {
                let bytes_max = scan.bytes_max;
                let mut entries = self.inner.scan(keyspace, scan).await?;
                entries.retain(|it| it.key.len() + it.value.len() <= bytes_max);
                return Ok(entries);
            }
            M::ReadsAZeroLimitAsNone if scan.entries_max == 0 => scan.entries_max = usize::MAX,
            M::ScansInSteps => {
                let mut entries = Vec::new();
                for half in 0..2 {
                    let part = self.whole(keyspace, &scan).await?;
                    let middle = part.len() / 2;
                    let range = [0..middle, middle..part.len()];
                    entries.extend_from_slice(&part[range[half].clone()]);
                    pause().await;
                }
                return Ok(entries);
            }
            M::SignedBytes => {
                let mut entries = self.whole(keyspace, &scan).await?;
                let signed = |key: &[u8]| -> Vec<i8> { key.iter().map(|it| *it as i8).collect() };
                entries.sort_by_key(|it| signed(&it.key));
                return Ok(entries);
            }
            _ => {}
        }
        self.inner.scan(keyspace, scan).await
    }

    async fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        match self.mistake {
            M::SnapshotIsLive => Ok(Arc::new(LiveSnapshot(self.inner.clone()))),
            M::SnapshotKeyspaceByKeyspace => {
                let mut parts = BTreeMap::new();
                for keyspace in KEYSPACES {
                    parts.insert(keyspace, self.inner.snapshot().await?);
                    pause().await;
                }
                Ok(Arc::new(PatchedSnapshot(parts)))
            }
            _ => self.inner.snapshot().await,
        }
    }

    async fn begin_replace(&self, keyspaces: &[Keyspace]) -> Result<Box<dyn Staging>> {
        let patched = matches!(
            self.mistake,
            M::PublishesIntoTheOld
                | M::PublishesKeyspaceByKeyspace
                | M::LoadsIntoTheLive
                | M::OpensASecondStaging
                | M::KeepsAbortedRows
        );
        if !patched {
            return self.inner.begin_replace(keyspaces).await;
        }
        Ok(Box::new(WrongStaging {
            store: self.clone(),
            keyspaces: keyspaces.to_vec(),
            rows: std::mem::take(&mut self.aborted.lock()),
        }))
    }

    async fn close(&self) -> Result<()> {
        match self.mistake {
            M::GoesOnAfterClose => Ok(()),
            _ => self.inner.close().await,
        }
    }
}

#[derive(Debug)]
struct LiveSnapshot(MemStore);

#[async_trait]
impl Snapshot for LiveSnapshot {
    async fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>> {
        self.0.get(keyspace, key).await
    }

    async fn scan(&self, keyspace: Keyspace, scan: Scan) -> Result<Vec<Entry>> {
        self.0.scan(keyspace, scan).await
    }
}

#[derive(Debug)]
struct PatchedSnapshot(BTreeMap<Keyspace, Arc<dyn Snapshot>>);

#[async_trait]
impl Snapshot for PatchedSnapshot {
    async fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>> {
        self.0[&keyspace].get(keyspace, key).await
    }

    async fn scan(&self, keyspace: Keyspace, scan: Scan) -> Result<Vec<Entry>> {
        self.0[&keyspace].scan(keyspace, scan).await
    }
}

/// Keeps its rows itself, so that it can publish them in a wrong way.
#[derive(Debug)]
struct WrongStaging {
    store: WrongStore,
    keyspaces: Vec<Keyspace>,
    rows: Vec<(Keyspace, Entry)>,
}

impl WrongStaging {
    fn batch(&self) -> WriteBatch {
        let mut batch = WriteBatch::new();
        for (keyspace, row) in &self.rows {
            batch.put(*keyspace, row.key.clone(), row.value.clone());
        }
        batch
    }
}

#[async_trait]
impl Staging for WrongStaging {
    async fn load(&mut self, keyspace: Keyspace, entries: Vec<Entry>) -> Result<()> {
        self.rows
            .extend(entries.into_iter().map(|row| (keyspace, row)));
        if self.store.mistake == M::LoadsIntoTheLive {
            let inner = &self.store.inner;
            inner.write(self.batch(), Durability::Buffered).await?;
        }
        Ok(())
    }

    async fn publish(self: Box<Self>) -> Result<()> {
        let inner = &self.store.inner;
        if self.store.mistake == M::PublishesIntoTheOld {
            return inner.write(self.batch(), Durability::Synced).await;
        }
        for keyspace in &self.keyspaces {
            let mut staging = inner.begin_replace(&[*keyspace]).await?;
            let rows = self.rows.iter().filter(|it| it.0 == *keyspace);
            staging
                .load(*keyspace, rows.map(|it| it.1.clone()).collect())
                .await?;
            staging.publish().await?;
            pause().await;
        }
        Ok(())
    }

    async fn abort(mut self: Box<Self>) -> Result<()> {
        if self.store.mistake == M::KeepsAbortedRows {
            *self.store.aborted.lock() = std::mem::take(&mut self.rows);
        }
        Ok(())
    }
}

/// Makes the moment of a mistake long enough that a check must see it, on any machine.
async fn pause() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

struct Wrong(Mistake);

impl StoreFactory for Wrong {
    type Store = WrongStore;

    async fn open(&self, _folder: &Path) -> Result<WrongStore> {
        Ok(WrongStore::new(self.0))
    }
}

/// Checks that `check` fails on the mistake, and that it is the mistake that fails it.
#[track_caller]
fn caught<C: AsyncFn(&Kit<Wrong>) + Copy>(mistake: Mistake, check: C) {
    run("wrong", Wrong(M::None), check);
    let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| {
        run("wrong", Wrong(mistake), check);
    }));
    assert!(outcome.is_err(), "{mistake:?} must be caught");
}

macro_rules! caught {
    ($($test:ident: $mistake:ident by $module:ident::$check:ident;)+) => {
        $(
            #[test]
            fn $test() {
                caught(M::$mistake, checks::$module::$check);
            }
        )+
    };
}

caught! {
    dropped_preconditions_are_caught:
        DropsPreconditions by batch::a_conflict_names_its_key_and_changes_nothing;
    dropped_preconditions_are_caught_by_the_model:
        DropsPreconditions by model::random_operations_have_the_answers_of_the_store_in_memory;
    preconditions_checked_before_their_turn_are_caught:
        ChecksPreconditionsBeforeItsTurn by concurrent::of_many_compare_and_sets_exactly_one_wins;
    lost_updates_are_caught:
        ChecksPreconditionsBeforeItsTurn by concurrent::transfers_between_accounts_keep_the_sum;
    writes_before_preconditions_are_caught:
        WritesBeforePreconditions by batch::a_conflict_names_its_key_and_changes_nothing;
    preconditions_after_the_writes_are_caught:
        WritesBeforePreconditions by batch::preconditions_look_at_the_content_before_the_batch;
    a_key_that_need_not_be_absent_is_caught:
        ForgetsThatAKeyMustBeAbsent by batch::an_empty_value_is_not_an_absent_key;
    puts_before_range_deletes_are_caught:
        PutsBeforeRangeDeletes by batch::range_deletes_come_before_deletes_and_puts;
    deletes_after_puts_are_caught:
        DeletesAfterPuts by batch::range_deletes_come_before_deletes_and_puts;
    a_lost_keyspace_is_caught:
        LosesAKeyspace by batch::a_batch_is_applied_over_all_its_keyspaces;
    a_lost_row_of_a_group_is_caught:
        LosesAKeyspace by concurrent::every_answered_write_is_there_and_no_key_goes_back;
    a_batch_written_in_parts_is_caught:
        WritesKeyspaceByKeyspace by snapshot::a_snapshot_shows_one_moment_over_all_keyspaces;
    a_write_split_where_its_caller_left_is_caught:
        WritesKeyspaceByKeyspace by concurrent::a_dropped_write_happens_as_a_whole_or_not_at_all;
    a_split_of_what_is_too_big_is_caught:
        SplitsWhatIsTooBig by limits::a_batch_above_a_limit_is_refused_and_changes_nothing;
    an_answer_before_the_write_is_caught:
        AnswersBeforeItIsDone by concurrent::every_answered_write_is_there_and_no_key_goes_back;
    a_lock_across_an_await_is_caught:
        HoldsALockAcrossAnAwait by concurrent::a_caller_that_stops_polling_holds_up_nobody;
    a_missing_empty_value_is_caught:
        EmptyValueIsMissing by keys::an_empty_key_and_an_empty_value_are_kept;
    a_missing_empty_key_is_caught:
        EmptyKeyIsMissing by keys::an_empty_key_and_an_empty_value_are_kept;
    one_tree_for_all_is_caught:
        OneTreeForAll by keys::keyspaces_do_not_see_each_other;
    signed_bytes_are_caught:
        SignedBytes by keys::keys_sort_as_unsigned_bytes;
    answers_in_key_order_are_caught:
        SortsWhatIsAsked by keys::several_keys_are_answered_in_the_order_asked;
    an_unknown_keyspace_that_is_empty_is_caught:
        UnknownKeyspaceIsEmpty by limits::an_unknown_keyspace_is_refused_everywhere;
    an_included_end_is_caught:
        IncludesTheEnd by scan::a_scan_is_half_open_and_ordered_both_ways;
    an_included_end_is_caught_by_the_model:
        IncludesTheEnd by model::random_operations_have_the_answers_of_the_store_in_memory;
    a_high_key_for_the_end_is_caught:
        EndsAtAHighKey by scan::a_scan_without_an_end_reaches_the_last_key;
    a_backward_scan_from_the_wrong_side_is_caught:
        LimitsTheWrongSide by scan::a_scan_stops_at_its_entry_limit;
    backward_pages_from_the_wrong_side_are_caught:
        LimitsTheWrongSide by scan::pages_of_a_long_range_have_no_gap_and_no_repeat;
    an_ignored_byte_limit_is_caught:
        IgnoresTheByteLimit by scan::a_scan_stops_at_its_byte_limit_but_gives_one_entry;
    a_hidden_big_entry_is_caught:
        HidesWhatIsTooBig by scan::a_scan_stops_at_its_byte_limit_but_gives_one_entry;
    a_zero_limit_read_as_none_is_caught:
        ReadsAZeroLimitAsNone by scan::an_empty_range_has_no_entries;
    a_scan_in_steps_is_caught:
        ScansInSteps by scan::a_scan_shows_one_moment;
    a_live_snapshot_is_caught:
        SnapshotIsLive by snapshot::a_snapshot_stays_as_it_was;
    a_patched_snapshot_is_caught:
        SnapshotKeyspaceByKeyspace by snapshot::a_snapshot_shows_one_moment_over_all_keyspaces;
    old_rows_that_shine_through_are_caught:
        PublishesIntoTheOld by replace::loaded_content_shows_only_when_published;
    a_keyspace_that_keeps_its_old_content_is_caught:
        PublishesIntoTheOld by replace::a_publish_switches_its_keyspaces_and_no_other;
    a_publish_in_parts_is_caught:
        PublishesKeyspaceByKeyspace by replace::a_publish_switches_all_its_keyspaces_at_once;
    a_load_into_the_live_content_is_caught:
        LoadsIntoTheLive by replace::loaded_content_shows_only_when_published;
    a_second_staging_is_caught:
        OpensASecondStaging by replace::a_second_staging_is_refused_while_one_is_open;
    aborted_rows_are_caught:
        KeepsAbortedRows by replace::what_was_not_published_leaves_nothing;
    a_closed_store_that_goes_on_is_caught:
        GoesOnAfterClose by lifecycle::a_closed_store_refuses_every_call_as_poisoned;
    a_durable_store_called_volatile_is_caught:
        SaysThatItIsDurable by lifecycle::a_store_that_forgets_says_so;
}
