//! Clients that send, receive and acknowledge at a broker while it is killed and moved.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use parking_lot::Mutex;
use pop_proto::v2::{
    AckMessageEntry, AckMessageRequest, Code, Encoding, FilterExpression, FilterType, Message,
    MessageQueue, MessageType, ReceiveMessageRequest, Resource, SendMessageRequest, Status,
    SystemProperties, messaging_service_client::MessagingServiceClient,
    receive_message_response::Content,
};
use pop_store::testkit::Random;
use tokio::{task::JoinHandle, time::sleep};
use tonic::{
    Request,
    metadata::MetadataValue,
    transport::{Channel, Endpoint},
};

use crate::{drain::drain_live, fates::Fates, ledger::Pair, program::Place};

/// What is worked on all the time.
pub(crate) const WORK: Pair = ("workers", "work");
/// What lies there and takes a while to move.
pub(crate) const BULK: Pair = ("readers", "bulk");
/// Longer than anything is looked at here.
const INVISIBLE_FOR: Duration = Duration::from_secs(600);
/// In chunks, as every body of more than 256 KiB.
const BULK_BYTES: usize = 300_000;
const BULK_MESSAGES: usize = 40;
/// Between two steps of a client.
const STEP: Duration = Duration::from_millis(20);

type Client = MessagingServiceClient<Channel>;

/// A sender and a consumer. Dropped, they stop.
#[derive(Debug)]
pub(crate) struct Clients {
    pub(crate) fates: Arc<Mutex<Fates>>,
    client: Client,
    work: JoinHandle<()>,
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.work.abort();
    }
}

impl Clients {
    /// Fills a broker that has nothing, and begins to work on it.
    pub(crate) async fn start(address: &str, seed: u64) -> Result<Self> {
        let channel = Endpoint::from_shared(format!("http://{address}"))?
            .timeout(Duration::from_secs(20))
            .connect_timeout(Duration::from_secs(5))
            .connect_lazy();
        let mut client = MessagingServiceClient::new(channel);
        let fates = Arc::new(Mutex::new(Fates::default()));
        for number in 0..BULK_MESSAGES {
            let id = format!("bulk{number}");
            fates.lock().sending(&id);
            let sent = send(&mut client, BULK, &id, BULK_BYTES).await;
            ensure!(sent, "a broker that just started takes no message");
            fates.lock().sent(&id);
        }
        // Makes the group.
        receive(&mut client, BULK, Duration::from_millis(1)).await?;
        let work = tokio::spawn(work(client.clone(), Arc::clone(&fates), seed));
        Ok(Self {
            fates,
            client,
            work,
        })
    }

    /// Acknowledges what was left open, at whoever serves now. One that was taken from a
    /// broker that nobody killed since is good.
    pub(crate) async fn settle_the_open_one(&mut self) -> Result<()> {
        let (open, life) = {
            let mut fates = self.fates.lock();
            (fates.open.take(), fates.life)
        };
        let Some((id, handle, of)) = open else {
            return Ok(());
        };
        self.fates.lock().acking(&id);
        match ack(&mut self.client, &id, &handle).await? {
            Code::Ok => self.fates.lock().acked(&id),
            code => ensure!(of < life, "a handle did not outlive a handover: {code:?}"),
        }
        Ok(())
    }
}

async fn work(mut client: Client, fates: Arc<Mutex<Fates>>, seed: u64) {
    let mut random = Random::new(seed);
    for number in 0_u64.. {
        sleep(STEP).await;
        let id = format!("w{number}");
        fates.lock().sending(&id);
        if send(&mut client, WORK, &id, 200).await {
            fates.lock().sent(&id);
        }
        if random.chance(1, 2) {
            continue;
        }
        let life = fates.lock().life;
        let Ok(messages) = receive(&mut client, WORK, INVISIBLE_FOR).await else {
            continue;
        };
        for message in messages {
            let properties = message.system_properties.unwrap_or_default();
            let id = properties.message_id;
            let handle = properties.receipt_handle.unwrap_or_default();
            fates.lock().came(&id);
            if random.chance(1, 3) {
                fates.lock().open = Some((id, handle, life));
                continue;
            }
            fates.lock().acking(&id);
            if let Ok(Code::Ok) = ack(&mut client, &id, &handle).await {
                fates.lock().acked(&id);
            }
        }
    }
}

async fn send(client: &mut Client, to: Pair, id: &str, bytes: usize) -> bool {
    let message = Message {
        topic: Some(resource(to.1)),
        body: vec![7; bytes].into(),
        system_properties: Some(SystemProperties {
            message_id: id.to_owned(),
            message_type: MessageType::Normal.into(),
            body_encoding: Encoding::Identity.into(),
            ..SystemProperties::default()
        }),
        ..Message::default()
    };
    let messages = vec![message];
    let answer = client.send_message(request(SendMessageRequest { messages }));
    let is_ok = |it: &Status| it.code() == Code::Ok;
    answer.await.is_ok_and(|answer| {
        let entries = answer.into_inner().entries;
        let status = entries.first().and_then(|entry| entry.status.as_ref());
        status.is_some_and(is_ok)
    })
}

async fn receive(client: &mut Client, of: Pair, invisible_for: Duration) -> Result<Vec<Message>> {
    let mut asked = request(ReceiveMessageRequest {
        group: Some(resource(of.0)),
        message_queue: Some(MessageQueue {
            topic: Some(resource(of.1)),
            id: -1,
            ..MessageQueue::default()
        }),
        filter_expression: Some(FilterExpression {
            r#type: FilterType::Tag.into(),
            expression: "*".into(),
        }),
        batch_size: 4,
        invisible_duration: prost_types::Duration::try_from(invisible_for).ok(),
        auto_renew: false,
        long_polling_timeout: prost_types::Duration::try_from(STEP).ok(),
        attempt_id: None,
    });
    asked.set_timeout(Duration::from_secs(5));
    let mut stream = client.receive_message(asked).await?.into_inner();
    let mut messages = Vec::new();
    // What came before the stream broke was received all the same.
    while let Ok(Some(part)) = stream.message().await {
        if let Some(Content::Message(message)) = part.content {
            messages.push(message);
        }
    }
    Ok(messages)
}

async fn ack(client: &mut Client, id: &str, handle: &str) -> Result<Code> {
    let asked = request(AckMessageRequest {
        group: Some(resource(WORK.0)),
        topic: Some(resource(WORK.1)),
        entries: vec![AckMessageEntry {
            message_id: id.to_owned(),
            receipt_handle: handle.to_owned(),
            ..AckMessageEntry::default()
        }],
    });
    let answer = client.ack_message(asked).await?.into_inner();
    let entry = answer.entries.into_iter().next();
    let status = entry.and_then(|it| it.status).or(answer.status);
    Ok(status.context("an answer has a status")?.code())
}

fn request<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    for (name, value) in [
        ("x-mq-client-id", "restore-check"),
        ("x-mq-language", "RUST"),
        ("x-mq-client-version", "5.0.0"),
        ("x-mq-protocol", "v2"),
    ] {
        let value = MetadataValue::from_static(value);
        request.metadata_mut().insert(name, value);
    }
    request
}

fn resource(name: &str) -> Resource {
    Resource {
        name: name.to_owned(),
        ..Resource::default()
    }
}

/// What a folder gives out to the groups of these clients, all of it acknowledged; it
/// refuses the handle of a delivery of another broker.
pub(crate) async fn drain(at: &Place, foreign: Option<String>) -> Result<BTreeSet<String>> {
    let foreign = foreign.map(|handle| (WORK, handle));
    drain_live(at, [WORK, BULK], foreign).await
}
