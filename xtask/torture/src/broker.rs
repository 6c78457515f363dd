//! The broker's process: started, waited for, killed.

use std::{net::TcpListener, path::PathBuf, process::Stdio, time::Duration};

use anyhow::{Context, Result, bail};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::{Instant, timeout},
};
use tonic::transport::{Channel, Endpoint};

/// A broker must be back within this, whatever the kill left behind (P5).
const READY_WITHIN: Duration = Duration::from_secs(30);

/// How to start a broker, each time on the same folder.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) binary: PathBuf,
    pub(crate) store: String,
    pub(crate) data: PathBuf,
    /// Its configuration file.
    pub(crate) config: PathBuf,
}

/// A broker that runs. Dropped, it is killed.
#[derive(Debug)]
pub(crate) struct Broker {
    child: Child,
    /// Where it serves.
    pub(crate) channel: Channel,
    /// How long it took to be ready.
    pub(crate) ready_after: Duration,
}

impl Program {
    /// Starts a broker and waits until it says that it is ready.
    pub(crate) async fn start(&self) -> Result<Broker> {
        let started = Instant::now();
        let (listen, admin) = (free_address()?, free_address()?);
        let mut child = self.spawn(&listen, &admin)?;
        let stdout = child.stdout.take().context("the broker has no stdout")?;
        let mut lines = BufReader::new(stdout).lines();
        match timeout(READY_WITHIN, until_ready(&mut lines)).await {
            Ok(ready) => ready?,
            Err(_) => bail!("P5: the broker was not ready within {READY_WITHIN:?}"),
        }
        let ready_after = started.elapsed();
        // Goes on reading: a full pipe would stop the broker.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let channel = Endpoint::from_shared(format!("http://{listen}"))?
            .timeout(Duration::from_secs(20))
            .connect_timeout(Duration::from_secs(5))
            .connect_lazy();
        Ok(Broker {
            child,
            channel,
            ready_after,
        })
    }

    fn spawn(&self, listen: &str, admin: &str) -> Result<Child> {
        Command::new(&self.binary)
            .arg("serve")
            .args(["--store", &self.store, "--listen", listen, "--admin", admin])
            .arg("--data")
            .arg(&self.data)
            .arg("--config")
            .arg(&self.config)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("{} can't be started", self.binary.display()))
    }
}

impl Broker {
    /// Kills it, without a chance to write anything, and waits until it is gone.
    pub(crate) async fn kill(mut self) -> Result<()> {
        self.child
            .kill()
            .await
            .context("the broker can't be killed")
    }

    /// Fails if it ended by itself.
    pub(crate) fn check_alive(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("the broker ended by itself: {status}"),
        }
    }
}

async fn until_ready(lines: &mut Lines<BufReader<ChildStdout>>) -> Result<()> {
    while let Some(line) = lines.next_line().await? {
        if line.starts_with("ready") {
            return Ok(());
        }
    }
    bail!("the broker ended before it was ready");
}

/// An address that nobody listens on. Another process might take it before the broker
/// does; then the broker says so and the run fails without a verdict.
fn free_address() -> Result<String> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}
