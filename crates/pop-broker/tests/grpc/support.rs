//! A server on a loopback port, and requests as clients send them.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use pop_broker::{
    Broker, BrokerOptions, OpenStore,
    listener::{Listener, ServeError, TlsChoice},
    rpc::{self, RpcOptions},
};
use pop_proto::v2::{
    AckMessageEntry, AckMessageRequest, AckMessageResponse, Address, AddressScheme, Code,
    Endpoints, FilterExpression, FilterType, Message, MessageQueue, MessageType,
    ReceiveMessageRequest, ReceiveMessageResponse, Resource, SendMessageRequest,
    SendMessageResponse, Status, SystemProperties,
    messaging_service_client::MessagingServiceClient, receive_message_response::Content,
};
use pop_store::{MemStore, Store, table::KEYSPACES};
use tokio::{sync::oneshot, task::JoinHandle};
use tonic::{Request, transport::Channel};

pub(crate) type Client = MessagingServiceClient<Channel>;

#[derive(Debug)]
struct InMemory(MemStore);

#[tonic::async_trait]
impl OpenStore for InMemory {
    async fn open(&self) -> pop_store::Result<Arc<dyn Store>> {
        Ok(Arc::new(self.0.clone()))
    }
}

/// Options with handle keys made of `seed`.
pub(crate) fn options(seed: u8) -> BrokerOptions {
    BrokerOptions::new(Arc::new(move |secret: &mut [u8]| secret.fill(seed)))
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) broker: Broker,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<Result<(), ServeError>>,
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::start_with(options(1), RpcOptions::new(), TlsChoice::SelfSigned).await
    }

    pub(crate) async fn start_with(
        options: BrokerOptions,
        rpc_options: RpcOptions,
        tls: TlsChoice,
    ) -> Self {
        let store = InMemory(MemStore::new(&KEYSPACES));
        let broker = Broker::open(Arc::new(store), options).await.unwrap();
        let address = "127.0.0.1:0".parse().unwrap();
        let listener = Listener::bind(address, tls).await.unwrap();
        let address = listener.local_addr();
        let (stop, stopped) = oneshot::channel();
        let service = rpc::service(broker.clone(), rpc_options);
        let serving = tokio::spawn(listener.serve(service, async { drop(stopped.await) }));
        Self {
            address,
            broker,
            stop,
            serving,
        }
    }

    pub(crate) async fn client(&self) -> Client {
        let url = format!("http://{}", self.address);
        Client::connect(url).await.unwrap()
    }

    pub(crate) async fn stop(self) -> Result<(), ServeError> {
        self.stop.send(()).unwrap();
        self.serving.await.unwrap()
    }
}

pub(crate) fn resource(name: &str) -> Resource {
    Resource {
        resource_namespace: String::new(),
        name: name.into(),
    }
}

pub(crate) fn endpoints() -> Endpoints {
    Endpoints {
        scheme: AddressScheme::DomainName.into(),
        addresses: vec![Address {
            host: "broker.example".into(),
            port: 8_081,
        }],
    }
}

/// A request of a client that no variation is made for.
pub(crate) fn request<T>(message: T) -> Request<T> {
    request_of("JAVA", "5.2.1", message)
}

pub(crate) fn request_of<T>(
    language: &'static str,
    version: &'static str,
    message: T,
) -> Request<T> {
    let mut request = Request::new(message);
    let headers = request.metadata_mut();
    headers.insert("x-mq-client-id", "host@1@2@abc".parse().unwrap());
    headers.insert("x-mq-language", language.parse().unwrap());
    headers.insert("x-mq-client-version", version.parse().unwrap());
    request
}

pub(crate) fn code(status: &Option<Status>) -> Code {
    Code::try_from(status.as_ref().unwrap().code).unwrap()
}

