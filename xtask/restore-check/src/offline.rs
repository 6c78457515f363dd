//! Commands on folders that no broker serves, killed again and again.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use kv_restore::Digest;
use pop_broker::stores::Backend;
use pop_store::{
    Durability, WriteBatch,
    table::{BODY, LEASE},
    testkit::Random,
};
use tokio::time::Instant;

use crate::{
    action::Action,
    fill::fill,
    program::{Ask, Program, digest},
};

/// What is moved beside what a broker left, so that a command takes a while.
const BULK_ROWS: u32 = 24_000;
const BULK_BYTES: usize = 1_000;

/// The stores that were filled, and their backups.
pub(crate) struct Sources<'a> {
    program: &'a Program,
    /// In one round at most.
    kills_max: u32,
    folder: tempfile::TempDir,
    all: Vec<(Backend, PathBuf, Digest)>,
}

impl<'a> Sources<'a> {
    pub(crate) async fn fill(
        program: &'a Program,
        stores: &[Backend],
        kills_max: u32,
    ) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut all = Vec::new();
        for store in stores {
            let data = folder.path().join(store.name());
            fill(*store, &data).await?;
            bulk(*store, &data).await?;
            program
                .run(&Ask::Backup {
                    from: data.clone().into(),
                    to: folder.path().join(format!("{store}.backup")),
                })
                .await?;
            let digest = digest(*store, &data).await?;
            all.push((*store, data, digest));
        }
        Ok(Self {
            program,
            kills_max,
            folder,
            all,
        })
    }

    /// Nothing that was made of a source may have changed it.
    pub(crate) async fn are_unchanged(&self) -> Result<()> {
        for (store, folder, expected) in &self.all {
            let found = digest(*store, folder).await?;
            ensure!(found == *expected, "the source {store} has changed");
        }
        Ok(())
    }

    /// One round; how many kills it was.
    pub(crate) async fn torture(
        &self,
        action: Action,
        stores: &[Backend],
        random: &mut Random,
    ) -> Result<u32> {
        let (ask, expected) = self.ask(action, stores, random)?;
        let made = async {
            let begun = Instant::now();
            self.program.run(&ask).await?;
            let took = begun.elapsed();
            self.tidy(&ask)?;
            if action == Action::FailedRestore {
                self.spoil(&ask, took, random).await?;
            }
            let kills = self.kill(&ask, took, random).await?;
            ensure!(ask.made().await? == expected, "it has other rows");
            if action == Action::FailedRestore {
                let again = ask.made().await?;
                ensure!(again == expected, "it has other rows at the second open");
                fs::remove_file(self.path("spoilt"))?;
                return Ok(kills + 1);
            }
            Ok(kills)
        };
        let kills = made.await.with_context(|| format!("{ask:?}"))?;
        self.tidy(&ask)?;
        Ok(kills)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn ask(
        &self,
        action: Action,
        stores: &[Backend],
        random: &mut Random,
    ) -> Result<(Ask, Digest)> {
        let (store, data, expected) = pick(&self.all, random)?;
        let to = (*pick(stores, random)?, self.path("copy"));
        let backup = self.path(&format!("{store}.backup"));
        let ask = match action {
            Action::Backup => Ask::Backup {
                from: data.clone().into(),
                to: self.path("copy"),
            },
            Action::Migrate => Ask::Migrate {
                from: data.clone(),
                to,
            },
            Action::FailedRestore => {
                let from = self.path("spoilt");
                fs::copy(backup, &from)?;
                Ask::Restore { from, to }
            }
            _ => Ask::Restore { from: backup, to },
        };
        Ok((ask, *expected))
    }

    /// Cuts the backup while it is restored, and then puts back what was cut off. The
    /// folder has nothing or all of it.
    async fn spoil(&self, ask: &Ask, took: Duration, random: &mut Random) -> Result<()> {
        let (Ask::Restore { from, to }, whole) = (ask, fs::read(self.path("spoilt"))?) else {
            return Ok(());
        };
        let length = u64::try_from(whole.len())?;
        let running = self.program.begin(ask)?;
        tokio::time::sleep(moment(took, random)?).await;
        fs::File::options()
            .write(true)
            .open(from)?
            .set_len(random.below(length))?;
        let end = running.end().await?;
        fs::write(from, whole)?;
        if !end.is_success {
            // A folder is made before it is filled.
            let left = to.1.exists().then(|| ask.made());
            let rows = match left {
                Some(made) => made.await?.rows(),
                None => 0,
            };
            ensure!(rows == 0, "a restore that failed left {rows} rows");
        }
        Ok(())
    }

    /// Runs a command with kills until it is done; how many.
    async fn kill(&self, ask: &Ask, took: Duration, random: &mut Random) -> Result<u32> {
        let mut kills = 0;
        while kills < self.kills_max {
            if !self.program.kill(ask, moment(took, random)?).await? {
                return Ok(kills);
            }
            kills += 1;
        }
        self.program.run(ask).await?;
        Ok(kills)
    }

    /// Removes what a command made, and looks that this is all it left.
    fn tidy(&self, ask: &Ask) -> Result<()> {
        let copy = self.path("copy");
        match ask {
            Ask::Backup { .. } => {
                fs::remove_file(&copy)?;
                fs::remove_file(self.path("copy.toml"))?;
            }
            _ => fs::remove_dir_all(&copy)?,
        }
        let mut left = Vec::new();
        for entry in fs::read_dir(self.folder.path())? {
            left.push(entry?.file_name());
        }
        left.retain(|it| it != "spoilt");
        ensure!(
            left.len() == 3 * self.all.len(),
            "{ask:?}: something is left over: {left:?}"
        );
        Ok(())
    }
}

/// A moment somewhere in the time that a command takes, or a little after that.
pub(crate) fn moment(took: Duration, random: &mut Random) -> Result<Duration> {
    let after = took.mul_f64(f64::from(u32::try_from(random.below(1_000))?) / 900.0);
    Ok(after.max(Duration::from_millis(1)))
}

pub(crate) fn pick<'a, T>(all: &'a [T], random: &mut Random) -> Result<&'a T> {
    all.get(random.index(all.len())).context("there are some")
}

async fn bulk(store: Backend, folder: &Path) -> Result<()> {
    let store = store.opener(folder)?.open().await?;
    for chunk in 0..BULK_ROWS / 500 {
        let mut batch = WriteBatch::new();
        for row in chunk * 500..(chunk + 1) * 500 {
            let key = bytes::Bytes::copy_from_slice(&[&[0xFE], &row.to_be_bytes()[..]].concat());
            let keyspace = if row % 5 == 0 { LEASE } else { BODY };
            batch.put(keyspace, key, vec![7; BULK_BYTES].into());
        }
        store.write(batch, Durability::Buffered).await?;
    }
    store.write(WriteBatch::new(), Durability::Synced).await?;
    Ok(store.close().await?)
}
