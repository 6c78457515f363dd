//! The commands are killed at random moments, and started again until they are done.

use std::{
    collections::BTreeMap,
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
    fill::fill,
    program::{Ask, Program, digest},
};

/// What is moved beside what a broker left, so that a command takes a while.
const BULK_ROWS: u32 = 24_000;
const BULK_BYTES: usize = 1_000;

/// The stores that were filled, and their backups.
struct Sources {
    folder: tempfile::TempDir,
    all: Vec<(Backend, PathBuf, Digest)>,
}

/// Kills commands `kills` times.
///
/// # Errors
///
/// If a command that was killed does not come to its end when it is started again, or what
/// it made is not what it must be.
pub(crate) async fn check(
    program: &Program,
    stores: &[Backend],
    kills: u32,
    seed: u64,
) -> Result<()> {
    let sources = Sources::fill(program, stores).await?;
    let mut random = Random::new(seed);
    let mut killed: BTreeMap<&str, u32> = BTreeMap::new();
    let (mut count, mut round) = (0, 0);
    while count < kills {
        let name = pick(&["backup", "restore", "migrate"], &mut random)?;
        let (ask, expected) = sources.ask(name, stores, &mut random)?;
        let more = sources.torture(program, &ask, &mut random).await;
        let more = more.with_context(|| format!("{ask:?}, round {round}"))?;
        ensure!(ask.made().await? == expected, "{ask:?}: it has other rows");
        sources.tidy(&ask)?;
        count += more;
        *killed.entry(name).or_default() += more;
        round += 1;
    }
    for (store, folder, expected) in &sources.all {
        let found = digest(*store, folder).await?;
        ensure!(found == *expected, "the source {store} has changed");
    }
    println!("{count} kills in {round} commands, all came to their end: {killed:?}");
    Ok(())
}

impl Sources {
    async fn fill(program: &Program, stores: &[Backend]) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut all = Vec::new();
        for store in stores {
            let data = folder.path().join(store.name());
            fill(*store, &data).await?;
            bulk(*store, &data).await?;
            program
                .run(&Ask::Backup {
                    from: data.clone(),
                    to: folder.path().join(format!("{store}.backup")),
                })
                .await?;
            let digest = digest(*store, &data).await?;
            all.push((*store, data, digest));
        }
        Ok(Self { folder, all })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn ask(&self, name: &str, stores: &[Backend], random: &mut Random) -> Result<(Ask, Digest)> {
        let (store, data, expected) = pick(&self.all, random)?;
        let to = (*pick(stores, random)?, self.path("copy"));
        let ask = match name {
            "backup" => Ask::Backup {
                from: data.clone(),
                to: self.path("copy"),
            },
            "restore" => Ask::Restore {
                from: self.path(&format!("{store}.backup")),
                to,
            },
            _ => Ask::Migrate {
                from: data.clone(),
                to,
            },
        };
        Ok((ask, *expected))
    }

    /// Runs a command once, to see how long it takes, and then again with kills; how many.
    async fn torture(&self, program: &Program, ask: &Ask, random: &mut Random) -> Result<u32> {
        let begun = Instant::now();
        program.run(ask).await?;
        let took = begun.elapsed();
        self.tidy(ask)?;
        let mut kills = 0;
        while kills < 4 {
            let after = took.mul_f64(f64::from(u32::try_from(random.below(1_000))?) / 900.0);
            if !program
                .kill(ask, after.max(Duration::from_millis(1)))
                .await?
            {
                return Ok(kills);
            }
            kills += 1;
        }
        program.run(ask).await?;
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
            Ask::Restore { .. } | Ask::Migrate { .. } => fs::remove_dir_all(&copy)?,
        }
        let left = fs::read_dir(self.folder.path())?.count();
        ensure!(
            left == 3 * self.all.len(),
            "{ask:?}: something is left over"
        );
        Ok(())
    }
}

fn pick<'a, T>(all: &'a [T], random: &mut Random) -> Result<&'a T> {
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
