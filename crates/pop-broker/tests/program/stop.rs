//! How it ends.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    time::Duration,
};

#[cfg(any(feature = "fjall", feature = "rocksdb", feature = "sled"))]
use crate::bench::END_MAX;
use crate::bench::{Bench, ask, client, until};

#[cfg(any(feature = "fjall", feature = "rocksdb", feature = "sled"))]
#[tokio::test]
async fn either_signal_ends_it_cleanly() {
    for signal in ["TERM", "INT"] {
        let bench = Bench::new();
        let mut broker = bench.serve_folder();
        broker.signal(signal).unwrap();
        let status = broker.end(END_MAX).await.unwrap();
        assert_eq!(status.code(), Some(0), "{signal}: {}", bench.log());
    }
}

/// P5. Mutant: shut the broker down and leave its connections open.
#[tokio::test]
async fn a_waiting_receive_is_answered_when_it_ends() {
    let bench = Bench::new();
    let mut broker = bench.serve_memory();
    let mut consumer = client(&broker, "orders", "billing").await;
    let wait = Duration::from_secs(19);
    let receive = tokio::spawn(async move { consumer.receive(wait, wait).await });
    // A group is made by its first receive, right before that waits.
    until(|| ask(&broker, &["group", "list"]).contains("billing")).await;
    broker.signal("TERM").unwrap();
    // Above what the wait is cut to, below what it asked for.
    let status = broker.end(Duration::from_secs(8)).await.unwrap();
    assert_eq!(status.code(), Some(0));
    // With nothing, or with why: never with a connection that broke.
    match receive.await.unwrap() {
        Ok(found) => assert!(found.is_empty(), "{found:?}"),
        Err(error) => assert!(error.to_string().contains("the broker refuses"), "{error}"),
    }
}

/// Mutant: wait for the clean end alone.
#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    let bench = Bench::new();
    let mut broker = bench.serve_memory();
    // A request whose body never comes holds a clean shutdown up.
    let mut request = TcpStream::connect(broker.field("admin").unwrap()).unwrap();
    let head = "POST /api/topics HTTP/1.1\r\nHost: broker\r\nExpect: 100-continue\r\n\
                Content-Type: application/json\r\nContent-Length: 100\r\n\r\n";
    request.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    BufReader::new(&request).read_line(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 100"), "{answer}");

    broker.signal("TERM").unwrap();
    until(|| bench.log().contains("another one ends the process")).await;
    broker.signal("TERM").unwrap();
    let status = broker.end(Duration::from_secs(5)).await.unwrap();
    assert_eq!(status.code(), Some(130), "{}", bench.log());
}
