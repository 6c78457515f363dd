//! A broker is handed over while it and its successor are killed.
//!
//! After each kill both sides are looked at as an operator would, by serving them: one of
//! them may be served or can be told to, never both. Then what `docs/HANDOVER.md` says is
//! done.
//!
//! Mutants that were seen caught: the mark of a retired source is not written; the receipt
//! is told before the mark is there; the epoch of a folder is not looked at; what awaits its
//! receipt is adopted as if it were a copy.

use std::fs;

use anyhow::{Context, Result, bail, ensure};
use kv_restore::{Digest, Limiter};
use pop_broker::transfer::place;
use pop_store::testkit::Random;

use crate::{
    live::{Victim, World},
    offline::{moment, pick},
    program::{Ask, Place, Program, digest},
    served::{Ports, Start, start},
};

const HANDOVER: &[&str] = &["--handover"];

/// Where a source is once it was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    Serves,
    /// Its process lives and serves nobody any more.
    Moved,
    /// Its folder is refused and tells this receipt.
    Refused(String),
}

/// Where a target is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Empty,
    Waits,
    /// It would be served, and had these rows before it was.
    Owns(Digest),
}

/// What an operator does who finds a source refused and a target that waits.
#[derive(Clone, Copy, Debug)]
enum Way {
    Receipt,
    SourceIsGone,
    Undo,
}

