//! What it keeps over a restart.

use std::time::Duration;

use pop_proto::v2::Code;

use crate::bench::{Bench, END_MAX, ask, client};

const LONG: Duration = Duration::from_secs(60);

/// P1 and P4. Mutant: draw new handle keys at each open, which refuses the old handle.
#[tokio::test]
async fn messages_leases_and_acknowledgements_survive_a_restart() {
    let bench = Bench::new();
    let mut broker = bench.serve_folder();
    let mut before = client(&broker, "orders", "billing").await;
    before.send("1", "coffee").await.unwrap();
    before.send("2", "tea").await.unwrap();
    let mut leased = Vec::new();
    while leased.len() < 2 {
        leased.extend(before.receive(LONG, LONG).await.unwrap());
    }
    assert_eq!(before.ack(&leased[0]).await.unwrap(), Code::Ok);
    before.send("3", "water").await.unwrap();
    broker.signal("TERM").unwrap();
    broker.end(END_MAX).await.unwrap();

    let broker = bench.serve_folder();
    let mut after = client(&broker, "orders", "billing").await;
    // The one that was never handed out; the other two are acknowledged and leased.
    let rest = after.receive(LONG, LONG).await.unwrap();
    let bodies: Vec<_> = rest
        .iter()
        .map(|it| (it.body.as_str(), it.attempt))
        .collect();
    assert_eq!(bodies, [("water", 1)]);
    // A lease outlives the process, and so does its handle.
    assert_eq!(after.ack(&leased[1]).await.unwrap(), Code::Ok);
    let again = after.ack(&leased[0]).await.unwrap();
    assert_eq!(again, Code::InvalidReceiptHandle);
}

#[tokio::test]
async fn topics_and_groups_survive_a_restart() {
    let bench = Bench::new();
    let mut broker = bench.serve_folder();
    ask(&broker, &["topic", "create", "orders", "--queues", "7"]);
    ask(
        &broker,
        &["group", "create", "billing", "--start", "latest"],
    );
    let lists = |broker: &_| {
        [
            ask(broker, &["topic", "list"]),
            ask(broker, &["group", "list"]),
        ]
    };
    let before = lists(&broker);
    broker.signal("TERM").unwrap();
    broker.end(END_MAX).await.unwrap();
    assert_eq!(lists(&bench.serve_folder()), before);
}
