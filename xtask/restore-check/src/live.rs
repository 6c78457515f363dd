//! Brokers that serve clients while they are copied, backed up and handed over, and killed.

use std::{fs, path::PathBuf, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use pop_broker::stores::Backend;
use pop_store::testkit::Random;
use tokio::time::{Instant, sleep};

use crate::{
    action::Action,
    clients::{Clients, drain},
    offline::{moment, pick},
    program::{Ask, Place, Program, Running, digest},
    served::{Ports, Served, Start, start},
};

/// How long a transfer is taken to last until one was seen.
const TOOK: Duration = Duration::from_millis(800);

/// A world for each store that a source was wanted of so far.
pub(crate) struct Worlds<'a> {
    program: &'a Program,
    stores: &'a [Backend],
    kills_max: u32,
    all: Vec<(Backend, World<'a>)>,
}

/// A broker that serves, its clients, and what they were told.
pub(crate) struct World<'a> {
    pub(crate) program: &'a Program,
    stores: &'a [Backend],
    folder: tempfile::TempDir,
    pub(crate) ports: Ports,
    /// Who serves.
    pub(crate) owner: Place,
    /// Its process, unless it was killed.
    pub(crate) served: Option<Box<Served>>,
    pub(crate) clients: Clients,
    /// In one round at most.
    pub(crate) kills_max: u32,
    folders: u32,
    took: Duration,
}

/// Who is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Victim {
    Command,
    Source,
}

/// When.
#[derive(Clone, Copy, Debug)]
enum Moment {
    After(Duration),
    /// So long after the source has logged this.
    Says(&'static str, Duration),
}

/// What a source logs where a transfer goes from one step to the next: at random moments
/// alone few kills would meet them.
const STEPS: [&str; 4] = [
    "serving nobody until",
    "a snapshot was taken",
    "everything is handed over",
    "a snapshot is not kept any more",
];

impl<'a> Worlds<'a> {
    pub(crate) fn new(program: &'a Program, stores: &'a [Backend], kills_max: u32) -> Self {
        Self {
            program,
            stores,
            kills_max,
            all: Vec::new(),
        }
    }

    /// One round; how many kills it was.
    pub(crate) async fn torture(&mut self, action: Action, random: &mut Random) -> Result<u32> {
        let store = *pick(self.stores, random)?;
        if !self.all.iter().any(|(begun, _)| *begun == store) {
            let mut world = World::start(self.program, self.stores, store, random).await?;
            world.kills_max = self.kills_max;
            self.all.push((store, world));
        }
        let found = self.all.iter_mut().find(|(begun, _)| *begun == store);
        let (_, world) = found.context("it was begun")?;
        let owner = world.owner.0;
        let kills = match action {
            Action::LiveBackup => world.back_up(random).await,
            Action::Copy => world.copy(random).await,
            _ => world.hand_over(random).await,
        };
        kills.with_context(|| {
            let log = world.served.as_deref().map(Served::log);
            format!(
                "from {owner}, whose broker said last:\n{}",
                log.unwrap_or_default()
            )
        })
    }

    /// Looks at what is there after all rounds.
    pub(crate) async fn judge(self) -> Result<()> {
        for (begun, world) in self.all {
            let judged = world.judge().await;
            judged.with_context(|| format!("in the world that began on {begun}"))?;
        }
        Ok(())
    }
}

impl<'a> World<'a> {
    async fn start(
        program: &'a Program,
        stores: &'a [Backend],
        store: Backend,
        random: &mut Random,
    ) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let ports = Ports::free()?;
        let owner = (store, folder.path().join("first"));
        let Start::Serves(served) = start(program, &owner, &ports).await? else {
            bail!("an empty folder is not served");
        };
        let clients = Clients::start(&ports.clients, random.next_u64()).await?;
        Ok(Self {
            program,
            stores,
            folder,
            ports,
            owner,
            served: Some(served),
            clients,
            kills_max: 0,
            folders: 0,
            took: TOOK,
        })
    }

    async fn judge(mut self) -> Result<()> {
        self.kill_source().await?;
        let now = Instant::now();
        let received = drain(&self.owner, None).await?;
        let fates = self.clients.fates.lock();
        fates.judge(&received, now, now)?;
        let (sent, acked) = fates.counts();
        println!(
            "{sent} messages were sent and {acked} acknowledged; {} came at the end",
            received.len()
        );
        Ok(())
    }

