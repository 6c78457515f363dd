//! The sending side: pins, sessions, and who may ask for what.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use kv_restore::{
    AbortCode, DumpStats, ErrorKind, Offer, Options, PeerId, Retry, SessionId, StreamId,
    frame::{Body, Frame},
    transport::{Channel, pair},
};
use pop_store::{
    Snapshot, Store,
    testkit::{Call, Effect, Fault, FaultStore, Faults},
};

use crate::kit::{DUMPS_MAX, World, at, failed, leader, until_hung, write};

fn pull(session: u128, attempt: u32, snapshot: u128) -> Frame {
    Frame {
        stream: StreamId {
            session: SessionId(session),
            attempt,
        },
        body: Body::Pull {
            at: Box::new(at(snapshot, 1, 10)),
            resume: None,
            credit: 1,
            chunk_bytes: 1,
        },
    }
}

/// Connects as a peer and asks.
async fn ask(world: &World, peer: &str, frame: Frame) -> Channel {
    let (mut ours, theirs) = pair();
    let (dumper, peer) = (world.dumper.clone(), PeerId::new(peer));
    tokio::spawn(async move { dumper.serve(&peer, theirs).await });
    ours.tx.send(frame).await.unwrap();
    ours
}

async fn answer(channel: &mut Channel) -> Body {
    channel.rx.recv().await.unwrap().unwrap().body
}

async fn refused(channel: &mut Channel, expected: AbortCode) {
    match answer(channel).await {
        Body::Abort { code, .. } => assert_eq!(code, expected),
        other => panic!("it should have been refused: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn s39_a_session_of_another_peer_is_refused() {
    let world = World::filled().await;
    let mut first = ask(&world, "follower", pull(5, 0, 1)).await;
    assert!(matches!(answer(&mut first).await, Body::Offer { .. }));
    let mut thief = ask(&world, "thief", pull(5, 1, 1)).await;
    refused(&mut thief, AbortCode::Protocol).await;
    assert_eq!(world.dumper.running(), 1);
}

#[tokio::test(start_paused = true)]
async fn s57_s58_the_same_question_on_another_channel_is_refused_and_so_is_another_snapshot() {
    let world = World::filled().await;
    world.offer(2).await;
    let mut first = ask(&world, "follower", pull(5, 0, 1)).await;
    assert!(matches!(answer(&mut first).await, Body::Offer { .. }));
    for (attempt, snapshot) in [(0, 1), (1, 2)] {
        let mut again = ask(&world, "follower", pull(5, attempt, snapshot)).await;
        refused(&mut again, AbortCode::Protocol).await;
    }
    assert_eq!(world.dumper.running(), 1);
    // A reconnect of the receiver ends what it left behind.
    let mut second = ask(&world, "follower", pull(5, 1, 1)).await;
    assert!(matches!(answer(&mut second).await, Body::Offer { .. }));
    tokio::time::sleep(Duration::from_millis(1)).await;
    drop(first);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.dumper.running(), 1);
}

#[tokio::test(start_paused = true)]
async fn f34_a_frame_of_a_session_that_nobody_knows_is_answered() {
    let world = World::filled().await;
    let mut frame = pull(5, 0, 1);
    frame.body = Body::Ack {
        next: 3,
        credit: 9,
        limited: false,
    };
    let mut channel = ask(&world, "follower", frame).await;
    refused(&mut channel, AbortCode::UnknownSession).await;
}

/// A world whose source has more than it may send before some of it is loaded.
async fn narrow() -> World {
    let options = Options::default().with_chunk_bytes(1_000);
    let world = World::with(options.with_window_bytes(1), |it| it);
    world.fill(100).await;
    world
}

/// Another snapshot on offer, and whether somebody still has it.
async fn pinned(world: &World) -> (Offer, Weak<dyn Snapshot>) {
    let snapshot = world.source.snapshot().await.unwrap();
    let pin = Arc::downgrade(&snapshot);
    let offer = world.dumper.offer(at(2, 0, 0), &world.source, snapshot);
    (offer.unwrap(), pin)
}

// Mutant: the dump holds it for ever.
#[tokio::test(start_paused = true)]
async fn s59_an_offer_that_ends_while_it_is_fetched_stays_pinned_until_then() {
    let world = narrow().await;
    let (offer, pin) = pinned(&world).await;
    world
        .faults
        .arm(Call::Load, 1, Fault::Hang(Effect::Happened));
    let session = world.restore(at(2, 1, 10)).unwrap();
    world.faults.until_hung(1).await;
    drop(offer);
    assert!(pin.upgrade().is_some());
    world.faults.release();
    session.outcome().await.unwrap();
    assert!(world.same().await);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(pin.upgrade().is_none());
    let again = world.restore(at(2, 2, 10)).unwrap();
    assert!(again.outcome().await.unwrap().already);
}

// Mutant: the driver lets nothing go before the outcome.
#[tokio::test(start_paused = true)]
async fn what_a_receiver_has_and_did_not_switch_to_keeps_no_snapshot_and_no_room_at_the_source() {
    let world = World::filled().await;
    let (offer, pin) = pinned(&world).await;
    let session = world.restorer.stage(at(2, 0, 0), &[leader()]).unwrap();
    session.staged().await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(world.dumper.running(), 1);
    assert_eq!(world.dumping.free(), DUMPS_MAX);
    drop(offer);
    assert!(pin.upgrade().is_none());
    session.commit();
    session.outcome().await.unwrap();
    assert!(world.same().await);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(world.dumper.stats().ended, [("installed", 1)].into());
}

#[tokio::test(start_paused = true)]
async fn s46_s60_a_snapshot_that_is_withdrawn_fails_its_receivers_at_once() {
    let world = narrow().await;
    let session = until_hung(&world, Call::Load, Effect::Happened).await;
    let started = tokio::time::Instant::now();
    for offer in world.offers() {
        offer.withdraw();
    }
    let error = failed(session.outcome().await, ErrorKind::SourceGone);
    assert_eq!(error.retry(), Retry::NewerSnapshot);
    assert!(started.elapsed() < Duration::from_secs(1));
    world.faults.release();
    world.is_quiet().await;
    let late = world.restored().await;
    failed(late, ErrorKind::SourceGone);
}

#[tokio::test(start_paused = true)]
async fn s61_a_receiver_that_disappears_leaves_no_dump_and_no_pin() {
    let world = World::filled().await;
    let (offer, pin) = pinned(&world).await;
    let channel = ask(&world, "follower", pull(5, 0, 2)).await;
    // One that stays and says nothing takes its time, and no more.
    let _silent = ask(&world, "another", pull(6, 0, 2)).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.dumper.running(), 2);
    drop((channel, offer));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.dumper.running(), 1);
    assert!(pin.upgrade().is_some());
    // Also while its last word is still repeated.
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert!(pin.upgrade().is_none());
    tokio::time::sleep(Duration::from_secs(68)).await;
    assert_eq!(world.dumper.running(), 0);
}

