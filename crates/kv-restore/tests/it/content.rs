//! What the target holds: the source's rows of one moment, or what it held before.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use kv_restore::{Digest, ErrorKind, Options, Target, digest};
use pop_store::{
    Durability, Keyspace, MemStore, Store, WriteBatch,
    testkit::{Call, Effect, Fault},
};
use proptest::{collection::vec, prelude::*};
use tokio::time::timeout;

use crate::kit::{A, B, SEALS, World, at, count, failed, rows_of, until_hung, write};

#[tokio::test(start_paused = true)]
async fn s32_an_empty_snapshot_empties_the_target() {
    let world = World::new();
    world.fill(0).await;
    let installed = world.restored().await.unwrap();
    assert_eq!(installed.seal.totals, Digest::default());
    assert_eq!(count(&world.target, A).await, 0);
}

#[tokio::test(start_paused = true)]
async fn s33_a_row_larger_than_a_chunk_and_a_keyspace_larger_than_a_batch() {
    let world = World::new();
    let mut batch = WriteBatch::new();
    batch.put(A, "big".into(), vec![7; 900_000].into());
    world.source.write(batch, Durability::Synced).await.unwrap();
    world.fill(5_000).await;
    world.restored().await.unwrap();
    assert!(world.same().await);
}

// Mutant: rows go to the content that is in use.
#[tokio::test(start_paused = true)]
async fn s74_in_every_call_of_a_session_readers_see_the_old_rows() {
    let calls = [
        (Call::BeginReplace, 1),
        (Call::Load, 4),
        (Call::Checkpoint, 3),
        (Call::Scan, 1),
        (Call::Publish, 1),
    ];
    for (call, nth) in calls
        .into_iter()
        .flat_map(|(call, count)| (1..=count).map(move |nth| (call, nth)))
    {
        let world = World::filled().await;
        let before = world.target_rows().await;
        let hang = Fault::Hang(Effect::DidNotHappen);
        world.faults.arm(call, nth, hang);
        let session = world.restore(at(1, 1, 10)).unwrap();
        world.faults.until_hung(1).await;
        assert_eq!(world.target_rows().await, before, "{call:?} {nth}");
        world.faults.release();
        session.outcome().await.unwrap();
        assert!(world.same().await);
    }
}

#[tokio::test(start_paused = true)]
async fn s74_readers_see_the_old_rows_until_the_switch_and_an_open_view_keeps_them() {
    let world = World::filled().await;
    let before = world.target_rows().await;
    let view = world.target.snapshot().await.unwrap();
    let session = until_hung(&world, Call::Publish, Effect::DidNotHappen).await;
    assert_eq!(world.target_rows().await, before);
    world.faults.release();
    session.outcome().await.unwrap();
    assert!(world.same().await);
    assert_eq!(digest(view.as_ref(), &[A, B]).await.unwrap(), before);
}

// Mutants: FenceIgnored; what is installed decides by how far it is, and not by its epoch.
#[tokio::test(start_paused = true)]
async fn s75_what_is_written_in_an_old_epoch_does_not_survive_and_the_seal_keeps_it_out() {
    let world = World::filled().await;
    let old = world.restore(at(1, 1, 500)).unwrap();
    old.outcome().await.unwrap();
    write(&world.source, 40, 5).await;
    world.offer(2).await;
    world
        .faults
        .arm(Call::Load, 1, Fault::Hang(Effect::Happened));
    let session = world.restore(at(2, 2, 10)).unwrap();
    let hung = timeout(Duration::from_secs(9), world.faults.until_hung(1));
    assert!(hung.await.is_ok(), "nothing is loaded");
    // Whoever served the old epoch goes on, also with rows that the new one does not have.
    write(world.target.inner(), 400, 3).await;
    world.faults.release();
    session.outcome().await.unwrap();
    assert!(world.same().await);
    // And asks for more of it, where nobody remembers anything but the store.
    world.offer(3).await;
    for request in [at(1, 1, 500), at(3, 1, 900)] {
        let late = world.asked_in(world.target.inner().clone(), request).await;
        failed(late, ErrorKind::StaleEpoch);
    }
    assert!(world.same().await);
}

#[tokio::test(start_paused = true)]
async fn s76_what_is_sent_is_the_moment_of_the_snapshot_while_writes_go_on() {
    let world = World::filled().await;
    let moment = world.source_rows().await;
    let session = until_hung(&world, Call::Load, Effect::Happened).await;
    write(&world.source, 500, 9).await;
    world.faults.release();
    let installed = session.outcome().await.unwrap();
    assert_eq!(installed.seal.totals, moment);
    assert_eq!(world.target_rows().await, moment);
}

#[tokio::test(start_paused = true)]
async fn seals_of_other_spaces_and_their_rows_are_kept() {
    let world = World::filled().await;
    world.restored().await.unwrap();
    let b = count(&world.target, B).await;
    let mut small = at(1, 1, 10);
    small.space = "small".into();
    small.keyspaces.pop();
    let snapshot = MemStore::new(&[A, B]).snapshot().await.unwrap();
    small.id = kv_restore::SnapshotId(9);
    let _offer = world.dumper.offer(small.clone(), &world.source, snapshot);
    world.restore(small).unwrap().outcome().await.unwrap();
    assert_eq!(count(&world.target, A).await, 0);
    assert_eq!(count(&world.target, B).await, b, "not of that space");
    // Both seals are there.
    let target = Target::new(Arc::new(world.target.clone())).with_seals(SEALS);
    for (space, id) in [("space", 1), ("small", 9)] {
        let seal = target.installed(space).await.unwrap().unwrap();
        assert_eq!(seal.snapshot.0, id);
    }
}

