//! A way to the dumper on which frames are late, come twice, and break off.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use kv_restore::{
    Dumper, PeerId, StreamId,
    transport::{Channel, FrameRx, FrameTx, Transport, TransportError, pair},
};
use pop_store::testkit::Random;

use super::Shared;

pub struct Relay {
    pub dumper: Dumper,
    pub shared: Arc<Shared>,
}

#[async_trait]
impl Transport for Relay {
    async fn connect(&self, _: &PeerId, _: StreamId) -> Result<Channel, TransportError> {
        let calm = self.shared.is_calm();
        let mut random = Random::new(self.shared.draw());
        if !calm && random.chance(1, 12) {
            assert!(!random.chance(1, 4), "the transport panics: injected");
            return Err(TransportError::Broken("injected".into()));
        }
        let (ours, near) = pair();
        let (far, theirs) = pair();
        let dumper = self.dumper.clone();
        tokio::spawn(async move { dumper.serve(&PeerId::new("follower"), theirs).await });
        let cut = (!calm && random.chance(1, 6)).then(|| random.below(12));
        let (there, back) = (Random::new(random.next_u64()), random);
        tokio::spawn(async move {
            // Whichever side ends, the channel ends.
            tokio::select! {
                () = pass(near.rx, far.tx, there, None, calm) => {}
                () = pass(far.rx, near.tx, back, cut, calm) => {}
            }
        });
        Ok(ours)
    }
}

async fn pass(
    mut from: Box<dyn FrameRx>,
    mut to: Box<dyn FrameTx>,
    mut random: Random,
    cut: Option<u64>,
    calm: bool,
) {
    let mut passed = 0;
    while let Ok(Some(frame)) = from.recv().await {
        if cut.is_some_and(|cut| passed >= cut) {
            return;
        }
        passed += 1;
        if !calm && random.chance(1, 3) {
            tokio::time::sleep(Duration::from_millis(random.below(400))).await;
        }
        if !calm && random.chance(1, 10) && to.send(frame.clone()).await.is_err() {
            return;
        }
        if to.send(frame).await.is_err() {
            return;
        }
    }
}
