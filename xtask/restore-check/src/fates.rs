//! What clients of a broker were told of each message while it was killed and moved, and so
//! what a copy or a later owner must give out.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};
use tokio::time::Instant;

/// What is known of a message. What was tried and not answered may have happened or not.
#[derive(Clone, Copy, Debug, Default)]
struct Fate {
    sent: Option<Instant>,
    acking: Option<Instant>,
    acked: Option<Instant>,
}

/// What clients were told.
#[derive(Debug, Default)]
pub(crate) struct Fates {
    all: BTreeMap<String, Fate>,
    /// The last delivery that was left open: its message, its handle, and in which life of
    /// the broker it came.
    pub(crate) open: Option<(String, String, u32)>,
    /// Goes up when a broker is killed.
    pub(crate) life: u32,
    /// What a client saw that must not be.
    pub(crate) broken: Vec<String>,
}

impl Fates {
    pub(crate) fn sending(&mut self, id: &str) {
        self.all.entry(id.to_owned()).or_default();
    }

    pub(crate) fn sent(&mut self, id: &str) {
        self.all.entry(id.to_owned()).or_default().sent = Some(Instant::now());
    }

    /// A consumer got it.
    pub(crate) fn came(&mut self, id: &str) {
        match self.all.get(id) {
            None => self.broken.push(format!("{id} came, and nobody sent it")),
            Some(fate) if fate.acked.is_some() => {
                self.broken.push(format!("{id} came, and was acknowledged"));
            }
            Some(_) => {}
        }
    }

    pub(crate) fn acking(&mut self, id: &str) {
        let fate = self.all.entry(id.to_owned()).or_default();
        fate.acking.get_or_insert_with(Instant::now);
    }

    pub(crate) fn acked(&mut self, id: &str) {
        self.all.entry(id.to_owned()).or_default().acked = Some(Instant::now());
    }

    /// Whether `received` is what a copy must give out of a snapshot that was taken between
    /// these moments.
    pub(crate) fn judge(
        &self,
        received: &BTreeSet<String>,
        from: Instant,
        until: Instant,
    ) -> Result<()> {
        ensure!(self.broken.is_empty(), "{:?}", self.broken);
        for id in received {
            let Some(fate) = self.all.get(id) else {
                anyhow::bail!("{id} came, and nobody sent it");
            };
            let is_over = fate.acked.is_some_and(|at| at < from);
            ensure!(!is_over, "{id} came, and was acknowledged before");
        }
        for (id, fate) in &self.all {
            let must =
                fate.sent.is_some_and(|at| at < from) && fate.acking.is_none_or(|at| at > until);
            ensure!(!must || received.contains(id), "{id} never came");
        }
        Ok(())
    }

    /// How many were sent for sure, and how many are done with for sure.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let count = |is: fn(&Fate) -> bool| self.all.values().filter(|it| is(it)).count();
        (
            count(|it| it.sent.is_some()),
            count(|it| it.acked.is_some()),
        )
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn ids(ids: &[&str]) -> BTreeSet<String> {
        ids.iter().map(|it| (*it).to_owned()).collect()
    }

    // Mutants: what is lost, or what came after its acknowledgement, is not looked for; what
    // was acknowledged meanwhile must come.
    #[tokio::test(start_paused = true)]
    async fn what_is_lost_and_what_is_over_and_came_is_seen_and_what_may_be_is_not() {
        let pass = || tokio::time::advance(Duration::from_secs(1));
        let mut fates = Fates::default();
        for id in ["open", "over", "meanwhile"] {
            fates.sending(id);
            fates.sent(id);
        }
        fates.sending("unanswered");
        fates.acking("over");
        fates.acked("over");
        pass().await;
        let from = Instant::now();
        pass().await;
        fates.acking("meanwhile");
        fates.acked("meanwhile");
        fates.sending("late");
        fates.sent("late");
        pass().await;
        let until = Instant::now();
        for may in [
            &["open"][..],
            &["open", "meanwhile"],
            &["open", "unanswered", "late"],
        ] {
            fates.judge(&ids(may), from, until).unwrap();
        }
        for must_not in [&[][..], &["open", "over"], &["open", "unknown"]] {
            fates.judge(&ids(must_not), from, until).unwrap_err();
        }
        fates.came("over");
        fates.judge(&ids(&["open"]), from, until).unwrap_err();
    }
}
