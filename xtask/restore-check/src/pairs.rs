//! Every store into every other: by a backup and by a migration.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use pop_broker::stores::Backend;

use crate::{
    drain::drain,
    fill::{PAIRS, fill},
    ledger::{Ledger, Received},
    program::{Ask, Program, digest},
};

/// Moves each store into each.
///
/// # Errors
///
/// If a command fails, or a copy is not what it must be.
pub(crate) async fn check(program: &Program, stores: &[Backend]) -> Result<()> {
    for from in stores {
        let folder = tempfile::tempdir()?;
        let moved = Moved {
            program,
            stores,
            from: *from,
            folder: folder.path(),
        };
        let said = moved
            .check()
            .await
            .with_context(|| format!("from {from}"))?;
        println!("{said}");
    }
    Ok(())
}

struct Moved<'a> {
    program: &'a Program,
    stores: &'a [Backend],
    from: Backend,
    folder: &'a Path,
}

impl Moved<'_> {
    async fn check(&self) -> Result<String> {
        let data = self.folder.join("data");
        let ledger = fill(self.from, &data).await.context("filling it")?;
        let expected = digest(self.from, &data).await?;
        let backup = self.folder.join("backup");
        let ask = Ask::Backup {
            from: data.clone().into(),
            to: backup.clone(),
        };
        self.program.run(&ask).await?;
        ensure!(ask.made().await? == expected, "the backup has other rows");
        let mut copies = Vec::new();
        for store in self.stores {
            let restored = (*store, self.folder.join(format!("restored-{store}")));
            let migrated = (*store, self.folder.join(format!("migrated-{store}")));
            let asks = [
                Ask::Restore {
                    from: backup.clone(),
                    to: restored.clone(),
                },
                Ask::Migrate {
                    from: data.clone(),
                    to: migrated.clone(),
                },
            ];
            for (ask, copy) in asks.into_iter().zip([restored, migrated]) {
                self.program.run(&ask).await?;
                ensure!(ask.made().await? == expected, "{ask:?}: it has other rows");
                copies.push(copy);
            }
        }
        // The original last: what was made of it may not have changed it.
        ensure!(
            digest(self.from, &data).await? == expected,
            "the source has changed"
        );
        let first = drain(self.from, &data, &ledger, false).await?;
        ledger.judge(&PAIRS, &first).context("the original")?;
        // At once: they mostly wait for their clocks and disks.
        let all = copies.iter().map(|(store, folder)| async {
            let received = received(*store, folder, &ledger).await;
            let received = received.with_context(|| folder.display().to_string())?;
            let same = received == first;
            ensure!(same, "{}: it gave out something else", folder.display());
            Ok(())
        });
        try_join_all(all).await?;
        Ok(format!(
            "{}: {expected}; {} copies, each gave out {} messages",
            self.from,
            copies.len(),
            first.first.len()
        ))
    }
}

async fn received(store: Backend, folder: &Path, ledger: &Ledger) -> Result<Received> {
    let received = drain(store, folder, ledger, true).await?;
    ledger.judge(&PAIRS, &received)?;
    Ok(received)
}
