//! A client as small as one can be: the calls that the official clients make, by hand.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use pop_proto::v2::{
    AckMessageEntry, AckMessageRequest, ChangeInvisibleDurationRequest, Code, Message,
    MessageQueue, MessageType, ReceiveMessageRequest, Resource, SendMessageRequest, Status,
    SystemProperties, messaging_service_client::MessagingServiceClient,
    receive_message_response::Content,
};
use tonic::{
    Request,
    transport::{Channel, Endpoint},
};

/// A producer and consumer of one topic and one group.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    inner: MessagingServiceClient<Channel>,
    topic: Resource,
    group: Resource,
}

/// A message that came, and what it takes to acknowledge it.
#[derive(Clone, Debug)]
pub(crate) struct Delivery {
    pub(crate) body: String,
    pub(crate) message_id: String,
    pub(crate) attempt: i32,
    pub(crate) handle: String,
}

impl Client {
    /// Connects to `address`, in plain text.
    ///
    /// # Errors
    ///
    /// If nothing answers there.
    pub(crate) async fn connect(address: &str, topic: &str, group: &str) -> Result<Self> {
        let endpoint = Endpoint::from_shared(format!("http://{address}"))?;
        let channel = endpoint.connect_timeout(Duration::from_secs(5));
        let resource = |name: &str| Resource {
            resource_namespace: String::new(),
            name: name.into(),
        };
        Ok(Self {
            inner: MessagingServiceClient::new(channel.connect().await?),
            topic: resource(topic),
            group: resource(group),
        })
    }

    /// Sends a message; it is durable when this returns.
    ///
    /// # Errors
    ///
    /// If the broker refuses it.
    pub(crate) async fn send(&mut self, message_id: &str, body: &str) -> Result<()> {
        let message = Message {
            topic: Some(self.topic.clone()),
            body: bytes::Bytes::copy_from_slice(body.as_bytes()),
            system_properties: Some(SystemProperties {
                message_id: message_id.into(),
                message_type: MessageType::Normal.into(),
                born_host: "demo".into(),
                ..SystemProperties::default()
            }),
            ..Message::default()
        };
        let messages = vec![message];
        let request = call(SendMessageRequest { messages });
        let answer = self.inner.send_message(request).await?.into_inner();
        expect_ok(answer.status)
    }

    /// Receives up to a batch, hidden from the rest of the group for `invisible_for`. Waits
    /// up to `wait_max` for a first message; nothing is an empty answer.
    ///
    /// # Errors
    ///
    /// If the broker refuses.
    pub(crate) async fn receive(
        &mut self,
        invisible_for: Duration,
        wait_max: Duration,
    ) -> Result<Vec<Delivery>> {
        let request = ReceiveMessageRequest {
            group: Some(self.group.clone()),
            message_queue: Some(MessageQueue {
                topic: Some(self.topic.clone()),
                ..MessageQueue::default()
            }),
            batch_size: 32,
            invisible_duration: Some(duration(invisible_for)?),
            long_polling_timeout: Some(duration(wait_max)?),
            ..ReceiveMessageRequest::default()
        };
        let mut frames = self
            .inner
            .receive_message(call(request))
            .await?
            .into_inner();
        let mut deliveries = Vec::new();
        while let Some(frame) = frames.message().await? {
            match frame.content {
                Some(Content::Message(message)) => deliveries.push(delivery(message)?),
                Some(Content::Status(status)) if status.code == Code::MessageNotFound as i32 => {}
                Some(Content::Status(status)) => expect_ok(Some(status))?,
                _ => {}
            }
        }
        Ok(deliveries)
    }

    /// Acknowledges a delivery; the answer is the broker's code.
    ///
    /// # Errors
    ///
    /// If the broker can't be asked.
    pub(crate) async fn ack(&mut self, delivery: &Delivery) -> Result<Code> {
        let request = AckMessageRequest {
            group: Some(self.group.clone()),
            topic: Some(self.topic.clone()),
            entries: vec![AckMessageEntry {
                message_id: delivery.message_id.clone(),
                receipt_handle: delivery.handle.clone(),
                ..AckMessageEntry::default()
            }],
        };
        let answer = self.inner.ack_message(call(request)).await?.into_inner();
        let status = answer.status.context("an answer has a status")?;
        Ok(Code::try_from(status.code)?)
    }

    /// Hides a delivery for `invisible_for` from now on, and takes its new handle.
    ///
    /// # Errors
    ///
    /// If the broker refuses.
    pub(crate) async fn hide(
        &mut self,
        delivery: &mut Delivery,
        invisible_for: Duration,
    ) -> Result<()> {
        let request = ChangeInvisibleDurationRequest {
            group: Some(self.group.clone()),
            topic: Some(self.topic.clone()),
            receipt_handle: delivery.handle.clone(),
            message_id: delivery.message_id.clone(),
            invisible_duration: Some(duration(invisible_for)?),
            ..ChangeInvisibleDurationRequest::default()
        };
        let answer = self.inner.change_invisible_duration(call(request)).await?;
        let answer = answer.into_inner();
        expect_ok(answer.status)?;
        delivery.handle = answer.receipt_handle;
        Ok(())
    }
}

/// Every call says who makes it.
fn call<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    let headers = request.metadata_mut();
    headers.insert("x-mq-client-id", "demo".parse().expect("plain text"));
    request
}

fn expect_ok(status: Option<Status>) -> Result<()> {
    let status = status.context("an answer has a status")?;
    ensure!(
        status.code == Code::Ok as i32,
        "the broker refuses: {} ({})",
        status.message,
        status.code
    );
    Ok(())
}

fn duration(duration: Duration) -> Result<prost_types::Duration> {
    Ok(duration.try_into()?)
}

fn delivery(message: Message) -> Result<Delivery> {
    let system = message.system_properties.context("a message has them")?;
    Ok(Delivery {
        body: String::from_utf8(message.body.to_vec())?,
        message_id: system.message_id,
        attempt: system.delivery_attempt.unwrap_or_default(),
        handle: system.receipt_handle.context("a delivery has a handle")?,
    })
}
