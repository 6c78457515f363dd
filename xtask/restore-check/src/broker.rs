//! A broker in this process, on a folder, under a clock that this program moves.

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::Result;
use pop_broker::{Broker, BrokerOptions, stores::Backend};
use pop_model::{
    Clock, GroupName, LeaseTime, ManualClock, Namespace, SystemClock, TopicName, WallTime,
};

/// When the first broker starts, in milliseconds of both clocks.
const EPOCH: u64 = 1_700_000_000_000;

/// How long after the first broker's start it is now, for one whose folder another program
/// filled.
pub(crate) fn since_epoch() -> Result<Duration> {
    let now = u64::try_from(SystemClock::resume(None).wall().as_unix_millis())?;
    Ok(Duration::from_millis(now.saturating_sub(EPOCH)))
}

pub(crate) fn topic(name: &str) -> Result<TopicName> {
    Ok(TopicName::user(&Namespace::default(), name)?)
}

pub(crate) fn group(name: &str) -> Result<GroupName> {
    Ok(GroupName::user(&Namespace::default(), name)?)
}

/// A broker, and the clock that it follows.
pub(crate) struct Life {
    pub(crate) broker: Broker,
    pub(crate) clock: ManualClock,
}

impl Life {
    /// Starts on `folder`, `after` the first one.
    pub(crate) async fn start(store: Backend, folder: &Path, after: Duration) -> Result<Self> {
        let now = EPOCH + u64::try_from(after.as_millis())?;
        let clock = ManualClock::new(
            LeaseTime::from_millis(now),
            WallTime::from_unix_millis(i64::try_from(now)?),
        );
        let mut options = BrokerOptions::new(Arc::new(draw)).with_clock(Arc::new(clock.clone()));
        options.catalog.queues = 2;
        options.cache.held_max = 8;
        options.cache.idle_max = Duration::from_millis(20);
        options.reviver.idle_max = Duration::from_millis(20);
        let broker = Broker::open(store.opener(folder)?, options).await?;
        Ok(Self { broker, clock })
    }

    /// Moves the clock, and gives what runs by itself the time to follow.
    pub(crate) async fn advance(&self, by: Duration) {
        self.clock.advance(by);
        self.rest().await;
    }

    pub(crate) async fn rest(&self) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }

    pub(crate) async fn stop(self) -> Result<()> {
        Ok(self.broker.shutdown().await?)
    }
}

#[expect(clippy::disallowed_methods, reason = "the edge of a program")]
fn draw(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the operating system has a source of randomness");
}
