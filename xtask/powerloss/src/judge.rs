//! What a broker on what a power cut left must still do: deliver every message that was
//! answered OK and not acknowledged (P1, and P2 with it), and no message whose
//! acknowledgement was answered as synced (P4).

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result};
use pop_broker::{Broker, Delivery, ReceiveRequest};
use pop_model::{Clock, ManualClock, SystemClock, WallTime};

use crate::{
    broker::{body, group, options, topic},
    marks::{BrokerMark, Mark},
    stores::Opener,
};

/// After this long every lease that anybody took is over.
const LATER: Duration = Duration::from_secs(3_600);
/// Nothing comes any more if nothing came within this.
const QUIET: Duration = Duration::from_millis(120);

/// Opens a broker an hour later and receives whatever comes, in `violations` what should
/// not have come or did not come.
pub(crate) async fn judge(
    opener: Opener,
    marks: &[Mark],
    violations: &mut Vec<String>,
) -> Result<()> {
    let now = SystemClock::resume(None);
    let later = i64::try_from(LATER.as_millis())?;
    let wall = WallTime::from_unix_millis(now.wall().as_unix_millis() + later);
    let clock = ManualClock::new(now.lease().saturating_add(LATER), wall);
    let options = options().with_clock(Arc::new(clock));
    let broker = Broker::open(Arc::new(opener), options).await;
    let broker = broker.context("the broker does not open")?;
    let promises = Promises::of(marks);
    let deliveries = receive_all(&broker, &promises).await?;
    promises.hold_against(&deliveries, violations);
    broker.shutdown().await?;
    Ok(())
}

/// Time stands still, so that nothing expires and comes twice.
async fn receive_all(broker: &Broker, promises: &Promises<'_>) -> Result<Vec<Delivery>> {
    let mut request = ReceiveRequest::new(group()?, topic()?, Duration::from_secs(30));
    request.wait_max = QUIET;
    let mut deliveries = Vec::new();
    let mut waited = 0;
    loop {
        let more = broker.receive(request.clone()).await?.take();
        // Expired leases are revived one by one: what is awaited is waited for longer.
        waited = if more.is_empty() { waited + 1 } else { 0 };
        deliveries.extend(more);
        let is_complete = promises.are_delivered(&deliveries);
        if waited > 0 && (is_complete || waited > 20) {
            return Ok(deliveries);
        }
    }
}

/// What the broker had promised when the power went.
#[derive(Debug, Default)]
struct Promises<'a> {
    sending: HashSet<&'a str>,
    /// Answered OK, and nobody has asked to acknowledge it.
    must_come: HashSet<&'a str>,
    must_not_come: HashSet<&'a str>,
}

impl<'a> Promises<'a> {
    fn of(marks: &'a [Mark]) -> Self {
        let mut promises = Self::default();
        let mut acking = HashSet::new();
        for mark in marks {
            let Mark::Broker(mark) = mark else { continue };
            match mark {
                BrokerMark::Sending { id } => drop(promises.sending.insert(id)),
                BrokerMark::Sent { id } => drop(promises.must_come.insert(id)),
                BrokerMark::Acking { id } => drop(acking.insert(id.as_str())),
                BrokerMark::Acked { id } => drop(promises.must_not_come.insert(id)),
            }
        }
        promises.must_come.retain(|id| !acking.contains(id));
        promises
    }

    fn are_delivered(&self, deliveries: &[Delivery]) -> bool {
        let came: HashSet<_> = deliveries.iter().map(id).collect();
        self.must_come.is_subset(&came)
    }

    fn hold_against(&self, deliveries: &[Delivery], violations: &mut Vec<String>) {
        let mut came: HashMap<&str, u32> = HashMap::new();
        for delivery in deliveries {
            let id = id(delivery);
            *came.entry(id).or_default() += 1;
            if !self.sending.contains(id) || delivery.body != body(id) {
                violations.push(format!("{id} was never sent, or with another body"));
            }
            if self.must_not_come.contains(id) {
                let attempt = delivery.delivery_attempt;
                violations.push(format!(
                    "P4: {id} was acknowledged and came (attempt {attempt})"
                ));
            }
        }
        for (id, count) in came.iter().filter(|(_, count)| **count > 1) {
            violations.push(format!(
                "P3: {id} came {count} times while time stood still"
            ));
        }
        for id in self.must_come.iter().filter(|id| !came.contains_key(**id)) {
            violations.push(format!("P1: {id} was answered OK and is lost"));
        }
    }
}

fn id(delivery: &Delivery) -> &str {
    &delivery.message.message_id
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(word: fn(String) -> BrokerMark, id: &str) -> Mark {
        Mark::Broker(word(id.to_owned()))
    }

    const SENDING: fn(String) -> BrokerMark = |id| BrokerMark::Sending { id };
    const SENT: fn(String) -> BrokerMark = |id| BrokerMark::Sent { id };
    const ACKING: fn(String) -> BrokerMark = |id| BrokerMark::Acking { id };
    const ACKED: fn(String) -> BrokerMark = |id| BrokerMark::Acked { id };

    #[test]
    fn what_is_under_way_may_come_and_may_not() {
        let marks = [
            mark(SENDING, "a"),
            mark(SENDING, "b"),
            mark(SENT, "b"),
            mark(SENDING, "c"),
            mark(SENT, "c"),
            mark(ACKING, "c"),
            mark(SENDING, "d"),
            mark(SENT, "d"),
            mark(ACKING, "d"),
            mark(ACKED, "d"),
        ];
        let promises = Promises::of(&marks);
        assert_eq!(promises.must_come, HashSet::from(["b"]));
        assert_eq!(promises.must_not_come, HashSet::from(["d"]));
        let mut violations = Vec::new();
        promises.hold_against(&[], &mut violations);
        assert_eq!(violations, ["P1: b was answered OK and is lost"]);
    }
}