pub(crate) fn message(topic: &str, id: &str, body: &[u8]) -> Message {
    Message {
        topic: Some(resource(topic)),
        system_properties: Some(SystemProperties {
            message_id: id.into(),
            message_type: MessageType::Normal.into(),
            ..SystemProperties::default()
        }),
        body: body.to_vec().into(),
        ..Message::default()
    }
}

pub(crate) async fn send(client: &mut Client, messages: Vec<Message>) -> SendMessageResponse {
    let request = request(SendMessageRequest { messages });
    client.send_message(request).await.unwrap().into_inner()
}

pub(crate) async fn send_ok(client: &mut Client, topic: &str, id: &str) {
    let sent = send(client, vec![message(topic, id, b"body")]).await;
    assert_eq!(code(&sent.status), Code::Ok, "{:?}", sent.status);
}

/// Up to 32 messages, hidden for a minute, without waiting.
pub(crate) fn receive_request(topic: &str, group: &str) -> ReceiveMessageRequest {
    ReceiveMessageRequest {
        group: Some(resource(group)),
        message_queue: Some(MessageQueue {
            topic: Some(resource(topic)),
            id: -1,
            ..MessageQueue::default()
        }),
        filter_expression: Some(FilterExpression {
            r#type: FilterType::Tag.into(),
            expression: "*".into(),
        }),
        batch_size: 32,
        invisible_duration: Some(seconds(60)),
        auto_renew: false,
        long_polling_timeout: Some(seconds(0)),
        attempt_id: None,
    }
}

pub(crate) fn seconds(seconds: i64) -> prost_types::Duration {
    prost_types::Duration { seconds, nanos: 0 }
}

/// What a receive answered: its frames, looked at.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) code: Code,
    pub(crate) messages: Vec<Message>,
}

pub(crate) async fn receive(
    client: &mut Client,
    request: Request<ReceiveMessageRequest>,
) -> Received {
    let mut frames = client.receive_message(request).await.unwrap().into_inner();
    let mut contents = Vec::new();
    while let Some(ReceiveMessageResponse { content }) = frames.message().await.unwrap() {
        contents.push(content.expect("no frame is empty"));
    }
    let mut contents = contents.into_iter();
    let Some(Content::Status(status)) = contents.next() else {
        panic!("the first frame is the status");
    };
    let Some(Content::DeliveryTimestamp(_)) = contents.next_back() else {
        panic!("the last frame is the time of delivery");
    };
    let messages = contents.map(|content| match content {
        Content::Message(message) => message,
        other => panic!("{other:?} between the messages"),
    });
    Received {
        code: Code::try_from(status.code).unwrap(),
        messages: messages.collect(),
    }
}

/// Receives until there is a message, for a few seconds at most.
pub(crate) async fn receive_some(client: &mut Client, topic: &str, group: &str) -> Vec<Message> {
    let mut poll = receive_request(topic, group);
    poll.long_polling_timeout = Some(seconds(5));
    receive(client, request(poll)).await.messages
}

pub(crate) fn handle(message: &Message) -> String {
    let system = message.system_properties.as_ref().unwrap();
    system.receipt_handle.clone().unwrap()
}

pub(crate) fn attempt(message: &Message) -> i32 {
    let system = message.system_properties.as_ref().unwrap();
    system.delivery_attempt.unwrap()
}

pub(crate) async fn ack(
    client: &mut Client,
    topic: &str,
    group: &str,
    handles: &[&str],
) -> AckMessageResponse {
    let entries = handles.iter().map(|handle| AckMessageEntry {
        message_id: "id".into(),
        receipt_handle: (*handle).into(),
        lite_topic: None,
    });
    let request = request(AckMessageRequest {
        group: Some(resource(group)),
        topic: Some(resource(topic)),
        entries: entries.collect(),
    });
    client.ack_message(request).await.unwrap().into_inner()
}

/// Answered well before any poll or timeout of the server would end by itself.
pub(crate) async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(8), work)
        .await
        .expect("it was to be answered soon")
}
