//! The program under test, as an operator starts it.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use kv_restore::{Digest, Limiter};
use pop_broker::{
    stores::Backend,
    transfer::{file::BackupFile, place},
};
use tokio::{
    process::{Child, Command},
    time::timeout,
};

/// No command takes so long.
const END_WITHIN: Duration = Duration::from_secs(90);

/// The program.
#[derive(Debug)]
pub(crate) struct Program(pub(crate) PathBuf);

/// A folder and the store that is in it.
pub(crate) type Place = (Backend, PathBuf);

/// What an operator asks for.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    Backup {
        /// A folder, or the data port of a broker.
        from: OsString,
        to: PathBuf,
    },
    Restore {
        from: PathBuf,
        to: Place,
    },
    Migrate {
        from: PathBuf,
        to: Place,
    },
    Bootstrap {
        from: String,
        to: Place,
        flags: &'static [&'static str],
    },
    /// Without a receipt the source is said to be gone.
    Finish {
        to: Place,
        receipt: Option<String>,
    },
    Undo {
        at: Place,
    },
}

impl Ask {
    fn words(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = match self {
            Self::Backup { .. } => vec!["backup".into()],
            Self::Restore { .. } => vec!["restore".into()],
            Self::Migrate { .. } => vec!["migrate".into()],
            Self::Bootstrap { .. } => vec!["bootstrap".into()],
            Self::Finish { .. } => vec!["handover".into(), "finish".into()],
            Self::Undo { .. } => vec!["handover".into(), "undo".into()],
        };
        let mut say = |flag: &str, value: OsString| words.extend([flag.into(), value]);
        match self {
            Self::Backup { from, to } => {
                say("--from", from.clone());
                say("--to", to.into());
            }
            Self::Restore { from, to } | Self::Migrate { from, to } => {
                say("--from", from.into());
                say("--to", at(to));
            }
            Self::Bootstrap { from, to, flags } => {
                say("--from", from.into());
                say("--to", at(to));
                words.extend(flags.iter().map(OsString::from));
            }
            Self::Finish { to, receipt } => {
                say("--to", at(to));
                match receipt {
                    Some(receipt) => say("--receipt", receipt.into()),
                    None => words.extend(["--source-is-gone".into(), "--yes".into()]),
                }
            }
            Self::Undo { at: place } => {
                say("--at", at(place));
                words.push("--yes".into());
            }
        }
        words
    }

    /// The digest of what it made, read by this program.
    pub(crate) async fn made(&self) -> Result<Digest> {
        match self {
            Self::Backup { to, .. } => {
                let file = BackupFile::open(to)?;
                Ok(file.verify(&Limiter::none(), |_| {}).await?)
            }
            Self::Restore { to, .. }
            | Self::Migrate { to, .. }
            | Self::Bootstrap { to, .. }
            | Self::Finish { to, .. }
            | Self::Undo { at: to } => digest(to.0, &to.1).await,
        }
    }
}

fn at((store, folder): &Place) -> OsString {
    let mut text = OsString::from(format!("{store}:"));
    text.push(folder);
    text
}

/// The digest of a broker's rows in a folder.
pub(crate) async fn digest(store: Backend, folder: &Path) -> Result<Digest> {
    let store = store.opener(folder)?.open().await?;
    let digest = place::totals(store.as_ref(), &Limiter::none(), |_| {}).await?;
    store.close().await?;
    Ok(digest)
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) is_success: bool,
    /// Everything that it wrote on stderr.
    pub(crate) said: String,
}

/// A command that was started. Dropped, it is killed.
#[derive(Debug)]
pub(crate) struct Running(Child);

impl Running {
    /// Waits for its end.
    pub(crate) async fn end(self) -> Result<End> {
        let output = timeout(END_WITHIN, self.0.wait_with_output()).await;
        let output = output.with_context(|| format!("it did not end within {END_WITHIN:?}"))??;
        Ok(End {
            is_success: output.status.success(),
            said: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    pub(crate) fn has_ended(&mut self) -> Result<bool> {
        Ok(self.0.try_wait()?.is_some())
    }

    /// Waits until it has ended, without taking the end.
    pub(crate) async fn until_end(&mut self) -> Result<()> {
        self.0.wait().await?;
        Ok(())
    }

    pub(crate) async fn kill(mut self) -> Result<()> {
        self.0.kill().await.context("SIGKILL")
    }
}

impl Program {
    pub(crate) fn new(binary: PathBuf) -> Self {
        Self(binary)
    }

    /// Starts a command.
    pub(crate) fn begin(&self, ask: &Ask) -> Result<Running> {
        let mut command = Command::new(&self.0);
        command.args(ask.words()).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Ok(Running(command.stderr(Stdio::piped()).spawn()?))
    }

    /// Runs a command to its end.
    pub(crate) async fn run(&self, ask: &Ask) -> Result<()> {
        let end = self.begin(ask)?.end().await?;
        ensure!(end.is_success, "{ask:?}: {}", end.said);
        Ok(())
    }

    /// Starts a command and kills it after `after`; whether it still ran.
    pub(crate) async fn kill(&self, ask: &Ask, after: Duration) -> Result<bool> {
        let mut running = self.begin(ask)?;
        tokio::time::sleep(after).await;
        if !running.has_ended()? {
            running.kill().await?;
            return Ok(true);
        }
        let end = running.end().await?;
        ensure!(end.is_success, "{ask:?}: {}", end.said);
        Ok(false)
    }
}
