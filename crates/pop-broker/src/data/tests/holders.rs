//! Who asks for a snapshot or for everything, and goes away, says nothing, or never ends.

use std::time::Duration;

use tokio::{
    io::DuplexStream,
    time::{Instant, sleep, timeout},
};

use super::{
    super::{
        Access, DataOptions,
        hello::{self, Ask, Reply, Say, Why},
        limits::{ALIVE_EVERY, GRACE, SILENCE_MAX},
    },
    rig::{Rig, closed, hear, say, snapshot},
};

const SECOND: Duration = Duration::from_secs(1);

fn ask(wanted: Option<String>) -> Ask {
    Ask::Snapshot { wanted }
}

/// Says that it is there, until nobody hears it.
async fn stays(wire: &mut DuplexStream) {
    while hello::write(wire, &Say::Alive).await.is_ok() {
        sleep(ALIVE_EVERY).await;
    }
}

/// Waits for the last snapshot to go, and says how long that took.
async fn until_free(rig: &Rig) -> Duration {
    let begun = Instant::now();
    rig.rest().await;
    begun.elapsed()
}

/// Each of a hundred gets a snapshot, although all before it left theirs behind; the last of
/// them is kept for a while, so that its holder can come back.
/// Mutants: who left holds up who is here for a minute; nothing is kept for who comes back.
#[tokio::test(start_paused = true)]
async fn who_goes_leaves_its_snapshot_for_a_while_and_in_nobodys_way() {
    let rig = Rig::new().await;
    let mut last = String::new();
    for number in 0..100 {
        let mut wire = rig.dial(number);
        say(&mut wire, ask(None), None).await;
        last = snapshot(&mut wire).await.id.to_string();
        drop(wire);
        sleep(Duration::from_millis(10)).await;
    }
    let ended = rig.service.stats().snapshots_ended;
    assert_eq!(ended.get("gave-way"), Some(&98), "{ended:?}");
    sleep(GRACE / 2).await;
    let mut back = rig.dial(1);
    say(&mut back, ask(Some(last.clone())), None).await;
    assert_eq!(snapshot(&mut back).await.id.to_string(), last);
    hello::write(&mut back, &Say::Done).await.unwrap();
    assert!(until_free(&rig).await <= GRACE);
    let said = rig.heard.lines(&["is not kept any more", "peer=10.0.0."]);
    assert_eq!(said.len(), 100);
    rig.serves().await;
}

/// Those who are here are not put out for one more.
#[tokio::test(start_paused = true)]
async fn who_is_here_keeps_its_snapshot_and_one_more_is_told_to_come_later() {
    let rig = Rig::new().await;
    let mut first = rig.dial(1);
    say(&mut first, ask(None), None).await;
    snapshot(&mut first).await;
    let mut second = rig.dial(2);
    say(&mut second, ask(None), None).await;
    snapshot(&mut second).await;
    tokio::select! {
        () = rig.hundred_refused(Why::Busy) => {}
        () = stays(&mut first) => panic!("it was put out"),
        () = stays(&mut second) => panic!("it was put out"),
    }
    assert_eq!(rig.turned("busy"), 100);
    // Each after it has waited, so that each is said.
    assert_eq!(rig.heard.lines(&["turned a peer away", "busy"]).len(), 100);
    for wire in [&mut first, &mut second] {
        hello::write(wire, &Say::Done).await.unwrap();
    }
    assert_eq!(until_free(&rig).await, SECOND);
    rig.serves().await;
}

/// P5. Mutants: silence is not counted; its clock stands still.
#[tokio::test(start_paused = true)]
async fn who_says_nothing_more_is_gone_after_thirty_seconds() {
    let rig = Rig::new().await;
    let mut wire = rig.dial(1);
    say(&mut wire, ask(None), None).await;
    snapshot(&mut wire).await;
    let begun = Instant::now();
    closed(&mut wire).await;
    assert_eq!(begun.elapsed(), SILENCE_MAX);
    assert!((GRACE..GRACE + SECOND * 3).contains(&until_free(&rig).await));
    rig.serves().await;
}

/// P5. Mutants: who says again and again that it is there keeps it for ever; who came back
/// for it is left waiting for what is gone.
#[tokio::test(start_paused = true)]
async fn nobody_keeps_a_snapshot_beyond_its_age() {
    let rig = Rig::keeping(Duration::from_secs(300)).await;
    let begun = Instant::now();
    let mut first = rig.dial(1);
    say(&mut first, ask(None), None).await;
    let id = snapshot(&mut first).await.id.to_string();
    let mut second = rig.dial(2);
    say(&mut second, ask(Some(id.clone())), None).await;
    assert_eq!(snapshot(&mut second).await.id.to_string(), id);
    let both = async { tokio::join!(stays(&mut first), stays(&mut second)) };
    timeout(SECOND * 400, both).await.unwrap();
    let lasted = begun.elapsed();
    assert!((300..310).contains(&lasted.as_secs()), "{lasted:?}");
    rig.rest().await;
    let said = rig.heard.lines(&["is not kept any more", "too-old"]);
    assert_eq!(said.len(), 1);
    rig.serves().await;
}

