//! AckMessage and ChangeInvisibleDuration: which receipt handles do what.

use pop_broker::{listener::TlsChoice, rpc::RpcOptions};
use pop_proto::v2::{ChangeInvisibleDurationRequest, ChangeInvisibleDurationResponse, Code};
use tokio::time::Instant;

use crate::support::{
    Client, Server, ack, attempt, code, handle, options, receive, receive_request, receive_some,
    request, request_of, resource, seconds, send_ok,
};

async fn sent_and_received(client: &mut Client) -> String {
    send_ok(client, "orders", "id").await;
    handle(&receive_some(client, "orders", "billing").await[0])
}

fn change(handle: &str, duration: Option<prost_types::Duration>) -> ChangeInvisibleDurationRequest {
    ChangeInvisibleDurationRequest {
        group: Some(resource("billing")),
        topic: Some(resource("orders")),
        receipt_handle: handle.into(),
        invisible_duration: duration,
        message_id: "id".into(),
        lite_topic: None,
        suspend: None,
    }
}

async fn changed(
    client: &mut Client,
    handle: &str,
    duration: prost_types::Duration,
) -> ChangeInvisibleDurationResponse {
    let request = request(change(handle, Some(duration)));
    let answer = client.change_invisible_duration(request).await;
    answer.unwrap().into_inner()
}

#[tokio::test]
async fn an_acknowledged_message_is_done_and_a_second_acknowledgement_is_refused() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let handle = sent_and_received(&mut client).await;
    let answer = ack(&mut client, "orders", "billing", &[&handle]).await;
    assert_eq!(code(&answer.status), Code::Ok);
    assert_eq!(answer.entries.len(), 1);
    assert_eq!(code(&answer.entries[0].status), Code::Ok);
    assert_eq!(answer.entries[0].receipt_handle, handle);
    assert_eq!(answer.entries[0].message_id, "id");
    let answer = ack(&mut client, "orders", "billing", &[&handle]).await;
    assert_eq!(code(&answer.status), Code::InvalidReceiptHandle);
}

/// Any other code makes push consumers repeat the call for ever.
#[tokio::test]
async fn a_handle_that_is_not_one_of_this_delivery_is_invalid() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let handle = sent_and_received(&mut client).await;
    let other_broker = Server::start_with(options(2), RpcOptions::new(), TlsChoice::Off).await;
    let foreign = sent_and_received(&mut other_broker.client().await).await;

    let mut forged = handle.clone().into_bytes();
    forged[20] ^= 1;
    let forged = String::from_utf8(forged).unwrap();
    let truncated = &handle[..handle.len() - 1];
    let longer = format!("{handle}A");
    for bad in [
        "", " ", "garbage", "ä", &forged, truncated, &longer, &foreign,
    ] {
        let answer = ack(&mut client, "orders", "billing", &[bad]).await;
        assert_eq!(code(&answer.status), Code::InvalidReceiptHandle, "{bad}");
        let answer = changed(&mut client, bad, seconds(1)).await;
        assert_eq!(code(&answer.status), Code::InvalidReceiptHandle, "{bad}");
        assert_eq!(answer.receipt_handle, bad);
    }
    // A good one, of another group or topic than the request says, there or not.
    receive_some(&mut client, "orders", "other").await;
    for (topic, group) in [
        ("orders", "other"),
        ("bills", "billing"),
        ("orders", "nobody"),
    ] {
        let answer = ack(&mut client, topic, group, &[&handle]).await;
        assert_eq!(code(&answer.status), Code::InvalidReceiptHandle);
    }
    // It is as good as before.
    let answer = ack(&mut client, "orders", "billing", &[&handle]).await;
    assert_eq!(code(&answer.status), Code::Ok);
}

#[tokio::test]
async fn entries_of_one_request_have_results_of_their_own() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let handle = sent_and_received(&mut client).await;
    let answer = ack(&mut client, "orders", "billing", &["garbage", &handle]).await;
    assert_eq!(code(&answer.status), Code::MultipleResults);
    let codes: Vec<_> = answer
        .entries
        .iter()
        .map(|entry| code(&entry.status))
        .collect();
    assert_eq!(codes, [Code::InvalidReceiptHandle, Code::Ok]);
}

