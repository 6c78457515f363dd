//! The operator's side, over HTTP.

use std::time::Duration;

use pop_proto::v2::Code;
use serde_json::{Value, json};
use ureq::Agent;

use crate::{
    bench::{Bench, ask, client},
    process::Process,
};

const LONG: Duration = Duration::from_secs(60);

#[cfg(any(feature = "fjall", feature = "rocksdb", feature = "sled"))]
pub(crate) fn health(admin: &str) -> String {
    get_at(admin, "/health").1
}

#[cfg(any(feature = "fjall", feature = "rocksdb", feature = "sled"))]
pub(crate) fn metrics(admin: &str) -> String {
    get_at(admin, "/metrics").1
}

fn get(broker: &Process, path: &str) -> (u16, String) {
    get_at(broker.field("admin").unwrap(), path)
}

fn get_at(admin: &str, path: &str) -> (u16, String) {
    let url = format!("http://{admin}{path}");
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .proxy(None);
    let agent: Agent = config.build().into();
    let mut answer = agent.get(url).call().unwrap();
    let text = answer.body_mut().read_to_string().unwrap();
    (answer.status().as_u16(), text)
}

#[test]
fn a_broker_that_serves_is_healthy() {
    let bench = Bench::new();
    let broker = bench.serve_memory();
    let (status, text) = get(&broker, "/health");
    assert_eq!((status, text.as_str()), (200, r#"{"state":"serving"}"#));
}

#[tokio::test]
async fn metrics_count_what_happened() {
    let bench = Bench::new();
    let broker = bench.serve_memory();
    let mut client = client(&broker, "orders", "billing").await;
    client.send("1", "coffee").await.unwrap();
    client.send("2", "tea").await.unwrap();
    let mut leased = Vec::new();
    while leased.len() < 2 {
        leased.extend(client.receive(LONG, LONG).await.unwrap());
    }
    assert_eq!(client.ack(&leased[0]).await.unwrap(), Code::Ok);
    // Hidden for no time at all, it is ready again at once.
    let mut second = leased.remove(1);
    client.hide(&mut second, Duration::ZERO).await.unwrap();
    let again = client.receive(LONG, LONG).await.unwrap();
    assert_eq!(again[0].attempt, 2);

    let (status, text) = get(&broker, "/metrics");
    assert_eq!(status, 200);
    for line in [
        "pop_serving 1",
        "pop_topics 1",
        "pop_groups 1",
        "pop_messages_sent_total 2",
        "pop_messages_received_total 3",
        "pop_messages_acked_total 1",
        "pop_leases_stored_total 0",
        "pop_messages_revived_total 1",
        "pop_messages_dead_lettered_total 0",
        "pop_messages_quarantined_total 0",
        "pop_messages_expired_total 0",
        "pop_messages_expired_unacked_total 0",
        "pop_retention_stopped 0",
    ] {
        assert!(text.lines().any(|it| it == line), "{line} in {text}");
    }
}

#[tokio::test]
async fn a_topic_is_described_with_the_bounds_of_its_queues() {
    let bench = Bench::new();
    let broker = bench.serve_memory();
    ask(&broker, &["topic", "create", "orders", "--queues", "2"]);
    let mut client = client(&broker, "orders", "billing").await;
    for id in ["1", "2", "3"] {
        client.send(id, "coffee").await.unwrap();
    }
    let text = ask(&broker, &["topic", "describe", "orders", "--json"]);
    let described: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(described["queues"], 2);
    let bounds = described["bounds"].as_array().unwrap();
    let messages = bounds
        .iter()
        .map(|queue| queue["end"].as_u64().unwrap() - queue["start"].as_u64().unwrap());
    assert_eq!(messages.sum::<u64>(), 3);
}

#[test]
fn a_name_in_a_namespace_is_another_name() {
    let bench = Bench::new();
    let broker = bench.serve_memory();
    ask(&broker, &["topic", "create", "orders"]);
    ask(&broker, &["topic", "create", "orders", "--namespace", "eu"]);
    let text = ask(&broker, &["topic", "list", "--json"]);
    let topics: Value = serde_json::from_str(&text).unwrap();
    let namespaces: Vec<_> = topics
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["namespace"])
        .collect();
    assert_eq!(namespaces, [&json!(""), &json!("eu")]);
}

#[test]
fn an_empty_quarantine_is_listed_as_such() {
    let bench = Bench::new();
    let broker = bench.serve_memory();
    let text = ask(&broker, &["quarantine", "list"]);
    assert_eq!(text, "nothing is in quarantine here\n");
}

#[test]
fn how_long_messages_are_kept_is_told() {
    let bench = Bench::new();
    let text = ask(&bench.serve_memory(), &["retention", "show"]);
    assert_eq!(text, "messages are kept for 604800 s\n");
    let off = bench.serve(&["--store", "memory", "--retention", "off"]);
    let text = ask(&off, &["retention", "show"]);
    assert_eq!(text, "messages are kept for ever\n");
    let text = ask(&off, &["retention", "confirm", "--json"]);
    let status: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(status["clock_jumped_by_ms"], Value::Null);
}

#[test]
fn a_refusal_says_why_in_json() {
    let bench = Bench::new();
    let broker = bench.serve_memory();
    for (path, expected) in [
        ("/api/topic?name=orders", 404),
        ("/api/topic?name=two%20words", 400),
        ("/api/topic", 400),
        ("/api/quarantine?from=first", 400),
        ("/nothing", 404),
    ] {
        let (status, text) = get(&broker, path);
        assert_eq!(status, expected, "{path}: {text}");
        let problem: Value = serde_json::from_str(&text).unwrap();
        assert!(problem["error"].is_string(), "{path}: {text}");
    }
}
