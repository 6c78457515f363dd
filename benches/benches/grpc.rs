//! Messages a second through gRPC: send, and receive with acknowledgement, by 1 and 64
//! connections, on each backend, every send synced.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use pop_benches::{CpuMeter, backends, body, now, open};
use pop_broker::{
    Broker, BrokerOptions, OpenStore,
    listener::{Listener, TlsChoice},
    rpc,
};
use pop_proto::v2::{
    AckMessageEntry, AckMessageRequest, Code, Encoding, FilterExpression, Message, MessageQueue,
    MessageType, ReceiveMessageRequest, Resource, SendMessageRequest, SystemProperties,
    messaging_service_client::MessagingServiceClient, receive_message_response::Content,
};
use pop_store::Store;
use tokio::{runtime::Runtime, sync::oneshot};
use tonic::{Request, transport::Channel};

type Client = MessagingServiceClient<Channel>;

#[derive(Debug)]
struct Opened(Arc<dyn Store>);

#[tonic::async_trait]
impl OpenStore for Opened {
    async fn open(&self) -> pop_store::Result<Arc<dyn Store>> {
        Ok(Arc::clone(&self.0))
    }
}

fn resource(name: &str) -> Resource {
    Resource {
        resource_namespace: String::new(),
        name: name.into(),
    }
}

fn request<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    let id = "bench".parse().expect("it is ASCII");
    request.metadata_mut().insert("x-mq-client-id", id);
    request
}

async fn send(client: &mut Client, number: u64) {
    let message = Message {
        topic: Some(resource("bench")),
        system_properties: Some(SystemProperties {
            message_id: format!("bench-{number}"),
            message_type: MessageType::Normal.into(),
            body_encoding: Encoding::Identity.into(),
            ..SystemProperties::default()
        }),
        body: body(1_024),
        ..Message::default()
    };
    let sent = client
        .send_message(request(SendMessageRequest {
            messages: vec![message],
        }))
        .await;
    let status = sent
        .expect("the broker answers")
        .into_inner()
        .status
        .expect("an answer has a status");
    assert_eq!(status.code, i32::from(Code::Ok), "{}", status.message);
}

/// Receives up to a batch and acknowledges it in one call. Returns how many.
async fn receive_and_ack(client: &mut Client) -> u64 {
    let receive = ReceiveMessageRequest {
        group: Some(resource("bench-group")),
        message_queue: Some(MessageQueue {
            topic: Some(resource("bench")),
            id: -1,
            ..MessageQueue::default()
        }),
        filter_expression: Some(FilterExpression {
            r#type: 1,
            expression: "*".into(),
        }),
        batch_size: 32,
        invisible_duration: Some(prost_types::Duration {
            seconds: 60,
            nanos: 0,
        }),
        // Short: at the end of a run receivers wait for nothing, and that is not measured.
        long_polling_timeout: Some(prost_types::Duration {
            seconds: 0,
            nanos: 5_000_000,
        }),
        ..ReceiveMessageRequest::default()
    };
    let mut stream = client
        .receive_message(request(receive))
        .await
        .expect("the broker answers")
        .into_inner();
    let mut entries = Vec::new();
    while let Some(frame) = stream.message().await.expect("the stream goes on") {
        if let Some(Content::Message(message)) = frame.content {
            let properties = message.system_properties.expect("a message has properties");
            entries.push(AckMessageEntry {
                message_id: properties.message_id,
                receipt_handle: properties.receipt_handle.expect("a message has a handle"),
                lite_topic: None,
            });
        }
    }
    let received = u64::try_from(entries.len()).expect("a batch is small");
    if received > 0 {
        let ack = AckMessageRequest {
            group: Some(resource("bench-group")),
            topic: Some(resource("bench")),
            entries,
        };
        let acked = client
            .ack_message(request(ack))
            .await
            .expect("the broker answers")
            .into_inner();
        assert_eq!(
            acked.status.expect("an answer has a status").code,
            i32::from(Code::Ok)
        );
    }
    received
}