#[tokio::test(start_paused = true)]
async fn s62_a_dump_that_can_not_say_goodbye_ends_nevertheless() {
    let world = World::filled().await;
    let (mut ours, theirs) = pair();
    let dumper = world.dumper.clone();
    tokio::spawn(async move { dumper.serve(&PeerId::new("follower"), theirs).await });
    ours.tx.send(pull(5, 0, 1)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    // It hears of the wish to stop, and nobody takes what it says.
    let tx = ours.tx;
    drop(ours.rx);
    world.dumper.close();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(world.dumper.running(), 0);
    drop(tx);
}

// Mutant: a close ends the offers, and no session.
#[tokio::test(start_paused = true)]
async fn f31_a_source_that_closes_tells_those_who_fetch_and_those_who_come() {
    let world = World::filled().await;
    let mut first = ask(&world, "follower", pull(5, 0, 1)).await;
    assert!(matches!(answer(&mut first).await, Body::Offer { .. }));
    world.dumper.close();
    let told = async {
        loop {
            if let Body::Abort { code, .. } = answer(&mut first).await {
                return code;
            }
        }
    };
    assert_eq!(told.await, AbortCode::Closing);
    let mut late = ask(&world, "another", pull(6, 0, 1)).await;
    refused(&mut late, AbortCode::Closing).await;
    drop((first, late));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.dumper.running(), 0);
}

