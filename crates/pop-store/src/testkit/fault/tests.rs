//! Each fault does what it says, no more and no less.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use bytes::Bytes;

use super::{Call, Effect, Fault, FaultStore, Faults, Odds};
use crate::{
    Durability, Entry, ErrorKind, Keyspace, MemStore, Outcome, Result, Scan, Store, WriteBatch,
};

const ROWS: Keyspace = Keyspace::new("rows");

fn store(faults: &Faults) -> FaultStore<MemStore> {
    FaultStore::crashable(MemStore::new(&[ROWS]), faults.clone())
}

fn put(key: &'static str) -> WriteBatch {
    let mut batch = WriteBatch::new();
    batch.put(ROWS, key.into(), Bytes::new());
    batch
}

async fn keys(store: &impl Store) -> Vec<Bytes> {
    let entries = store.scan(ROWS, Scan::all()).await.unwrap();
    entries.into_iter().map(|entry| entry.key).collect()
}

#[track_caller]
fn kind<T: std::fmt::Debug>(answer: Result<T>) -> ErrorKind {
    answer.unwrap_err().kind()
}

#[tokio::test]
async fn a_refused_call_has_no_effect_and_the_next_one_is_done() {
    let faults = Faults::none();
    let store = store(&faults);
    faults.arm(Call::Write, 2, Fault::Refuse);
    faults.arm(Call::Get, 1, Fault::Refuse);
    store.write(put("a"), Durability::Synced).await.unwrap();
    let refused = store.write(put("b"), Durability::Synced).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert_eq!(refused.outcome(), Outcome::Refused);
    assert_eq!(kind(store.get(ROWS, b"a").await), ErrorKind::Unavailable);
    store.write(put("c"), Durability::Synced).await.unwrap();
    assert_eq!(keys(&store).await, ["a", "c"]);
    let injected = faults.injected();
    let injected: Vec<_> = injected.iter().map(|it| (it.call, it.nth)).collect();
    assert_eq!(injected, [(Call::Write, 2), (Call::Get, 1)]);
}

#[tokio::test]
async fn what_is_armed_for_all_calls_fails_each_of_them_until_it_is_taken_back() {
    let faults = Faults::none();
    let store = store(&faults);
    for wanted in ErrorKind::ALL {
        faults.arm_all(Call::Write, Fault::Fail(wanted));
        // What is armed for one call goes before it.
        faults.arm(Call::Write, 2, Fault::Full);
        for expected in [wanted, ErrorKind::NoSpace, wanted] {
            let failed = store.write(put("a"), Durability::Synced).await;
            assert_eq!(kind(failed), expected);
        }
        assert!(keys(&store).await.is_empty());
    }
    // Mutant: the last of them stays armed.
    faults.disarm();
    store.write(put("a"), Durability::Synced).await.unwrap();
    assert_eq!(keys(&store).await, ["a"]);
}

#[tokio::test]
async fn a_write_in_doubt_has_happened_or_not_and_poisons_either_way() {
    for (effect, left) in [
        (Effect::Happened, vec!["a", "b"]),
        (Effect::DidNotHappen, vec!["a"]),
    ] {
        let faults = Faults::none();
        let store = store(&faults);
        faults.arm(Call::Write, 2, Fault::InDoubt(effect));
        store.write(put("a"), Durability::Synced).await.unwrap();
        let doubt = store.write(put("b"), Durability::Synced).await.unwrap_err();
        assert_eq!(doubt.outcome(), Outcome::InDoubt);
        let later = store.write(put("c"), Durability::Synced).await;
        assert_eq!(kind(later), ErrorKind::Poisoned);
        assert_eq!(kind(store.get(ROWS, b"a").await), ErrorKind::Poisoned);
        let all = store.multi_get(ROWS, &["a".into()]).await;
        assert_eq!(kind(all), ErrorKind::Poisoned);
        assert_eq!(
            kind(store.scan(ROWS, Scan::all()).await),
            ErrorKind::Poisoned
        );
        assert_eq!(kind(store.snapshot().await), ErrorKind::Poisoned);
        assert_eq!(
            kind(store.begin_replace(&[ROWS]).await),
            ErrorKind::Poisoned
        );
        assert_eq!(keys(store.inner()).await, left, "{effect:?}");
    }
}

#[tokio::test]
async fn a_conflict_is_a_conflict_also_where_a_doubt_was_due() {
    let faults = Faults::none();
    let store = store(&faults);
    faults.arm(Call::Write, 1, Fault::InDoubt(Effect::Happened));
    let mut batch = put("a");
    batch.require(ROWS, "k".into(), "v".into());
    let answer = store.write(batch, Durability::Synced).await;
    assert_eq!(kind(answer), ErrorKind::Conflict);
    store.write(put("b"), Durability::Synced).await.unwrap();
    assert_eq!(keys(&store).await, ["b"]);
}

