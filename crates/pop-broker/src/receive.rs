//! Handing messages out under a lease.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use pop_model::{
    DeliveryIdentity, GroupName, LogQueue, Message, Offset, ReceiptHandle, TopicName, limits,
};
use tokio::time::Instant;

use crate::{BrokerError, Filter, consumption::Consumption, core::Core};

/// What a consumer asks for.
#[derive(Clone, Debug)]
pub struct ReceiveRequest {
    /// The consumer's group.
    pub group: GroupName,
    /// The topic.
    pub topic: TopicName,
    /// Which messages.
    pub filter: Filter,
    /// How many at most.
    pub batch_size: usize,
    /// How long they are hidden from the rest of the group.
    pub invisible_for: Duration,
    /// The server renews the lease while the consumer lives.
    pub auto_renew: bool,
    /// How long to wait for a first message.
    pub wait_max: Duration,
    /// The client's name for this receive.
    pub attempt_id: Option<String>,
}

impl ReceiveRequest {
    /// Up to a full batch of any messages, hidden for `invisible_for`, without waiting;
    /// set the other fields as needed.
    #[must_use]
    pub fn new(group: GroupName, topic: TopicName, invisible_for: Duration) -> Self {
        Self {
            group,
            topic,
            filter: Filter::All,
            batch_size: limits::RECEIVE_BATCH_MAX,
            invisible_for,
            auto_renew: false,
            wait_max: Duration::ZERO,
            attempt_id: None,
        }
    }
}

/// A message that is handed out.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The message; its body is [`Delivery::body`], whole.
    pub message: Message,
    /// Its body.
    pub body: Bytes,
    /// The topic that it was sent to.
    pub topic: TopicName,
    /// Where it lies.
    pub source: LogQueue,
    /// Its position there.
    pub offset: Offset,
    /// Which delivery this is, 1 being the first.
    pub delivery_attempt: u32,
    /// How long it is hidden.
    pub invisible_for: Duration,
    /// What acknowledges it.
    pub handle: ReceiptHandle,
}

/// Messages on their way to a consumer.
///
/// Dropped before [`Handout::take`] they are released at once, without counting an
/// attempt: a consumer that went away while it waited takes nothing with it.
#[derive(Debug)]
#[must_use = "dropped, the messages are released again"]
pub struct Handout {
    core: Arc<Core>,
    leased: Vec<Leased>,
}

#[derive(Debug)]
pub(crate) struct Leased {
    pub(crate) delivery: Delivery,
    /// What is released if it reaches nobody.
    pub(crate) release: Option<DeliveryIdentity>,
}

impl Handout {
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        Self {
            core: Arc::clone(core),
            leased: Vec::new(),
        }
    }

    pub(crate) fn push(&mut self, leased: Leased) {
        self.leased.push(leased);
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.leased.is_empty()
    }

    /// The messages: from here on only their deadlines bring them back.
    #[must_use]
    pub fn take(mut self) -> Vec<Delivery> {
        let leased = std::mem::take(&mut self.leased);
        self.core.options.counters.received.add(leased.len());
        leased.into_iter().map(|leased| leased.delivery).collect()
    }
}

impl Drop for Handout {
    fn drop(&mut self) {
        if self.leased.is_empty() {
            return;
        }
        let identities: Vec<_> = self
            .leased
            .drain(..)
            .filter_map(|leased| leased.release)
            .collect();
        self.core.release(identities);
    }
}

impl Core {
    /// Hands out up to a batch of messages, waiting for a first one.
    pub(crate) async fn receive(
        self: &Arc<Self>,
        request: ReceiveRequest,
    ) -> Result<Handout, BrokerError> {
        let request = Arc::new(request);
        let topic = self.catalog.route(&request.topic).await?;
        let group = self.catalog.consumer(&request.group).await?;
        let consumption = self.consumptions.get(&group, &topic).await?;
        let until = Instant::now() + request.wait_max;
        loop {
            // Registered before the look, so that nothing that becomes ready between the
            // look and the wait is missed.
            let ready = consumption.ready.notified();
            let found = self.look(&consumption, &request).await;
            let is_lost = matches!(&found, Err(error) if error.needs_reopen());
            if consumption.ended.is_cancelled() && !is_lost {
                return Err(self.ended(&consumption));
            }
            // Too many are out: held back until one comes in, or the wait is over.
            let full = matches!(found, Err(BrokerError::TooManyInFlight(_)));
            if !full && !matches!(&found, Ok(handout) if handout.is_empty()) {
                return found;
            }
            // Ties are decided in this order and not by chance: a wake-up for nothing never
            // outlasts the wait, and one seed of a simulation is one run.
            tokio::select! {
                biased;
                () = self.closing.cancelled() => return Err(BrokerError::ShuttingDown),
                () = consumption.ended.cancelled() => return Err(self.ended(&consumption)),
                () = tokio::time::sleep_until(until) => return found,
                () = ready => {}
            }
        }
    }

    /// One look, in a task of its own: whoever asked may go away in the middle of it.
    async fn look(
        self: &Arc<Self>,
        consumption: &Arc<Consumption>,
        request: &Arc<ReceiveRequest>,
    ) -> Result<Handout, BrokerError> {
        let core = Arc::clone(self);
        let consumption = Arc::clone(consumption);
        let request = Arc::clone(request);
        let look = self
            .tasks
            .spawn(async move { core.look_once(&consumption, &request).await });
        look.await.map_err(|_| self.panicked())?
    }
}