impl World<'_> {
    /// One round; how many kills it was.
    pub(crate) async fn hand_over(&mut self, random: &mut Random) -> Result<u32> {
        let to = self.place(random)?;
        let ask = Ask::Bootstrap {
            from: self.ports.url(),
            to: to.clone(),
            flags: HANDOVER,
        };
        let mut kills = 0;
        let made = loop {
            let running = self.program.begin(&ask)?;
            let (running, victim) = match kills < self.kills_max {
                true => self.kill(running, random).await?,
                false => (Some(running), None),
            };
            kills += u32::from(victim.is_some());
            let ended = match running {
                Some(running) => Some(running.end().await?),
                None => None,
            };
            let is_done = ended.as_ref().is_some_and(|it| it.is_success);
            let said = ended.map(|it| it.said).unwrap_or_default();
            ensure!(
                is_done || victim.is_some(),
                "{ask:?}, after {kills} kills: {said}"
            );
            let source = self.look(victim).await?;
            let target = look_at(self.program, &to).await?;
            match (source, target) {
                (Source::Serves, Target::Owns(_)) => bail!("both are served"),
                (Source::Serves, _) if is_done => bail!("it is done, and the source serves on"),
                (Source::Serves, _) => {}
                (_, Target::Empty) => bail!("nobody has what was handed over"),
                (_, Target::Owns(made)) => break made,
                (_, Target::Waits) if is_done => bail!("it is done, and the target waits"),
                // The same command goes on.
                (Source::Moved, Target::Waits) => {}
                (Source::Refused(receipt), Target::Waits) => {
                    let (more, is_over) = self.finish(&to, receipt, random).await?;
                    kills += more;
                    if is_over {
                        break self.made(&to).await?;
                    }
                }
            }
        };
        self.is_retired(made).await?;
        match random.chance(1, 4) {
            true => self.take_back(&to).await?,
            false => self.succeed(to).await?,
        }
        Ok(kills)
    }

    /// Where the source is, which is started again if it was killed.
    async fn look(&mut self, victim: Option<Victim>) -> Result<Source> {
        if victim == Some(Victim::Source) {
            return match start(self.program, &self.owner, &self.ports).await? {
                Start::Serves(served) => {
                    self.served = Some(served);
                    Ok(Source::Serves)
                }
                Start::Refused(said) => Ok(Source::Refused(receipt_in(&said)?)),
            };
        }
        let served = self.served.as_ref().context("the source was not killed")?;
        match served.is_moved().await? {
            true => Ok(Source::Moved),
            false => Ok(Source::Serves),
        }
    }

    /// Does what an operator may do with a source that is down and retired; whether the
    /// target is the owner then. That command is killed, too.
    async fn finish(
        &mut self,
        to: &Place,
        receipt: String,
        random: &mut Random,
    ) -> Result<(u32, bool)> {
        let way = *pick(&[Way::Receipt, Way::SourceIsGone, Way::Undo], random)?;
        let to = to.clone();
        let ask = match way {
            Way::Receipt => {
                let wrong = Ask::Finish {
                    to: to.clone(),
                    receipt: Some("0".repeat(32)),
                };
                let end = self.program.begin(&wrong)?.end().await?;
                ensure!(!end.is_success, "a wrong receipt is taken");
                let receipt = Some(receipt);
                Ask::Finish { to, receipt }
            }
            Way::SourceIsGone => Ask::Finish { to, receipt: None },
            Way::Undo => Ask::Undo {
                at: self.owner.clone(),
            },
        };
        let after = moment(std::time::Duration::from_millis(150), random)?;
        let kills = u32::from(self.program.kill(&ask, after).await?);
        let end = self.program.begin(&ask)?.end().await?;
        ensure!(end.is_success, "{ask:?}: {}", end.said);
        if let Way::Undo = way {
            let source = self.look(Some(Victim::Source)).await?;
            ensure!(source == Source::Serves, "what was taken back: {source:?}");
        }
        Ok((kills, !matches!(way, Way::Undo)))
    }

    async fn made(&self, to: &Place) -> Result<Digest> {
        match look_at(self.program, to).await? {
            Target::Owns(made) => Ok(made),
            other => bail!("a handover was finished, and the target is {other:?}"),
        }
    }

    /// The source is not served any more, and what went is what it has.
    async fn is_retired(&mut self, made: Digest) -> Result<()> {
        self.kill_source().await?;
        match start(self.program, &self.owner, &Ports::free()?).await? {
            Start::Serves(_) => bail!("the source is served after it was handed over"),
            Start::Refused(said) => receipt_in(&said)?,
        };
        let had = digest(self.owner.0, &self.owner.1).await?;
        ensure!(
            had == made,
            "the new owner has other rows: {made}, not {had}"
        );
        Ok(())
    }

    /// The target serves the clients from now on.
    async fn succeed(&mut self, to: Place) -> Result<()> {
        let Start::Serves(served) = start(self.program, &to, &self.ports).await? else {
            bail!("the new owner is not served");
        };
        self.served = Some(served);
        fs::remove_dir_all(&self.owner.1)?;
        self.owner = to;
        self.clients.settle_the_open_one().await
    }

    /// The handover is undone after all, and its target can't overwrite what it had.
    async fn take_back(&mut self, to: &Place) -> Result<()> {
        let at = self.owner.clone();
        let undo = Ask::Undo { at: at.clone() };
        self.program.run(&undo).await?;
        let ports = Ports::free()?;
        let Start::Serves(former) = start(self.program, to, &ports).await? else {
            bail!("the former owner is not served");
        };
        for flags in [&["--replace"][..], &["--replace", "--handover"]] {
            let back = Ask::Bootstrap {
                from: ports.url(),
                to: at.clone(),
                flags,
            };
            let end = self.program.begin(&back)?.end().await?;
            let is_refused = !end.is_success && end.said.contains("former owner");
            ensure!(is_refused, "a former owner overwrites: {}", end.said);
        }
        former.kill().await?;
        fs::remove_dir_all(&to.1)?;
        let source = self.look(Some(Victim::Source)).await?;
        ensure!(source == Source::Serves, "what was taken back: {source:?}");
        Ok(())
    }
}

/// Where a target is, which nobody has open.
async fn look_at(program: &Program, at: &Place) -> Result<Target> {
    if !at.1.exists() {
        return Ok(Target::Empty);
    }
    let store = at.0.opener(&at.1)?.open().await?;
    let is_empty = place::is_empty(store.as_ref()).await?;
    let made = place::totals(store.as_ref(), &Limiter::none(), |_| {}).await?;
    store.close().await?;
    if is_empty {
        return Ok(Target::Empty);
    }
    match start(program, at, &Ports::free()?).await? {
        Start::Serves(served) => {
            served.kill().await?;
            Ok(Target::Owns(made))
        }
        Start::Refused(_) => Ok(Target::Waits),
    }
}

/// What a retired folder tells.
fn receipt_in(said: &str) -> Result<String> {
    let behind = said.split_once(", it is ").map(|(_, behind)| behind);
    let receipt: String = behind.unwrap_or_default().chars().take(32).collect();
    ensure!(
        receipt.len() == 32 && receipt.chars().all(|it| it.is_ascii_hexdigit()),
        "a retired folder tells no receipt: {said}"
    );
    Ok(receipt)
}
