//! A first message goes through a broker of its own process: sent, received under a lease,
//! delivered again because the lease ran out, acknowledged. Each step is printed, and
//! anything that is not as said ends it with an error.
//!
//! ```sh
//! cargo xtask demo
//! ```

#![expect(clippy::print_stdout, reason = "showing is what it is for")]

mod client;
mod process;

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use pop_proto::v2::Code;
use tokio::time::Instant;

use client::{Client, Delivery};
use process::Process;

/// How long a message is hidden after it was received.
const LEASE: Duration = Duration::from_secs(3);
/// How late a message may come back without it being wrong.
const LATE_MAX: Duration = Duration::from_secs(5);
const STOP_MAX: Duration = Duration::from_secs(20);

/// Shows a first message going through a broker.
#[derive(Debug, Parser)]
struct Flags {
    /// The program `pop-broker`.
    #[arg(long, value_name = "PATH")]
    broker_binary: PathBuf,
    /// The store to keep messages in.
    #[arg(long, default_value = "fjall")]
    store: String,
}

#[tokio::main]
async fn main() -> Result<()> {
    let flags = Flags::parse();
    let folder = tempfile::tempdir()?;
    let data = folder.path().join("data");
    let data = data.to_str().context("a temporary folder is text")?;
    let args = [
        ["--store", &flags.store],
        ["--data", data],
        ["--listen", "127.0.0.1:0"],
        ["--admin", "127.0.0.1:0"],
    ];
    let args = args.as_flattened();

    step("Start a broker as its own process; port 0 lets the system choose one.");
    println!("   $ pop-broker serve {}", args.join(" "));
    let log = folder.path().join("log");
    let mut broker = Process::start(&flags.broker_binary, args, &log)?;
    println!("   {}", broker.ready());

    let address = broker.field("listen")?;
    let mut client = Client::connect(address, "orders", "kitchen").await?;
    let outcome = go_through(&mut client).await;
    outcome.with_context(|| format!("the broker's last line: {}", broker.last_line()))?;

    step("Stop the broker with SIGTERM: it stores what it holds and ends.");
    drop(client);
    broker.signal("TERM")?;
    let status = broker.end(STOP_MAX).await?;
    ensure!(
        status.success(),
        "it ended with {status}: {}",
        broker.last_line()
    );
    println!("   it ended cleanly, {status}");
    println!("\nAll as said. `cargo xtask run` keeps a broker serving.");
    Ok(())
}

async fn go_through(client: &mut Client) -> Result<()> {
    step("Send three messages to topic `orders`. Each is on disk before it is answered.");
    for (id, body) in [("1", "coffee"), ("2", "tea"), ("3", "water")] {
        client.send(id, body).await?;
        println!("   sent {body}");
    }

    step("Receive as group `kitchen`: each message is hidden from the group for 3 s, its lease.");
    let received_at = Instant::now();
    let mut deliveries = receive_three(client).await?;
    deliveries.sort_by(|left, right| left.message_id.cmp(&right.message_id));
    let [coffee, mut tea, water] = <[Delivery; 3]>::try_from(deliveries)
        .map_err(|found| anyhow::anyhow!("{} messages came, not 3", found.len()))?;
    for delivery in [&coffee, &tea, &water] {
        ensure!(delivery.attempt == 1, "{delivery:?} is a first delivery");
        show(delivery);
    }

    step("Acknowledge the coffee: it is done. The tea takes longer: hide it for 30 s instead.");
    ensure!(client.ack(&coffee).await? == Code::Ok);
    client.hide(&mut tea, Duration::from_secs(30)).await?;
    println!("   acknowledged coffee");
    println!("   tea stays hidden, with a new receipt handle");

    step("Do nothing about the water, as a consumer does that crashed. Its lease runs out.");
    let again = client.receive(LEASE, LEASE + LATE_MAX).await?;
    let waited = received_at.elapsed();
    ensure!(waited >= LEASE, "the water came back within its lease");
    let [again] = <[Delivery; 1]>::try_from(again)
        .map_err(|found| anyhow::anyhow!("{found:?} came, not the water alone"))?;
    ensure!(again.body == "water", "{again:?} is not the water");
    ensure!(again.attempt == 2, "{again:?} is a second delivery");
    println!("   {:.1} s later:", waited.as_secs_f32());
    show(&again);

    step("The crashed consumer wakes up and acknowledges with its old handle: refused.");
    let code = client.ack(&water).await?;
    ensure!(code == Code::InvalidReceiptHandle, "{code:?}");
    println!("   {}", code.as_str_name());

    step("Acknowledge the water with the handle of its second delivery, and the tea.");
    ensure!(client.ack(&again).await? == Code::Ok);
    ensure!(client.ack(&tea).await? == Code::Ok);
    println!("   acknowledged both");

    step("Receive once more, for longer than a lease: nothing is left.");
    let rest = client
        .receive(LEASE, LEASE + Duration::from_secs(1))
        .await?;
    ensure!(
        rest.is_empty(),
        "{rest:?} came, though all was acknowledged"
    );
    println!("   nothing came");
    Ok(())
}

/// A receive answers with what is there, which need not be all at once.
async fn receive_three(client: &mut Client) -> Result<Vec<Delivery>> {
    let mut deliveries = Vec::new();
    while deliveries.len() < 3 {
        let found = client.receive(LEASE, LATE_MAX).await?;
        ensure!(!found.is_empty(), "only {} messages came", deliveries.len());
        deliveries.extend(found);
    }
    Ok(deliveries)
}

fn step(text: &str) {
    println!("\n-> {text}");
}

fn show(delivery: &Delivery) {
    println!(
        "   received {}, attempt {}",
        delivery.body, delivery.attempt
    );
}
