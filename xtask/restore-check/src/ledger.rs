//! What clients were told, and so what each copy must give out.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};

/// A group and a topic.
pub(crate) type Pair = (&'static str, &'static str);

/// What clients were told.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    sent: BTreeMap<&'static str, BTreeSet<String>>,
    over: BTreeMap<Pair, BTreeSet<String>>,
    /// The handle of a message that is out when the copies are made.
    pub(crate) handle: Option<(Pair, String)>,
    /// The one of another, for the next life of the original.
    pub(crate) acked_later: Option<(Pair, String)>,
    /// How many records are in quarantine.
    pub(crate) quarantined: usize,
}

/// What a copy gave out, and at which attempt first.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) first: BTreeMap<(Pair, String), u32>,
    /// Messages of the topic in order, by message group, as they came.
    pub(crate) ordered: BTreeMap<String, Vec<String>>,
}

impl Ledger {
    pub(crate) fn sent(&mut self, topic: &'static str, id: &str) {
        self.sent.entry(topic).or_default().insert(id.to_owned());
    }

    /// The message was acknowledged, or an operator has to do with it.
    pub(crate) fn over(&mut self, pair: Pair, id: &str) {
        self.over.entry(pair).or_default().insert(id.to_owned());
    }

    /// Whether `received` is what these groups must get.
    pub(crate) fn judge(&self, pairs: &[Pair], received: &Received) -> Result<()> {
        for pair in pairs {
            let none = BTreeSet::new();
            let sent = self.sent.get(pair.1).unwrap_or(&none);
            let over = self.over.get(pair).unwrap_or(&none);
            let came = |id: &String| received.first.contains_key(&(*pair, id.clone()));
            for id in sent {
                let must = !over.contains(id);
                ensure!(
                    came(id) == must,
                    "{} of {}: {id} {}",
                    pair.0,
                    pair.1,
                    if must {
                        "never came"
                    } else {
                        "came, and was over"
                    }
                );
            }
        }
        for (group, ids) in &received.ordered {
            ensure!(ids.is_sorted(), "message group {group} came as {ids:?}");
        }
        Ok(())
    }
}