async fn connect(address: SocketAddr, count: usize) -> Vec<Client> {
    let mut clients = Vec::new();
    for _ in 0..count {
        let client = Client::connect(format!("http://{address}")).await;
        clients.push(client.expect("the broker accepts"));
    }
    clients
}

/// Sends `count` messages over all clients.
async fn send_all(clients: &[Client], first: u64, count: u64) -> Duration {
    let started = now();
    let step = u64::try_from(clients.len()).expect("clients are few");
    let tasks = clients.iter().cloned().zip(0..).map(|(mut client, place)| {
        tokio::spawn(async move {
            let mut number = first + place;
            while number < first + count {
                send(&mut client, number).await;
                number += step;
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("senders don't panic");
    }
    started.elapsed()
}

/// Receives and acknowledges at least `count` messages over all clients.
async fn drain(clients: &[Client], count: u64) -> Duration {
    let started = now();
    let left = Arc::new(std::sync::atomic::AtomicI64::new(
        i64::try_from(count).expect("it is small"),
    ));
    let tasks = clients.iter().cloned().map(|mut client| {
        let left = Arc::clone(&left);
        tokio::spawn(async move {
            while left.load(std::sync::atomic::Ordering::Relaxed) > 0 {
                let received =
                    i64::try_from(receive_and_ack(&mut client).await).expect("a batch is small");
                left.fetch_sub(received, std::sync::atomic::Ordering::Relaxed);
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("receivers don't panic");
    }
    started.elapsed()
}

fn grpc(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime starts");
    for backend in backends() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let store = open(backend, folder.path());
        let options = BrokerOptions::new(Arc::new(|secret: &mut [u8]| secret.fill(7)));
        let broker = runtime
            .block_on(Broker::open(Arc::new(Opened(store)), options))
            .expect("the broker opens");
        let bind = Listener::bind(SocketAddr::from(([127, 0, 0, 1], 0)), TlsChoice::Off);
        let listener = runtime.block_on(bind).expect("a port is free");
        let address = listener.local_addr();
        let (stop, stopped) = oneshot::channel::<()>();
        let service = rpc::service(broker.clone(), rpc::RpcOptions::default());
        let server = runtime.spawn(listener.serve(service, async { drop(stopped.await) }));

        let mut group = criterion.benchmark_group(format!("grpc/{backend}"));
        group.sample_size(10).throughput(Throughput::Elements(1));
        let mut next = 0;
        for connections in [1, 64] {
            let clients = runtime.block_on(connect(address, connections));
            // Of client and broker together.
            let cpu = CpuMeter::start();
            group.bench_function(BenchmarkId::new("send", connections), |bencher| {
                bencher.iter_custom(|count| {
                    cpu.count(count);
                    next += count;
                    runtime.block_on(send_all(&clients, next - count, count))
                });
            });
            cpu.tell(&format!("grpc/{backend}/send/{connections}"));
            // Its CPU time has the sends in it whose messages are received.
            let cpu = CpuMeter::start();
            group.bench_function(BenchmarkId::new("receive_ack_32", connections), |bencher| {
                bencher.iter_custom(|count| {
                    cpu.count(count);
                    next += count;
                    runtime.block_on(async {
                        send_all(&clients, next - count, count).await;
                        drain(&clients, count).await
                    })
                });
            });
            cpu.tell(&format!("grpc/{backend}/receive_ack_32/{connections}"));
            runtime.block_on(drain_rest(&clients));
        }
        group.finish();
        drop(stop);
        drop(runtime.block_on(server));
        runtime
            .block_on(broker.shutdown())
            .expect("the broker shuts down");
    }
}

/// Takes what the send benches left.
async fn drain_rest(clients: &[Client]) {
    let Some(client) = clients.first() else {
        return;
    };
    let mut client = client.clone();
    while receive_and_ack(&mut client).await > 0 {}
}

criterion_group!(benches, grpc);
criterion_main!(benches);
