//! Cut off between any two steps: after each poll of a task of a session and before the
//! next one, the session is cancelled, its source goes away, or the whole runtime does.

use std::sync::Arc;

use async_trait::async_trait;
use kv_restore::{
    Digest, Dumper, ErrorKind, Options, Outcome, PeerId, Restorer, RestorerOptions, StreamId,
    Target,
    frame::Frame,
    transport::{Channel, FrameRx, FrameTx, Transport, TransportError, pair},
};
use parking_lot::Mutex;
use tokio::task::AbortHandle;

use crate::kit::{A, SEALS, World, at, in_steps, leader, write};
use pop_store::Store;

async fn steps(count: usize) {
    for _ in 0..count {
        tokio::task::yield_now().await;
    }
}

/// A way to a dumper on which each frame is a step, and whose far side can be ended.
struct Frail {
    dumper: Dumper,
    serving: Mutex<Vec<AbortHandle>>,
}

struct Tx(Box<dyn FrameTx>);

struct Rx(Box<dyn FrameRx>);

#[async_trait]
impl FrameTx for Tx {
    async fn send(&mut self, frame: Frame) -> Result<(), TransportError> {
        tokio::task::yield_now().await;
        self.0.send(frame).await
    }
}

#[async_trait]
impl FrameRx for Rx {
    async fn recv(&mut self) -> Result<Option<Frame>, TransportError> {
        tokio::task::yield_now().await;
        self.0.recv().await
    }
}

fn stepwise(channel: Channel) -> Channel {
    Channel {
        tx: Box::new(Tx(channel.tx)),
        rx: Box::new(Rx(channel.rx)),
    }
}

#[async_trait]
impl Transport for Frail {
    async fn connect(&self, _: &PeerId, _: StreamId) -> Result<Channel, TransportError> {
        tokio::task::yield_now().await;
        let (ours, theirs) = pair();
        let (dumper, theirs) = (self.dumper.clone(), stepwise(theirs));
        let serve = async move { dumper.serve(&PeerId::new("follower"), theirs).await };
        self.serving.lock().push(tokio::spawn(serve).abort_handle());
        Ok(stepwise(ours))
    }
}

/// A restorer on that way.
fn restorer(world: &World) -> (Restorer, Arc<Frail>) {
    let way = Arc::new(Frail {
        dumper: world.dumper.clone(),
        serving: Mutex::default(),
    });
    let options = Options::default()
        .with_chunk_bytes(200)
        .with_window_bytes(300)
        .with_checkpoint_bytes(400);
    let restorer = Restorer::new(
        Target::new(Arc::new(world.target.clone())).with_seals(SEALS),
        Arc::clone(&way) as Arc<dyn Transport>,
        RestorerOptions::new(world.admission.clone(), Arc::new(|| 7)).with_session(options),
        tokio::runtime::Handle::current(),
    );
    (restorer, way)
}

async fn filled() -> (World, Digest) {
    let options = Options::default().with_chunk_bytes(200);
    let world = World::with(options, |it| it);
    write(&world.target, 3, 1).await;
    write(&world.source, 60, 2).await;
    world.offer(1).await;
    let before = world.target_rows().await;
    (world, before)
}

/// What was there before, or all of the new, and which of them is said; and nothing is left.
async fn settled(
    world: &World,
    restorer: &Restorer,
    before: Digest,
    outcome: &Outcome,
    kind: ErrorKind,
) {
    match outcome {
        Ok(_) => assert!(world.same().await),
        Err(error) => {
            assert_eq!(error.kind(), kind, "{error}");
            assert_eq!(world.target_rows().await, before, "{error}");
        }
    }
    assert_eq!(restorer.live(), None);
    assert_eq!(world.admission.free(), 2);
    drop(world.target.inner().begin_replace(&[A]).await.unwrap());
}

/// Runs `round` with one more step each time, until what it cut off was at its end.
fn each_step(mut round: impl FnMut(usize) -> Outcome) {
    let mut cut = 0;
    while round(cut).is_err() {
        cut += 1;
    }
    assert!(cut > 30, "it was over after {cut} steps");
}

// S26, S31. Mutant: ToldBeforeReleased.
#[test]
fn s26_s31_a_session_that_is_cancelled_after_any_step_is_ok_and_switched_or_neither() {
    each_step(|count| {
        in_steps().block_on(async {
            let (world, before) = filled().await;
            let (restorer, _) = restorer(&world);
            let session = restorer.restore(at(1, 1, 10), &[leader()]).unwrap();
            steps(count).await;
            session.cancel();
            let outcome = session.outcome().await;
            settled(&world, &restorer, before, &outcome, ErrorKind::Cancelled).await;
            outcome
        })
    });
}

// S10, S31. Mutant: GuardWithoutDrop.
#[test]
fn s10_s31_a_runtime_that_goes_away_after_any_step_answers_and_leaves_nothing() {
    each_step(|count| {
        let running = in_steps();
        let (world, before, restorer, session) = running.block_on(async {
            let (world, before) = filled().await;
            let (restorer, _) = restorer(&world);
            let session = restorer.restore(at(1, 1, 10), &[leader()]).unwrap();
            steps(count).await;
            (world, before, restorer, session)
        });
        drop(running);
        let outcome = session.ended().expect("nobody waits for ever");
        let lost = ErrorKind::TaskLost;
        in_steps().block_on(settled(&world, &restorer, before, &outcome, lost));
        outcome
    });
}

// S31, S61. Mutants: EarlyEndIsSuccess; a dump that is dropped stays on the list.
#[test]
fn s31_a_dump_that_is_dropped_after_any_step_ends_both_sides() {
    each_step(|count| {
        in_steps().block_on(async {
            let (world, before) = filled().await;
            let (restorer, way) = restorer(&world);
            let session = restorer.restore(at(1, 1, 10), &[leader()]).unwrap();
            // From the moment on at which there is a dump.
            while way.serving.lock().is_empty() {
                steps(1).await;
            }
            steps(count).await;
            way.serving.lock().iter().for_each(AbortHandle::abort);
            let outcome = session.outcome().await;
            steps(9).await;
            settled(&world, &restorer, before, &outcome, ErrorKind::Transport).await;
            assert_eq!(world.dumper.running(), 0);
            outcome
        })
    });
}