#[tokio::test(start_paused = true)]
async fn a_target_without_seals_copies_each_time() {
    let world = World::filled().await;
    let plain = Target::new(Arc::new(world.target.clone()));
    assert_eq!(plain.installed("space").await.unwrap(), None);
}

#[tokio::test]
async fn a_row_counts_for_its_keyspace_key_and_value_each_on_its_own() {
    let row = |key: &'static str, value: &'static str| (Bytes::from(key), Bytes::from(value));
    let mut seen = Vec::new();
    for (keyspace, (key, value)) in [
        (A, row("k", "v")),
        (B, row("k", "v")),
        (A, row("kv", "")),
        (A, row("", "kv")),
    ] {
        let store = MemStore::new(&[A, B]);
        let mut batch = WriteBatch::new();
        batch.put(keyspace, key, value);
        store.write(batch, Durability::Synced).await.unwrap();
        // Mutant: parts are hashed without their lengths; "kv" + "" equals "" + "kv".
        let digest = rows_of(&store).await;
        assert!(!seen.contains(&digest));
        seen.push(digest);
    }
}

#[derive(Clone, Debug)]
struct Case {
    rows: Vec<(bool, Vec<u8>, Vec<u8>)>,
    chunk: u32,
    window: u64,
    fault: Option<(Call, u64, bool)>,
}

fn cases() -> impl Strategy<Value = Case> {
    let row = (
        any::<bool>(),
        vec(any::<u8>(), 0..4),
        vec(any::<u8>(), 0..40),
    );
    let call = prop_oneof![
        Just(Call::BeginReplace),
        Just(Call::Load),
        Just(Call::Publish)
    ];
    let fault = proptest::option::of((call, 1..6_u64, any::<bool>()));
    (vec(row, 0..60), 1..200_u32, 1..400_u64, fault).prop_map(|(rows, chunk, window, fault)| Case {
        rows,
        chunk,
        window,
        fault,
    })
}

async fn check(case: Case) {
    let options = Options::default()
        .with_chunk_bytes(case.chunk)
        .with_window_bytes(case.window);
    let world = World::with(options, |it| it);
    write(&world.target, 5, 1).await;
    for (in_b, key, value) in case.rows {
        let keyspace: Keyspace = if in_b { B } else { A };
        let mut batch = WriteBatch::new();
        batch.put(keyspace, key.into(), value.into());
        world.source.write(batch, Durability::Synced).await.unwrap();
    }
    world.offer(1).await;
    let before = world.target_rows().await;
    if let Some((call, nth, panics)) = case.fault {
        let fault = match panics {
            true => Fault::Panic(Effect::DidNotHappen),
            false => Fault::Refuse,
        };
        world.faults.arm(call, nth, fault);
    }
    match world.restored().await {
        Ok(_) => assert!(world.same().await),
        Err(error) => {
            assert_ne!(error.kind(), ErrorKind::Protocol, "{error}");
            assert_eq!(world.target_rows().await, before, "{error}");
        }
    }
    world.faults.disarm();
    world.restored().await.unwrap();
    assert!(world.same().await);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    // S78. Mutants: a window that is smaller than a chunk is never opened; the last row of
    // a keyspace is read twice.
    #[test]
    fn s78_any_rows_any_chunks_and_any_fault_end_equal_or_unchanged(case in cases()) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(check(case));
    }
}

/// S66 as far as a store's switch is one step: the power goes in every call that a session
/// makes. What is inside that step, the kit and the power cuts of the engines show.
// Mutant: the seal is written beside the staging.
#[tokio::test(start_paused = true)]
async fn s66_a_crash_in_any_call_leaves_the_old_content_or_the_new_one_with_its_seal() {
    let calls = [
        (Call::Get, 2),
        (Call::BeginReplace, 1),
        (Call::Load, 5),
        (Call::Publish, 1),
    ];
    let hits = calls
        .into_iter()
        .flat_map(|(call, count)| (1..=count).map(move |nth| (call, nth)));
    let mut switched = 0;
    for (call, nth) in hits {
        for effect in [Effect::Happened, Effect::DidNotHappen] {
            let world = World::filled().await;
            let before = world.target_rows().await;
            let keep = usize::MAX;
            world.faults.arm(call, nth, Fault::Crash { effect, keep });
            let outcome = world.restored().await;
            assert!(outcome.is_err(), "the store is gone");
            let reopened = world.target.take_crashed().unwrap();
            let target = Target::new(Arc::new(reopened.clone())).with_seals(SEALS);
            let seal = target.installed("space").await.unwrap();
            let rows = rows_of(&reopened).await;
            match &seal {
                None => assert_eq!(rows, before, "{call:?} {nth}"),
                Some(seal) => assert_eq!((rows, seal.snapshot.0), (seal.totals, 1)),
            }
            switched += u32::from(seal.is_some());
            // And a retry needs a transfer only if it was the old one.
            let again = world.restored_in(reopened.clone()).await.unwrap();
            assert_eq!(again.already, seal.is_some());
            assert_eq!(rows_of(&reopened).await, world.source_rows().await);
        }
    }
    assert_eq!(switched, 1, "a publish that happened, and nothing else");
}

#[tokio::test(start_paused = true)]
async fn a_damaged_seal_is_said_and_nothing_is_touched() {
    let world = World::filled().await;
    let before = world.target_rows().await;
    let mut batch = WriteBatch::new();
    batch.put(SEALS, "space".into(), "damaged".into());
    world.target.write(batch, Durability::Synced).await.unwrap();
    let error = failed(world.restored().await, ErrorKind::Begin);
    assert!(error.detail().contains("seal"), "{error}");
    assert_eq!(world.target_rows().await, before);
}
