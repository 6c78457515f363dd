//! A folder with something of everything that a broker keeps.

use std::{path::Path, time::Duration};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use pop_broker::{Delivery, GroupSpec, NewMessage, ReceiveRequest, stores::Backend};
use pop_model::{
    Backoff, Checkpoint, MessageKind, ParkedKey, RetryPolicy, StartPosition, StoredKey, StoredValue,
};
use pop_store::{
    Durability, Scan, StoreExt, WriteBatch,
    table::{BODY, DUE, LEASE, PROGRESS, QUARANTINE, RETRY},
};

use crate::{
    broker::{Life, group, topic},
    ledger::{Ledger, Pair},
};

pub(crate) const PLAIN: &str = "plain";
pub(crate) const ORDERED: &str = "ordered";
pub(crate) const WORKERS: Pair = ("workers", PLAIN);
pub(crate) const AUDIT: Pair = ("audit", PLAIN);
/// Gives a message up after one attempt.
pub(crate) const ONCE: Pair = ("once", PLAIN);
/// Consumes in order.
pub(crate) const STRICT: Pair = ("strict", ORDERED);
pub(crate) const PAIRS: [Pair; 4] = [WORKERS, AUDIT, ONCE, STRICT];

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);
/// How long the one is out whose row is damaged.
const DAMAGED_FOR: Duration = Duration::from_secs(7);
const BODY_OF_SMALL: &[u8] = b"small";
const BIG_BODY_BYTES: usize = 300_000;

/// Fills a folder through two lives of a broker.
///
/// # Errors
///
/// If a broker refuses anything, or something of what must be there is not.
pub(crate) async fn fill(store: Backend, folder: &Path) -> Result<Ledger> {
    let mut ledger = Ledger::default();
    let life = Life::start(store, folder, Duration::ZERO).await?;
    Filling {
        life: &life,
        ledger: &mut ledger,
    }
    .run()
    .await?;
    life.stop().await?;
    damage(store, folder).await?;
    put_away(store, folder, &mut ledger).await?;
    has_everything(store, folder).await?;
    Ok(ledger)
}

struct Filling<'a> {
    life: &'a Life,
    ledger: &'a mut Ledger,
}

impl Filling<'_> {
    async fn run(&mut self) -> Result<()> {
        for (pair, attempts) in [(WORKERS, 3), (AUDIT, 17), (ONCE, 1), (STRICT, 3)] {
            let spec = GroupSpec {
                name: group(pair.0)?,
                policy: RetryPolicy::new(attempts, Backoff::Customized(vec![SECOND]))?,
                start: StartPosition::Earliest,
                fifo: pair == STRICT,
            };
            self.life.broker.create_group(spec).await?;
        }
        self.send_all().await?;
        self.work().await?;
        for delivery in self.take(AUDIT, 10, HOUR).await? {
            self.ack(AUDIT, &delivery).await?;
        }
        self.take(ONCE, 10, SECOND).await?;
        self.life.advance(SECOND * 5).await;
        // Some of the blocked groups' messages are looked at, and don't fit in memory.
        for _ in 0..4 {
            self.take(STRICT, 1, HOUR).await?;
        }
        self.delete_one().await?;
        self.life.rest().await;
        Ok(())
    }

    async fn send_all(&mut self) -> Result<()> {
        for number in 0..200 {
            let id = format!("p{number:03}");
            let length = if number % 60 == 7 {
                BIG_BODY_BYTES
            } else {
                number
            };
            self.send(PLAIN, NewMessage::new(id, vec![7; length + 1].into()))
                .await?;
        }
        for number in 0..90 {
            let message_group = ["a", "b", "c"].get(number % 3).copied().unwrap_or("a");
            let message = NewMessage {
                kind: MessageKind::Fifo,
                message_group: Some(message_group.to_owned()),
                ..NewMessage::new(
                    format!("{message_group}{number:03}"),
                    Bytes::from_static(BODY_OF_SMALL),
                )
            };
            self.send(ORDERED, message).await?;
        }
        Ok(())
    }

    async fn send(&mut self, to: &'static str, message: NewMessage) -> Result<()> {
        let id = message.message_id.clone();
        let sent = self.life.broker.send(&topic(to)?, vec![message]).await?;
        for outcome in sent {
            outcome?;
            self.ledger.sent(to, &id);
        }
        Ok(())
    }

    /// What workers do: acknowledge, give back, keep.
    async fn work(&mut self) -> Result<()> {
        for delivery in self.take(WORKERS, 30, HOUR).await? {
            self.ack(WORKERS, &delivery).await?;
        }
        let (by, of) = (group(WORKERS.0)?, topic(WORKERS.1)?);
        for delivery in self.take(WORKERS, 10, HOUR).await? {
            let handle = delivery.handle.as_str();
            let broker = &self.life.broker;
            broker
                .change_invisible(&by, &of, handle, Duration::ZERO, false)
                .await?;
        }
        let damaged = self.take(WORKERS, 1, DAMAGED_FOR).await?;
        let damaged = damaged.first().context("a message to damage")?;
        self.ledger.over(WORKERS, &damaged.message.message_id);
        let kept = self.take(WORKERS, 20, HOUR).await?;
        let handle = |it: &Delivery| it.handle.as_str().to_owned();
        let [kept, acked, ..] = kept.as_slice() else {
            anyhow::bail!("two messages are out");
        };
        self.ledger.handle = Some((WORKERS, handle(kept)));
        self.ledger.acked_later = Some((WORKERS, handle(acked)));
        self.ledger.over(WORKERS, &acked.message.message_id);
        Ok(())
    }

    async fn take(&self, pair: Pair, count: usize, hidden: Duration) -> Result<Vec<Delivery>> {
        let mut taken = Vec::new();
        for _ in 0..20 {
            let mut request = ReceiveRequest::new(group(pair.0)?, topic(pair.1)?, hidden);
            request.batch_size = count - taken.len();
            taken.extend(self.life.broker.receive(request).await?.take());
            if taken.len() == count {
                break;
            }
        }
        Ok(taken)
    }

    async fn ack(&mut self, pair: Pair, delivery: &Delivery) -> Result<()> {
        let (by, of) = (group(pair.0)?, topic(pair.1)?);
        let handle = delivery.handle.as_str();
        self.life.broker.ack(&by, &of, handle).await?;
        self.ledger.over(pair, &delivery.message.message_id);
        Ok(())
    }

    async fn delete_one(&self) -> Result<()> {
        let gone = topic("gone")?;
        let messages =
            (0..20).map(|it| NewMessage::new(format!("g{it}"), Bytes::from_static(BODY_OF_SMALL)));
        self.life.broker.send(&gone, messages.collect()).await?;
        Ok(self.life.broker.delete_topic(&gone).await?)
    }
}