/// Mutant: it is kept as long as its age allows, however that is written.
#[tokio::test(start_paused = true)]
async fn an_age_beyond_all_time_is_no_fault() {
    let rig = Rig::keeping(Duration::MAX).await;
    rig.serves().await;
}

/// A snapshot of a store that was closed is given to nobody.
/// Mutant: who comes back gets it, fails to read it, and comes back.
#[tokio::test(start_paused = true)]
async fn who_comes_back_gets_no_snapshot_of_a_store_that_was_closed() {
    let rig = Rig::new().await;
    let mut wire = rig.dial(1);
    say(&mut wire, ask(None), None).await;
    let id = snapshot(&mut wire).await.id.to_string();
    drop(wire);
    // The store is opened anew for this, and serves again.
    let mut wire = rig.dial(2);
    say(&mut wire, Ask::Handover { to: "there".into() }, None).await;
    snapshot(&mut wire).await;
    drop(wire);
    sleep(SECOND).await;
    let mut back = rig.dial(3);
    say(&mut back, ask(Some(id.clone())), None).await;
    assert_ne!(snapshot(&mut back).await.id.to_string(), id);
    hello::write(&mut back, &Say::Done).await.unwrap();
    rig.rest().await;
    rig.serves().await;
}

/// P5. Whoever begins a handover and goes, is silent, or never comes to have it, gets nothing,
/// and the broker serves again.
/// Mutants: it stays paused; the time limit does not count for a handover.
#[tokio::test(start_paused = true)]
async fn a_handover_that_comes_to_nothing_leaves_the_broker_serving() {
    let rig = Rig::keeping(SECOND * 45).await;
    let begin = async |number| rig.begin_handover(number).await;
    for number in 0..20 {
        drop(begin(number).await);
        rig.rest().await;
        rig.serves().await;
    }
    let mut silent = begin(1).await;
    let begun = Instant::now();
    closed(&mut silent).await;
    assert_eq!(begun.elapsed(), SILENCE_MAX);
    rig.rest().await;
    rig.serves().await;

    let mut wrong = begin(2).await;
    let totals = "no rows".into();
    hello::write(&mut wrong, &Say::Retire { totals })
        .await
        .unwrap();
    closed(&mut wrong).await;
    rig.rest().await;
    rig.serves().await;

    let mut endless = begin(3).await;
    timeout(SECOND * 50, stays(&mut endless)).await.unwrap();
    rig.rest().await;
    rig.serves().await;

    let stats = rig.service.stats();
    assert_eq!(stats.handovers, 23);
    let ended: Vec<_> = stats.handovers_ended.into_iter().collect();
    assert_eq!(ended, [("left", 23)]);
    let said = rig
        .heard
        .lines(&["the handover ends without one", "peer=10.0.0."]);
    assert_eq!(said.len(), 23);
}

/// P5. A peer that takes everything and fetches none of it, and says that it lives, holds the
/// broker down for a minute and not for as long as a snapshot may be kept.
/// Mutant: only the age bounds it.
#[tokio::test(start_paused = true)]
async fn a_handover_that_nobody_fetches_ends_long_before_its_time() {
    let rig = Rig::keeping(Duration::from_secs(3_600)).await;
    let mut idle = rig.begin_handover(1).await;
    let begun = Instant::now();
    timeout(GRACE + SECOND * 10, stays(&mut idle))
        .await
        .unwrap();
    assert!(
        begun.elapsed() >= GRACE,
        "it may have gone to open its folder"
    );
    rig.rest().await;
    rig.serves().await;
}

impl Rig {
    async fn begin_handover(&self, number: u8) -> DuplexStream {
        let mut wire = self.dial(number);
        say(&mut wire, Ask::Handover { to: "there".into() }, None).await;
        snapshot(&mut wire).await;
        wire
    }

    /// A port that keeps a snapshot for so long at most.
    async fn keeping(age_max: Duration) -> Self {
        let options = DataOptions {
            snapshot_age_max: age_max,
            ..DataOptions::default()
        };
        Self::with(Access::default(), options, None).await
    }

    async fn hundred_refused(&self, expected: Why) {
        for number in 0..100 {
            let mut wire = self.dial(number);
            say(&mut wire, ask(None), None).await;
            match hear(&mut wire).await {
                Reply::Refused { why, .. } => assert_eq!(why, expected),
                other => panic!("it should have been refused: {other:?}"),
            }
        }
    }
}
