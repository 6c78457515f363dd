//! QueryRoute and QueryAssignment, and what names may be.

use pop_broker::{listener::TlsChoice, rpc::RpcOptions};
use pop_proto::v2::{
    Code, Endpoints, MessageType, Permission, QueryAssignmentRequest, QueryAssignmentResponse,
    QueryRouteRequest, QueryRouteResponse, Resource,
};
use tonic::Request;

use crate::support::{
    Client, Server, code, endpoints, message, options, receive, receive_request, request, resource,
    send,
};

async fn route(client: &mut Client, request: Request<QueryRouteRequest>) -> QueryRouteResponse {
    client.query_route(request).await.unwrap().into_inner()
}

async fn route_of(client: &mut Client, topic: &str) -> QueryRouteResponse {
    let query = QueryRouteRequest {
        topic: Some(resource(topic)),
        endpoints: Some(endpoints()),
    };
    route(client, request(query)).await
}

async fn assignment(client: &mut Client, topic: &str, group: &str) -> QueryAssignmentResponse {
    let request = request(QueryAssignmentRequest {
        topic: Some(resource(topic)),
        group: Some(resource(group)),
        endpoints: Some(endpoints()),
    });
    client.query_assignment(request).await.unwrap().into_inner()
}

#[tokio::test]
async fn a_route_makes_the_topic_and_repeats_the_endpoints_in_every_queue() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let answer = route_of(&mut client, "orders").await;
    assert_eq!(code(&answer.status), Code::Ok);
    let ids: Vec<_> = answer.message_queues.iter().map(|queue| queue.id).collect();
    assert_eq!(ids, [0, 1, 2, 3]);
    for queue in answer.message_queues {
        assert_eq!(queue.topic, Some(resource("orders")));
        assert_eq!(queue.permission(), Permission::ReadWrite);
        let types: Vec<_> = queue.accept_message_types().collect();
        assert_eq!(types, [MessageType::Normal, MessageType::Fifo]);
        let broker = queue.broker.unwrap();
        assert!(!broker.name.is_empty());
        assert_eq!(broker.id, 0);
        assert_eq!(broker.endpoints, Some(endpoints()));
    }
}

#[tokio::test]
async fn every_consumer_of_a_group_is_assigned_any_queue() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let answer = assignment(&mut client, "orders", "billing").await;
    assert_eq!(code(&answer.status), Code::Ok);
    let [assignment] = answer.assignments.try_into().unwrap();
    let queue = assignment.message_queue.unwrap();
    assert_eq!(queue.id, -1);
    assert_eq!(queue.permission(), Permission::ReadWrite);
    assert_eq!(queue.broker.unwrap().endpoints, Some(endpoints()));
}

#[tokio::test]
async fn an_unknown_topic_or_group_is_not_found_where_none_is_made_on_demand() {
    let mut options = options(1);
    options.catalog.auto_create_topics = false;
    options.catalog.auto_create_groups = false;
    let server = Server::start_with(options, RpcOptions::new(), TlsChoice::Off).await;
    let mut client = server.client().await;

    let answer = route_of(&mut client, "orders").await;
    assert_eq!(code(&answer.status), Code::TopicNotFound);
    assert!(answer.message_queues.is_empty());
    let answer = assignment(&mut client, "orders", "billing").await;
    assert_eq!(code(&answer.status), Code::TopicNotFound);
    let answer = send(&mut client, vec![message("orders", "id", b"body")]).await;
    assert_eq!(code(&answer.status), Code::TopicNotFound);
    let poll = receive_request("orders", "billing");
    let answer = receive(&mut client, request(poll)).await;
    assert_eq!(answer.code, Code::TopicNotFound);

    let topic = pop_model::TopicName::user(&pop_model::Namespace::default(), "there").unwrap();
    let spec = pop_broker::TopicSpec {
        name: topic,
        queues: 1,
    };
    server.broker.create_topic(spec).await.unwrap();
    let poll = receive_request("there", "billing");
    let answer = receive(&mut client, request(poll)).await;
    assert_eq!(answer.code, Code::ConsumerGroupNotFound);
}

#[tokio::test]
async fn a_bad_name_is_refused_by_every_call() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let too_long = "x".repeat(128);
    for topic in ["", "a b", "a.b", "ä", "%DLQ%", "rmq_sys_x", &too_long] {
        let answer = send(&mut client, vec![message(topic, "id", b"body")]).await;
        assert_eq!(code(&answer.status), Code::IllegalTopic, "{topic:?}");
    }
    for topic in ["", "a b", "a.b", "ä", "rmq_sys_x", &too_long] {
        let answer = route_of(&mut client, topic).await;
        assert_eq!(code(&answer.status), Code::IllegalTopic, "{topic:?}");
        let poll = receive_request(topic, "billing");
        let answer = receive(&mut client, request(poll)).await;
        assert_eq!(answer.code, Code::IllegalTopic, "{topic:?}");
    }
    for group in ["", "a b", "ä", &"x".repeat(121)] {
        let answer = assignment(&mut client, "orders", group).await;
        assert_eq!(
            code(&answer.status),
            Code::IllegalConsumerGroup,
            "{group:?}"
        );
        let poll = receive_request("orders", group);
        let answer = receive(&mut client, request(poll)).await;
        assert_eq!(answer.code, Code::IllegalConsumerGroup, "{group:?}");
    }
    // Nothing was made of them.
    assert_eq!(server.broker.topics().unwrap().len(), 0);
}

#[tokio::test]
async fn a_route_needs_endpoints_to_repeat() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let mut many = endpoints();
    many.addresses = vec![many.addresses[0].clone(); 1_000];
    for endpoints in [None, Some(Endpoints::default()), Some(many)] {
        let query = QueryRouteRequest {
            topic: Some(resource("orders")),
            endpoints,
        };
        let answer = route(&mut client, request(query)).await;
        assert_eq!(code(&answer.status), Code::IllegalAccessPoint);
    }
}

#[tokio::test]
async fn the_namespace_of_the_header_stands_in_where_a_resource_has_none() {
    let server = Server::start().await;
    let mut client = server.client().await;
    // As the Node.js client does: it names the namespace when it sends only.
    let mut in_tenant = message("orders", "id", b"body");
    let tenant = Resource {
        resource_namespace: "tenant".into(),
        name: "orders".into(),
    };
    in_tenant.topic = Some(tenant);
    let answer = send(&mut client, vec![in_tenant]).await;
    assert_eq!(code(&answer.status), Code::Ok);

    let poll = || request(receive_request("orders", "billing"));
    let outside = receive(&mut client, poll()).await;
    assert_eq!(outside.code, Code::MessageNotFound);
    let mut inside = poll();
    let headers = inside.metadata_mut();
    headers.insert("x-mq-namespace", "tenant".parse().unwrap());
    let inside = receive(&mut client, inside).await;
    assert_eq!(inside.messages.len(), 1);
    // As the request had it, or the client would not know its own topic again.
    assert_eq!(inside.messages[0].topic, Some(resource("orders")));

    let mut bad = poll();
    let headers = bad.metadata_mut();
    headers.insert("x-mq-namespace", "a b".parse().unwrap());
    let bad = receive(&mut client, bad).await;
    assert_eq!(bad.code, Code::IllegalConsumerGroup);
}
