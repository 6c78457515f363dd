//! Who asks for rows, and takes none, goes away, or asks for what is not there.

use std::time::Duration;

use kv_restore::{
    SessionId, SnapshotId, SnapshotRef, StreamId,
    frame::{Body, Frame},
    transport::{Channel, framed},
};
use pop_store::{Scan, table::LOG};
use tokio::{
    io::{AsyncWriteExt, DuplexStream},
    time::{Instant, sleep},
};

use super::{
    super::hello::{self, Ask, Reply, Say},
    rig::{Rig, closed, hear, say, snapshot},
};

const SECOND: Duration = Duration::from_secs(1);

fn pull(session: u128, at: SnapshotRef) -> Frame {
    Frame {
        stream: StreamId {
            session: SessionId(session),
            attempt: 0,
        },
        body: Body::Pull {
            at: Box::new(at),
            resume: None,
            // As much as can be said: what is kept for it is bounded by itself.
            credit: u64::MAX,
            chunk_bytes: 1 << 20,
        },
    }
}

async fn channel(mut wire: DuplexStream) -> Channel {
    say(&mut wire, Ask::Fetch, None).await;
    assert_eq!(hear(&mut wire).await, Reply::Ready);
    let (read, write) = tokio::io::split(wire);
    framed(read, write)
}

// Catches: rows that are read from the store as it is and not from a snapshot.
#[tokio::test(start_paused = true)]
async fn a_copy_has_what_was_there_when_its_snapshot_was_taken() {
    let rig = Rig::new().await;
    rig.fill(2).await;
    for messages in [2, 5] {
        let copy = rig.copy_while(rig.fill(3)).await;
        let rows = copy.scan(LOG, Scan::all()).await.unwrap();
        assert_eq!(rows.len(), messages);
    }
}

/// P5. Mutant: the first frame is waited for without an end.
#[tokio::test(start_paused = true)]
async fn who_asks_its_channel_for_nothing_is_turned_away() {
    let rig = Rig::new().await;
    rig.hundred(async |mut wire| {
        say(&mut wire, Ask::Fetch, None).await;
        assert_eq!(hear(&mut wire).await, Reply::Ready);
        let begun = Instant::now();
        closed(&mut wire).await;
        assert_eq!(begun.elapsed(), SECOND * 10);
    })
    .await;
    rig.hundred(async |mut wire| {
        say(&mut wire, Ask::Fetch, None).await;
        assert_eq!(hear(&mut wire).await, Reply::Ready);
        drop(wire.write_all(&[0; 64]).await);
        closed(&mut wire).await;
    })
    .await;
    assert_eq!(rig.turned("nothing-asked"), 200);
    rig.is_said("nothing-asked");
    assert_eq!(rig.service.stats().ended.get("nothing"), Some(&200));
    rig.serves().await;
}

/// Mutant: a session for which nothing is here stays.
#[tokio::test(start_paused = true)]
async fn who_asks_for_a_snapshot_that_is_not_here_is_told_so() {
    let rig = Rig::new().await;
    for session in 0..100 {
        let mut channel = channel(rig.dial(1)).await;
        let at = SnapshotRef::new("broker", SnapshotId(77), &["meta"]);
        channel.tx.send(pull(session, at)).await.unwrap();
        let told = channel.rx.recv().await.unwrap().unwrap().body;
        assert!(matches!(told, Body::Abort { .. }), "{told:?}");
    }
    rig.rest().await;
    assert_eq!(rig.service.stats().ended.get("source-gone"), Some(&100));
    let said = rig
        .heard
        .lines(&["ended without being installed", "peer=10.0.0.1"]);
    assert_eq!(said.len(), 100);
    rig.serves().await;
}

/// P5. Whoever takes no rows is given up after thirty seconds, and a port whose turns all
/// went to such peers serves again; its snapshot is free as soon as nobody reads it.
/// Mutants: what is under way to a peer counts as a sign of life; the turn is kept with what
/// is said last.
#[tokio::test(start_paused = true)]
async fn who_takes_no_rows_is_given_up_and_who_vanishes_is_noticed_at_once() {
    let rig = Rig::new().await;
    rig.fill(30).await;
    let mut holder = rig.dial(1);
    say(&mut holder, Ask::Snapshot { wanted: None }, None).await;
    let at = snapshot(&mut holder).await;
    let mut begun = 0;
    let mut fetch = async || {
        begun += 1;
        let mut channel = channel(rig.dial(2)).await;
        channel.tx.send(pull(begun, at.clone())).await.unwrap();
        channel
    };

    for _ in 0..100 {
        let channel = fetch().await;
        sleep(Duration::from_millis(20)).await;
        drop(channel);
        hello::write(&mut holder, &Say::Alive).await.unwrap();
    }
    sleep(SECOND).await;
    let stats = rig.service.stats();
    assert_eq!(stats.running, 0);
    assert_eq!(stats.ended.get("transport"), Some(&100), "{stats:?}");

    let mut shut = Vec::new();
    for _ in 0..4 {
        shut.push(fetch().await);
    }
    for second in 0..31_u64 {
        if second.is_multiple_of(5) {
            hello::write(&mut holder, &Say::Alive).await.unwrap();
        }
        sleep(SECOND).await;
    }
    let said = rig.heard.lines(&[
        "ended without being installed",
        "why=\"idle\"",
        "peer=10.0.0.2",
    ]);
    assert_eq!(said.len(), 4, "{said:?}");
    // The turns are free, although the four still have not heard it.
    rig.serves_beside().await;
    hello::write(&mut holder, &Say::Done).await.unwrap();
    sleep(SECOND).await;
    let stats = rig.service.stats();
    assert_eq!((stats.pins, stats.still.is_some()), (0, true));
    // It goes on to say so for a minute to who may have missed it.
    sleep(SECOND * 70).await;
    assert_eq!(rig.service.stats().ended.get("idle"), Some(&4));
    drop(shut);
    rig.rest().await;
    rig.serves().await;
}
