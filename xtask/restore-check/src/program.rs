//! The program under test, as an operator starts it.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use kv_restore::Digest;
use pop_broker::{
    stores::Backend,
    transfer::{file::BackupFile, place},
};
use tokio::process::Command;

/// The program.
#[derive(Debug)]
pub(crate) struct Program(PathBuf);

/// What an operator asks for.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    Backup {
        from: PathBuf,
        to: PathBuf,
    },
    Restore {
        from: PathBuf,
        to: (Backend, PathBuf),
    },
    Migrate {
        from: PathBuf,
        to: (Backend, PathBuf),
    },
}

impl Ask {
    fn words(&self) -> Vec<OsString> {
        let at = |(store, folder): &(Backend, PathBuf)| {
            let mut text = OsString::from(format!("{store}:"));
            text.push(folder);
            text
        };
        let (name, from, to) = match self {
            Self::Backup { from, to } => ("backup", from, to.into()),
            Self::Restore { from, to } => ("restore", from, at(to)),
            Self::Migrate { from, to } => ("migrate", from, at(to)),
        };
        ["--from".into(), from.into(), "--to".into(), to]
            .into_iter()
            .fold(vec![name.into()], |mut words, word| {
                words.push(word);
                words
            })
    }

    /// The digest of what it made, read by this program.
    pub(crate) async fn made(&self) -> Result<Digest> {
        match self {
            Self::Backup { to, .. } => Ok(BackupFile::open(to)?.verify(|_| {})?),
            Self::Restore { to, .. } | Self::Migrate { to, .. } => digest(to.0, &to.1).await,
        }
    }
}

/// The digest of a broker's rows in a folder.
pub(crate) async fn digest(store: Backend, folder: &Path) -> Result<Digest> {
    let store = store.opener(folder)?.open().await?;
    let digest = place::totals(store.as_ref()).await?;
    store.close().await?;
    Ok(digest)
}

impl Program {
    pub(crate) fn new(binary: PathBuf) -> Self {
        Self(binary)
    }

    /// Runs a command to its end.
    pub(crate) async fn run(&self, ask: &Ask) -> Result<()> {
        let output = Command::new(&self.0).args(ask.words()).output().await?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "{ask:?}: {said}");
        Ok(())
    }

    /// Starts a command and kills it after `after`; whether it still ran.
    pub(crate) async fn kill(&self, ask: &Ask, after: Duration) -> Result<bool> {
        let mut command = Command::new(&self.0);
        command.args(ask.words()).stdout(Stdio::null());
        let mut child = command.stderr(Stdio::piped()).spawn()?;
        tokio::time::sleep(after).await;
        let ended = child.try_wait()?;
        if ended.is_none() {
            child.kill().await.context("SIGKILL")?;
            return Ok(true);
        }
        let output = child.wait_with_output().await?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "{ask:?}: {said}");
        Ok(false)
    }
}
