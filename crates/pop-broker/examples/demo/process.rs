//! A broker as its own process, as an operator runs it.

use std::{
    fs::File,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail};

/// A running broker. Dropped, it is killed.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
    ready: String,
}

impl Process {
    /// Starts `binary serve` with `args` and waits until it says that it is ready. What it
    /// logs goes to the file `log`.
    ///
    /// # Errors
    ///
    /// If it can't be started, or ends before it is ready: then with its last line.
    pub(crate) fn start(binary: &Path, args: &[&str], log: &Path) -> Result<Self> {
        let mut child = Command::new(binary)
            .arg("serve")
            .args(args)
            .stdout(Stdio::piped())
            .stderr(File::create(log)?)
            .spawn()
            .with_context(|| format!("{} can't be started", binary.display()))?;
        let stdout = child.stdout.take().context("stdout was asked for")?;
        let mut process = Self {
            child,
            log: log.to_owned(),
            ready: String::new(),
        };
        let first = BufReader::new(stdout).lines().next();
        match first.transpose()? {
            Some(line) if line.starts_with("ready ") => process.ready = line,
            _ => {
                let status = process.child.wait()?;
                bail!(
                    "the broker did not start, {status}: {}",
                    process.last_line()
                );
            }
        }
        Ok(process)
    }

    /// The line that it printed when it was ready.
    pub(crate) fn ready(&self) -> &str {
        &self.ready
    }

    /// A field of that line, such as `listen`.
    ///
    /// # Errors
    ///
    /// If the line doesn't have it.
    pub(crate) fn field(&self, name: &str) -> Result<&str> {
        let mut fields = self.ready.split(' ').filter_map(|it| it.split_once('='));
        let found = fields.find_map(|(found, value)| (found == name).then_some(value));
        found.with_context(|| format!("no {name} in {:?}", self.ready))
    }

    /// Sends it a signal, such as `TERM`.
    ///
    /// # Errors
    ///
    /// If it is gone.
    pub(crate) fn signal(&self, name: &str) -> Result<()> {
        // The shell's own `kill`: slim systems have no other.
        let command = format!("kill -{name} {}", self.child.id());
        let status = Command::new("sh").args(["-c", &command]).status()?;
        anyhow::ensure!(status.success(), "{command}: {status}");
        Ok(())
    }

    /// Waits for its end.
    ///
    /// # Errors
    ///
    /// If it is still there after `limit`.
    pub(crate) async fn end(&mut self, limit: Duration) -> Result<ExitStatus> {
        let ended = async {
            loop {
                if let Some(status) = self.child.try_wait()? {
                    return Ok(status);
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let ended = tokio::time::timeout(limit, ended).await;
        ended.with_context(|| format!("the broker is still there after {limit:?}"))?
    }

    /// What it logged last.
    pub(crate) fn last_line(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        log.lines().last().unwrap_or("it logged nothing").into()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // After a clean end there is nothing to kill, and on the way out of a failure there
        // is nobody to tell.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