// S64: each channel has a task of its own, so that a panic in one reaches no other.
#[tokio::test(start_paused = true)]
async fn s64_a_panic_in_one_dump_leaves_the_others_and_later_ones_alone() {
    let world = World::filled().await;
    let faults = Faults::none();
    let bad = FaultStore::new(world.source.clone(), faults.clone());
    faults.arm(Call::Scan, 1, Fault::Panic(Effect::DidNotHappen));
    let snapshot = bad.snapshot().await.unwrap();
    let _offer = world.dumper.offer(at(2, 1, 11), &bad, snapshot).unwrap();
    let good = until_hung(&world, Call::Load, Effect::Happened).await;
    let broken = ask(&world, "another", pull(5, 0, 2)).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.dumper.running(), 1, "only the good one is left");
    drop(broken);
    world.faults.release();
    good.outcome().await.unwrap();
    world
        .restore(at(2, 1, 11))
        .unwrap()
        .outcome()
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn s63_a_read_that_fails_in_the_middle_ends_both_sides() {
    let world = World::filled().await;
    let faults = Faults::none();
    let bad = FaultStore::new(world.source.clone(), faults.clone());
    let snapshot = bad.snapshot().await.unwrap();
    let _offer = world.dumper.offer(at(2, 1, 11), &bad, snapshot).unwrap();
    faults.arm(Call::Scan, 3, Fault::Refuse);
    let before = world.target_rows().await;
    let outcome = world.restore(at(2, 1, 11)).unwrap().outcome().await;
    failed(outcome, ErrorKind::PeerAborted(AbortCode::SourceError));
    assert_eq!(world.target_rows().await, before);
    world.is_quiet().await;
    write(&world.source, 1, 1).await;
}

/// Each session is counted once, by how it ended, and a panic is an end.
/// Mutants: a session that is lost with its task is not counted; what is said again counts
/// as going on; rows are counted once they are acknowledged.
// Mutant: the drop of the view ends the dump before it is counted how that was.
#[tokio::test(start_paused = true)]
async fn a_view_whose_drop_panics_is_served_to_its_end_and_keeps_no_room() {
    let world = narrow().await;
    let faults = Faults::none();
    let source = FaultStore::new(world.source.clone(), faults.clone());
    let view = source.snapshot().await.unwrap();
    let offer = world.dumper.offer(at(2, 0, 0), &source, view).unwrap();
    faults.arm(Call::Drop, 1, Fault::Panic(Effect::Happened));
    let hang = Fault::Hang(Effect::Happened);
    world.faults.arm(Call::Load, 1, hang);
    let session = world.restore(at(2, 1, 10)).unwrap();
    world.faults.until_hung(1).await;
    // So that the dump has the last of it.
    drop(offer);
    world.faults.release();
    session.outcome().await.unwrap();
    world.is_quiet().await;
    assert_eq!(faults.injected_count(), 1);
    let ended: Vec<_> = world.dumper.stats().ended.into_iter().collect();
    assert_eq!(ended, [("installed", 1)]);
}

#[tokio::test(start_paused = true)]
async fn what_a_dumper_did_is_counted() {
    use pop_store::{
        Store,
        testkit::{Fault, FaultStore, Faults},
    };
    let world = World::filled().await;
    assert_eq!(world.dumper.stats(), DumpStats::default());
    world.restored().await.unwrap();
    let done = world.dumper.stats();
    assert_eq!((done.begun, done.running, done.rows), (1, 0, 200));
    assert!(done.bytes > 100, "{done:?}");

    let mut thief = ask(&world, "thief", pull(5, 0, 9)).await;
    refused(&mut thief, AbortCode::SourceGone).await;
    drop(thief);
    let (ours, theirs) = pair();
    drop(ours);
    world.dumper.serve(&PeerId::new("silent"), theirs).await;
    let faults = Faults::none();
    let bad = FaultStore::new(world.source.clone(), faults.clone());
    faults.arm(Call::Scan, 1, Fault::Panic(Effect::DidNotHappen));
    let snapshot = bad.snapshot().await.unwrap();
    let _offer = world.dumper.offer(at(2, 1, 11), &bad, snapshot).unwrap();
    let broken = ask(&world, "another", pull(6, 0, 2)).await;

    // Takes one chunk and no more.
    let slow = ask(&world, "slow", pull(7, 0, 1)).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    let now = world.dumper.stats();
    assert_eq!((now.begun, now.running, now.rows), (4, 1, 201));
    assert_eq!(now.still.unwrap().as_secs(), 20);
    drop((broken, slow));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let end = world.dumper.stats();
    assert_eq!((end.running, end.still), (0, None));
    let ended: Vec<_> = end.ended.into_iter().collect();
    assert_eq!(
        ended,
        [
            ("installed", 1),
            ("nothing", 1),
            ("source-gone", 1),
            ("task-lost", 1),
            ("transport", 1),
        ]
    );
}