/// Damages the row of the lease that was chosen for it.
async fn damage(store: Backend, folder: &Path) -> Result<()> {
    let store = store.opener(folder)?.open().await?;
    let rows = store.scan(LEASE, Scan::all()).await?;
    let chosen = rows.into_iter().find(|row| {
        let checkpoint = Checkpoint::decode(row.value.clone());
        checkpoint.is_ok_and(|it| it.invisible_for == DAMAGED_FOR)
    });
    let mut batch = WriteBatch::new();
    let key = chosen.context("the lease to damage is stored")?.key;
    batch.put(LEASE, key, "not a row".into());
    store.write(batch, Durability::Synced).await?;
    Ok(store.close().await?)
}

/// Lets a broker find it, which takes a handle of its earlier life.
async fn put_away(store: Backend, folder: &Path, ledger: &mut Ledger) -> Result<()> {
    let life = Life::start(store, folder, SECOND * 60).await?;
    let (pair, handle) = ledger.acked_later.as_ref().context("a handle")?;
    let (by, of) = (group(pair.0)?, topic(pair.1)?);
    life.broker.ack(&by, &of, handle).await?;
    for _ in 0..100 {
        ledger.quarantined = life.broker.quarantined(0, 100).await?.len();
        if ledger.quarantined > 0 {
            return life.stop().await;
        }
        life.rest().await;
    }
    anyhow::bail!("the damaged row was not put away")
}

/// Looks whether the folder has what this is all about.
async fn has_everything(store: Backend, folder: &Path) -> Result<()> {
    let store = store.opener(folder)?.open().await?;
    for keyspace in [BODY, LEASE, DUE, RETRY, QUARANTINE] {
        let rows = store.scan(keyspace, Scan::all()).await?;
        ensure!(!rows.is_empty(), "nothing is in {keyspace}");
    }
    let mut parked = 0;
    store
        .for_each_page(PROGRESS, Scan::all(), |rows| {
            let keys = rows.into_iter().map(|row| row.key);
            parked += keys
                .filter(|key| ParkedKey::decode(key.clone()).is_ok())
                .count();
            Ok::<_, pop_store::Error>(true)
        })
        .await?;
    ensure!(parked > 0, "nothing is parked");
    Ok(store.close().await?)
}