    /// A folder that is not there, for a store.
    pub(crate) fn place(&mut self, random: &mut Random) -> Result<Place> {
        self.folders += 1;
        let name = format!("folder{}", self.folders);
        Ok((*pick(self.stores, random)?, self.path(&name)))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    async fn back_up(&mut self, random: &mut Random) -> Result<u32> {
        let to = self.path("backup");
        let ask = Ask::Backup {
            from: self.ports.url().into(),
            to: to.clone(),
        };
        let open = self.open_handle().await;
        // What is gone on with is the snapshot of an earlier try.
        let began = Instant::now();
        let (kills, _) = self.torture(&ask, random).await?;
        let ended = Instant::now();
        let place = self.place(random)?;
        let restore = Ask::Restore {
            from: to.clone(),
            to: place.clone(),
        };
        self.program.run(&restore).await?;
        let (made, restored) = (ask.made().await?, restore.made().await?);
        ensure!(made == restored, "what is restored has other rows");
        self.judge_copy(&place, open, (began, ended)).await?;
        fs::remove_file(self.path("backup.toml"))?;
        fs::remove_file(to)?;
        Ok(kills)
    }

    async fn copy(&mut self, random: &mut Random) -> Result<u32> {
        let place = self.place(random)?;
        let ask = Ask::Bootstrap {
            from: self.ports.url(),
            to: place.clone(),
            flags: &[],
        };
        let open = self.open_handle().await;
        let (kills, began) = self.torture(&ask, random).await?;
        let taken = (began, Instant::now());
        self.judge_copy(&place, open, taken).await?;
        Ok(kills)
    }

    /// The handle of a message that is out, so that every copy from now on has the message.
    async fn open_handle(&self) -> String {
        loop {
            let open = self.clients.fates.lock().open.clone();
            if let Some((_, handle, _)) = open {
                return handle;
            }
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Holds what a copy gives out against what clients of its source were told between
    /// these moments and before.
    async fn judge_copy(
        &mut self,
        at: &Place,
        open: String,
        (began, ended): (Instant, Instant),
    ) -> Result<()> {
        let received = drain(at, Some(open)).await?;
        let judged = self.clients.fates.lock().judge(&received, began, ended);
        judged.context("what a copy gave out")?;
        // Of sled, say, a drained folder must open, too.
        digest(at.0, &at.1).await?;
        Ok(fs::remove_dir_all(&at.1)?)
    }

    /// Runs a command that leaves the source as it is, with kills, until it is done; how
    /// many, and when the run began that came to its end.
    async fn torture(&mut self, ask: &Ask, random: &mut Random) -> Result<(u32, Instant)> {
        let mut kills = 0;
        loop {
            let began = Instant::now();
            let running = self.program.begin(ask)?;
            let (running, victim) = match kills < self.kills_max {
                true => self.kill(running, random).await?,
                false => (Some(running), None),
            };
            kills += u32::from(victim.is_some());
            if victim == Some(Victim::Source) {
                self.restart().await?;
            }
            let Some(running) = running else {
                continue;
            };
            let end = running.end().await?;
            match (end.is_success, victim) {
                (true, _) => return Ok((kills, began)),
                (false, Some(_)) => {}
                (false, None) => bail!("{ask:?}, after {kills} kills: {}", end.said),
            }
        }
    }

    /// Lets a command run and kills it or its source at a moment, unless it was done before;
    /// the command, unless it was killed, and who was.
    pub(crate) async fn kill(
        &mut self,
        mut running: Running,
        random: &mut Random,
    ) -> Result<(Option<Running>, Option<Victim>)> {
        let served = self.served.as_ref().context("the source serves")?;
        let behind = served.said();
        let victim = *pick(&[Victim::Command, Victim::Source], random)?;
        let at = match random.chance(1, 2) {
            true => Moment::After(moment(self.took, random)?),
            false => {
                let short = Duration::from_micros(random.below(20_000));
                Moment::Says(pick(&STEPS, random)?, short)
            }
        };
        let begun = Instant::now();
        let until = async {
            match at {
                Moment::After(after) => sleep(after).await,
                Moment::Says(words, after) => {
                    served.says(words, behind).await;
                    sleep(after).await;
                }
            }
        };
        let has_ended = tokio::select! {
            biased;
            ended = running.until_end() => ended.map(|()| true)?,
            () = until => false,
        };
        if has_ended {
            self.took = begun.elapsed();
            return Ok((Some(running), None));
        }
        match victim {
            Victim::Command => {
                running.kill().await?;
                Ok((None, Some(victim)))
            }
            Victim::Source => {
                self.kill_source().await?;
                Ok((Some(running), Some(victim)))
            }
        }
    }

    pub(crate) async fn kill_source(&mut self) -> Result<()> {
        self.clients.fates.lock().life += 1;
        match self.served.take() {
            Some(served) => served.kill().await,
            None => Ok(()),
        }
    }

    /// Starts a source that nobody took anything from.
    async fn restart(&mut self) -> Result<()> {
        match start(self.program, &self.owner, &self.ports).await? {
            Start::Serves(served) => self.served = Some(served),
            Start::Refused(said) => bail!("a source that was copied is not served: {said}"),
        }
        Ok(())
    }
}