#[tokio::test(start_paused = true)]
async fn a_delay_runs_on_a_clock_that_a_test_owns() {
    let faults = Faults::none();
    let store = store(&faults);
    let hour = Duration::from_secs(3_600);
    faults.arm(Call::Write, 1, Fault::Delay(hour));
    let began = tokio::time::Instant::now();
    store.write(put("a"), Durability::Synced).await.unwrap();
    assert_eq!(began.elapsed(), hour);
    assert_eq!(keys(&store).await, ["a"]);
}

#[tokio::test]
async fn a_call_hangs_until_it_is_released_and_holds_up_no_other() {
    for (effect, meanwhile) in [
        (Effect::Happened, vec!["a", "b"]),
        (Effect::DidNotHappen, vec!["b"]),
    ] {
        let faults = Faults::none();
        let store = store(&faults);
        faults.arm(Call::Write, 1, Fault::Hang(effect));
        let hung = tokio::spawn({
            let store = store.clone();
            async move { store.write(put("a"), Durability::Synced).await }
        });
        faults.until_hung(1).await;
        store.write(put("b"), Durability::Synced).await.unwrap();
        assert_eq!(keys(&store).await, meanwhile, "{effect:?}");
        assert!(!hung.is_finished());
        faults.release();
        hung.await.unwrap().unwrap();
        assert_eq!(faults.hung_count(), 0);
        assert_eq!(keys(&store).await, ["a", "b"]);
    }
}

#[tokio::test]
async fn a_caller_that_leaves_a_call_that_hangs_is_no_longer_counted() {
    let faults = Faults::none();
    let store = store(&faults);
    faults.arm(Call::Scan, 1, Fault::Hang(Effect::Happened));
    {
        let mut scan = pin!(store.scan(ROWS, Scan::all()));
        let polled = std::future::poll_fn(|it| Poll::Ready(scan.as_mut().poll(it))).await;
        assert!(polled.is_pending());
        assert_eq!(faults.hung_count(), 1);
    }
    assert_eq!(faults.hung_count(), 0);
}

#[tokio::test]
async fn a_panic_comes_before_or_after_the_effect_and_poisons_nothing() {
    for (effect, left) in [
        (Effect::Happened, vec!["a", "b"]),
        (Effect::DidNotHappen, vec!["b"]),
    ] {
        let faults = Faults::none();
        let store = store(&faults);
        faults.arm(Call::Write, 1, Fault::Panic(effect));
        let panics = tokio::spawn({
            let store = store.clone();
            async move { store.write(put("a"), Durability::Synced).await }
        });
        assert!(panics.await.unwrap_err().is_panic());
        store.write(put("b"), Durability::Synced).await.unwrap();
        assert_eq!(keys(&store).await, left, "{effect:?}");
    }
}

/// Five writes: two synced, two buffered, and the one that the cut hits.
// Mutant: `Crash` syncs the write that it hits, and `keep: 0` keeps all five.
#[tokio::test]
async fn a_crash_loses_a_suffix_of_what_was_not_synced() {
    let happened = [
        (0, vec!["a", "b"]),
        (1, vec!["a", "b", "c"]),
        (2, vec!["a", "b", "c", "d"]),
        (3, vec!["a", "b", "c", "d", "e"]),
        (usize::MAX, vec!["a", "b", "c", "d", "e"]),
    ];
    for (keep, left) in happened {
        assert_eq!(crash(Effect::Happened, keep).await, left, "keep {keep}");
    }
    let before = crash(Effect::DidNotHappen, usize::MAX).await;
    assert_eq!(before, ["a", "b", "c", "d"]);
}

async fn crash(effect: Effect, keep: usize) -> Vec<Bytes> {
    let faults = Faults::none();
    let store = store(&faults);
    faults.arm(Call::Write, 5, Fault::Crash { effect, keep });
    store.write(put("a"), Durability::Buffered).await.unwrap();
    store.write(put("b"), Durability::Synced).await.unwrap();
    store.write(put("c"), Durability::Buffered).await.unwrap();
    store.write(put("d"), Durability::Buffered).await.unwrap();
    let lost = store.write(put("e"), Durability::Synced).await;
    assert_eq!(kind(lost), ErrorKind::InDoubt);
    assert_eq!(kind(store.get(ROWS, b"a").await), ErrorKind::Poisoned);
    let survived = store.take_crashed().unwrap();
    assert!(store.take_crashed().is_none(), "it is handed out once");
    keys(&FaultStore::crashable(survived, faults)).await
}