#[tokio::test]
async fn an_acknowledgement_of_nothing_or_of_too_much_or_with_bad_names_is_refused() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let answer = ack(&mut client, "orders", "billing", &[]).await;
    assert_eq!(code(&answer.status), Code::BadRequest);
    let answer = ack(&mut client, "orders", "billing", &["garbage"; 1_025]).await;
    assert_eq!(code(&answer.status), Code::BadRequest);
    let answer = ack(&mut client, "a b", "billing", &["garbage"]).await;
    assert_eq!(code(&answer.status), Code::IllegalTopic);
    let answer = ack(&mut client, "orders", "a b", &["garbage"]).await;
    assert_eq!(code(&answer.status), Code::IllegalConsumerGroup);
}

#[tokio::test]
async fn a_message_made_ready_comes_again_and_its_old_handle_is_over() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let first = sent_and_received(&mut client).await;
    let answer = changed(&mut client, &first, seconds(0)).await;
    assert_eq!(code(&answer.status), Code::Ok);
    let again = receive_some(&mut client, "orders", "billing").await;
    assert_eq!(attempt(&again[0]), 2);
    let answer = ack(&mut client, "orders", "billing", &[&first]).await;
    assert_eq!(code(&answer.status), Code::InvalidReceiptHandle);
    let answer = ack(&mut client, "orders", "billing", &[&handle(&again[0])]).await;
    assert_eq!(code(&answer.status), Code::Ok);
}

#[tokio::test]
async fn a_message_whose_time_is_up_comes_again_with_an_attempt_more() {
    let server = Server::start().await;
    let mut client = server.client().await;
    send_ok(&mut client, "orders", "id").await;
    let mut poll = receive_request("orders", "billing");
    poll.invisible_duration = Some(seconds(1));
    let first = receive(&mut client, request(poll)).await;
    assert_eq!(attempt(&first.messages[0]), 1);
    let again = receive_some(&mut client, "orders", "billing").await;
    assert_eq!(attempt(&again[0]), 2);
}

#[tokio::test]
async fn a_change_returns_a_handle_that_works() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let first = sent_and_received(&mut client).await;
    let answer = changed(&mut client, &first, seconds(12 * 60 * 60)).await;
    assert_eq!(code(&answer.status), Code::Ok);
    let answer = ack(&mut client, "orders", "billing", &[&answer.receipt_handle]).await;
    assert_eq!(code(&answer.status), Code::Ok);
}

#[tokio::test]
async fn a_change_out_of_range_hands_the_old_handle_back() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let handle = sent_and_received(&mut client).await;
    for (seconds, nanos) in [
        (0, -1),
        (-1, 0),
        (43_200, 1),
        (i64::MAX, 0),
        (i64::MIN, i32::MIN),
    ] {
        let duration = prost_types::Duration { seconds, nanos };
        let answer = changed(&mut client, &handle, duration).await;
        assert_eq!(
            code(&answer.status),
            Code::IllegalInvisibleTime,
            "{seconds} s {nanos} ns"
        );
        assert_eq!(answer.receipt_handle, handle);
    }
    let answer = ack(&mut client, "orders", "billing", &[&handle]).await;
    assert_eq!(code(&answer.status), Code::Ok);
}

/// With a back-off that it can't read, this client asks for no delay, again and again.
#[tokio::test]
async fn the_node_client_waits_a_second_at_least() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let handle = sent_and_received(&mut client).await;
    let request = request_of("HTTP", "1.0.8", change(&handle, Some(seconds(0))));
    let asked = Instant::now();
    let answer = client.change_invisible_duration(request).await.unwrap();
    assert_eq!(code(&answer.into_inner().status), Code::Ok);
    let again = receive_some(&mut client, "orders", "billing").await;
    assert_eq!(again.len(), 1);
    assert!(asked.elapsed().as_millis() >= 1_000);
}
