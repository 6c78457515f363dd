//! Senders and consumers that go on through every kill, and write down what they see.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use pop_proto::v2::{
    Code, Message, SendMessageRequest, messaging_service_client::MessagingServiceClient,
    receive_message_response::Content,
};
use pop_store::testkit::Random;
use tokio::{sync::watch, time::Instant};
use tonic::transport::Channel;

use crate::{
    history::{Delivery, History, Life, Place},
    lane::Lane,
    wire::{self, INVISIBLE_FOR},
};

/// Message groups of a sender; nobody else sends to them, so that their order is known.
const MESSAGE_GROUPS: usize = 8;

/// The broker that lives now, if one does.
pub(crate) type Living = watch::Receiver<Option<(Life, Channel)>>;

type Client = MessagingServiceClient<Channel>;

/// What all clients of a run share.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) history: Mutex<History>,
    /// So many sends must be answered OK.
    pub(crate) sends: u64,
    pub(crate) sends_ok: AtomicU64,
    /// Gives out the numbers of messages, of message groups and of receives.
    pub(crate) next_id: AtomicU64,
}

impl Run {
    pub(crate) fn new(sends: u64) -> Self {
        Self {
            history: Mutex::new(History::default()),
            sends,
            sends_ok: AtomicU64::new(0),
            next_id: AtomicU64::new(0),
        }
    }

    pub(crate) fn is_sent(&self) -> bool {
        self.sends_ok.load(Ordering::Acquire) >= self.sends
    }

    fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }
}

/// Sends messages one after another until all are answered OK.
pub(crate) async fn send(run: Arc<Run>, lane: Lane, mut living: Living, seed: u64) {
    let mut random = Random::new(seed);
    let mut groups: Vec<Place> = match lane {
        Lane::Any => Vec::new(),
        Lane::InOrder => (0..MESSAGE_GROUPS)
            .map(|_| Place::first_of(run.next_id()))
            .collect(),
    };
    while !run.is_sent() {
        let Some((life, mut client)) = client(&mut living).await else {
            return;
        };
        let id = format!("m{}", run.next_id());
        let group = random.index(groups.len().max(1));
        let place = groups.get_mut(group).map(Place::take);
        let message_group = place.map(|place| format!("g{}", place.message_group));
        run.history.lock().sending(&id, place);
        let message = wire::message(lane, &id, message_group, &mut random);
        let answer = client
            .send_message(wire::request(SendMessageRequest {
                messages: vec![message],
            }))
            .await;
        let is_ok = answer.is_ok_and(|answer| {
            let entries = answer.into_inner().entries;
            !entries.is_empty()
                && entries
                    .iter()
                    .all(|entry| wire::is_ok(entry.status.as_ref()))
        });
        if is_ok {
            run.history.lock().sent(&id, life);
            run.sends_ok.fetch_add(1, Ordering::AcqRel);
        } else {
            run.history.lock().send_unknown(&id, life);
            pause().await;
        }
    }
}

/// Receives and acknowledges until it is stopped. While sends go on, some messages are
/// left to come back, and some acknowledgements come late.
pub(crate) async fn consume(run: Arc<Run>, lane: Lane, mut living: Living, seed: u64) {
    let mut random = Random::new(seed);
    // A receive that failed is asked again as the same one, as the official clients do.
    let mut batch = run.next_id();
    while let Some((life, mut client)) = client(&mut living).await {
        let asked_at = Instant::now();
        let invisible_for = invisible_for(batch);
        let Ok(messages) = receive(&mut client, lane, invisible_for, batch).await else {
            pause().await;
            continue;
        };
        let received_at = Instant::now();
        let this = std::mem::replace(&mut batch, run.next_id());
        let mut handles = Vec::with_capacity(messages.len());
        // All of a batch is there before any of it is acknowledged.
        for message in &messages {
            let properties = message.system_properties.clone().unwrap_or_default();
            let (id, handle) = (properties.message_id, properties.receipt_handle);
            let handle = handle.unwrap_or_default();
            let whole = wire::is_body_of(&id, &message.body);
            let delivery = Delivery {
                life,
                batch: this,
                index: handles.len(),
                asked_at,
                received_at,
                invisible_for,
                attempt: properties.delivery_attempt.unwrap_or_default(),
            };
            run.history.lock().received(&id, whole, delivery);
            handles.push((id, handle));
        }
        for (id, handle) in handles {
            if !run.is_sent() && random.chance(1, lane.left_one_in()) {
                continue;
            }
            if !run.is_sent() && random.chance(1, 50) {
                tokio::time::sleep(Duration::from_millis(random.below(300))).await;
            }
            acknowledge(&run, &mut client, lane, life, &id, &handle).await;
        }
    }
}

/// Of a receive; the same one each time that it is asked.
fn invisible_for(batch: u64) -> Duration {
    let index = Random::new(batch).index(INVISIBLE_FOR.len());
    INVISIBLE_FOR.get(index).copied().unwrap_or_default()
}

async fn acknowledge(
    run: &Run,
    client: &mut Client,
    lane: Lane,
    life: Life,
    id: &str,
    handle: &str,
) {
    let ack = run.history.lock().acking(id);
    let answer = client.ack_message(wire::ack(lane, id, handle)).await;
    let mut history = run.history.lock();
    // Whatever else the answer is (the store failed under it, say), it may have happened.
    if let Ok(answer) = answer {
        let entries = answer.into_inner().entries;
        let status = entries.first().and_then(|entry| entry.status.as_ref());
        match status.map(|status| status.code()) {
            Some(Code::Ok) => history.acked(id, ack, life),
            Some(Code::InvalidReceiptHandle) => history.ack_refused(id, ack),
            _ => {}
        }
    }
}

async fn receive(
    client: &mut Client,
    lane: Lane,
    invisible_for: Duration,
    batch: u64,
) -> Result<Vec<Message>, tonic::Status> {
    let attempt_id = (lane == Lane::InOrder).then(|| format!("a{batch}"));
    let request = wire::receive(lane, invisible_for, attempt_id);
    let mut stream = client.receive_message(request).await?.into_inner();
    let mut messages = Vec::new();
    // What came before the stream broke was received all the same.
    while let Ok(Some(part)) = stream.message().await {
        if let Some(Content::Message(message)) = part.content {
            messages.push(message);
        }
    }
    Ok(messages)
}

/// A client of the broker that lives, waiting for one; `None` when the run is over.
async fn client(living: &mut Living) -> Option<(Life, Client)> {
    let living = living.wait_for(Option::is_some).await.ok()?;
    let (life, channel) = living.as_ref()?;
    Some((*life, MessagingServiceClient::new(channel.clone())))
}

/// Between a failure and the next try, so that a dead broker is not asked in a spin.
async fn pause() {
    tokio::time::sleep(Duration::from_millis(20)).await;
}