// Mutant: the poison comes after the cut, or is not looked at after the release.
#[tokio::test]
async fn a_crash_lets_go_of_who_hangs_and_tells_nobody_that_a_lost_write_was_done() {
    let faults = Faults::none();
    let store = store(&faults);
    faults.arm(Call::Write, 1, Fault::Hang(Effect::Happened));
    faults.arm(Call::Get, 1, Fault::Hang(Effect::DidNotHappen));
    let write = tokio::spawn({
        let store = store.clone();
        async move { store.write(put("a"), Durability::Buffered).await }
    });
    let read = tokio::spawn({
        let store = store.clone();
        async move { store.get(ROWS, b"a").await }
    });
    faults.until_hung(2).await;
    let survived = store.crash(0);
    assert_eq!(kind(write.await.unwrap()), ErrorKind::InDoubt);
    assert_eq!(kind(read.await.unwrap()), ErrorKind::Poisoned);
    assert_eq!(keys(&survived).await, [""; 0]);
}

// Mutant: the one below is dropped last, which the panic prevents.
#[tokio::test]
async fn a_drop_panics_after_that_of_the_one_below() {
    let faults = Faults::none();
    let store = store(&faults);
    faults.arm(Call::Drop, 2, Fault::Panic(Effect::Happened));
    drop(store.begin_replace(&[ROWS]).await.unwrap());
    let staging = store.begin_replace(&[ROWS]).await.unwrap();
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(staging)));
    assert!(dropped.is_err());
    drop(store.begin_replace(&[ROWS]).await.unwrap());
    faults.arm(Call::Drop, 1, Fault::Panic(Effect::Happened));
    let snapshot = store.snapshot().await.unwrap();
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(snapshot)));
    assert!(dropped.is_err());
    assert_eq!(faults.call_count(Call::Drop), 4);
}

#[test]
#[should_panic(expected = "a drop can only panic")]
fn a_drop_can_not_be_refused() {
    Faults::none().arm(Call::Drop, 1, Fault::Refuse);
}

#[tokio::test]
async fn a_publish_fails_like_a_write() {
    let entry = || Entry {
        key: "new".into(),
        value: Bytes::new(),
    };
    for (effect, left) in [(Effect::Happened, "new"), (Effect::DidNotHappen, "old")] {
        for crash in [false, true] {
            let faults = Faults::none();
            let store = store(&faults);
            let fault = if crash {
                Fault::Crash { effect, keep: 9 }
            } else {
                Fault::InDoubt(effect)
            };
            faults.arm(Call::Publish, 1, fault);
            store.write(put("old"), Durability::Synced).await.unwrap();
            let mut staging = store.begin_replace(&[ROWS]).await.unwrap();
            staging.load(ROWS, vec![entry()]).await.unwrap();
            assert_eq!(kind(staging.publish().await), ErrorKind::InDoubt);
            assert_eq!(kind(store.get(ROWS, b"").await), ErrorKind::Poisoned);
            let reopened = match store.take_crashed() {
                Some(survived) => survived,
                None => store.crash(0),
            };
            assert_eq!(keys(&reopened).await, [left], "{fault:?}");
        }
    }
}

#[tokio::test]
async fn a_seed_gives_the_same_faults_to_the_same_calls() {
    let odds = Odds::none()
        .with_refuse(1_000)
        .with_in_doubt(500)
        .with_crash(500)
        .with_panic(500)
        .with_delay(500, Duration::from_micros(50));
    let run = async |seed| {
        let faults = Faults::seeded(seed, odds);
        let mut store = store(&faults);
        for n in 0..300_u32 {
            let mut batch = WriteBatch::new();
            batch.put(ROWS, Bytes::copy_from_slice(&n.to_be_bytes()), Bytes::new());
            let write = tokio::spawn({
                let store = store.clone();
                async move { store.write(batch, Durability::Buffered).await }
            });
            if let Ok(Err(error)) = write.await
                && error.outcome() == Outcome::InDoubt
            {
                let survived = store.take_crashed();
                let survived = survived.unwrap_or_else(|| store.crash(usize::MAX));
                store = FaultStore::crashable(survived, faults.clone());
            }
        }
        faults.disarm();
        assert_eq!(faults.call_count(Call::Write), 300);
        (faults.injected(), keys(&store).await)
    };
    let first = run(1).await;
    assert!(first.0.len() > 30, "{} faults", first.0.len());
    assert_eq!(first, run(1).await);
    assert_ne!(first, run(2).await);
}

#[test]
#[should_panic(expected = "commits nothing")]
fn a_read_can_not_be_in_doubt() {
    Faults::none().arm(Call::Scan, 1, Fault::InDoubt(Effect::Happened));
}

#[tokio::test]
#[should_panic(expected = "FaultStore::crashable")]
async fn a_crash_asks_for_a_store_that_can_lose_power() {
    let faults = Faults::none();
    let store = FaultStore::new(MemStore::new(&[ROWS]), faults.clone());
    let (effect, keep) = (Effect::Happened, 0);
    faults.arm(Call::Write, 1, Fault::Crash { effect, keep });
    let _ = store.write(put("a"), Durability::Synced).await;
}

#[test]
fn a_fault_store_and_its_hand_cross_threads() {
    fn check<T: Send + Sync + 'static>() {}
    check::<Faults>();
    check::<Arc<FaultStore<MemStore>>>();
}
