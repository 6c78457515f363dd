//! A broker as its own process, on a folder and a port of its own.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use xshell::{Shell, TempDir};

use super::process::{Ended, last_line, poll, start, wait_limited};

const START_MAX: Duration = Duration::from_secs(60);
const STOP_MAX: Duration = Duration::from_secs(20);
const CONNECT_MAX: Duration = Duration::from_secs(1);
const STORED_METRIC: &str = "pop_leases_stored_total";

/// A broker that accepts connections. Dropping it kills the process and removes its folder.
pub(super) struct Broker {
    child: Child,
    address: SocketAddr,
    admin: SocketAddr,
    _data: TempDir,
    _config: TempDir,
}

impl Broker {
    /// Starts `binary` on an empty folder of the store `backend`, with `config` in its
    /// configuration file, and waits until it accepts.
    pub(super) fn start(
        shell: &Shell,
        binary: &Path,
        backend: &str,
        config: &str,
        log: &Path,
    ) -> Result<Self> {
        let (data, folder) = (shell.create_temp_dir()?, shell.create_temp_dir()?);
        let file = folder.path().join("broker.toml");
        shell.write_file(&file, config)?;
        let (address, admin) = free_addresses()?;
        let mut command = Command::new(binary);
        command
            .arg("serve")
            .args([OsStr::new("--store"), OsStr::new(backend)])
            .args([OsStr::new("--data"), data.path().as_os_str()])
            .args([OsStr::new("--config"), file.as_os_str()])
            .args([
                "--listen",
                &address.to_string(),
                "--admin",
                &admin.to_string(),
            ]);
        let child = start(&mut command, log, log)?;
        let mut broker = Self {
            child,
            address,
            admin,
            _data: data,
            _config: folder,
        };
        broker.wait_until_accepting(log)?;
        Ok(broker)
    }

    /// Where clients connect.
    pub(super) fn endpoint(&self) -> String {
        self.address.to_string()
    }

    /// How many deliveries went from memory into the store.
    pub(super) fn stored_leases(&self) -> Result<u64> {
        let mut stream = TcpStream::connect_timeout(&self.admin, CONNECT_MAX)?;
        stream.set_read_timeout(Some(STOP_MAX))?;
        write!(
            stream,
            "GET /metrics HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
            self.admin
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let value = answer
            .lines()
            .find_map(|line| line.strip_prefix(STORED_METRIC)?.strip_prefix(' '))
            .with_context(|| format!("the broker's /metrics have no {STORED_METRIC}"))?;
        Ok(value.trim().parse()?)
    }

    /// Asks the broker to end, as an operator does, and checks that it does so cleanly.
    pub(super) fn stop(mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("the broker was gone before it was stopped: {status}");
        }
        let pid = self.child.id();
        // The shell's own `kill`: slim systems have no other.
        let sent = Command::new("sh")
            .args(["-c", &format!("kill -TERM {pid}")])
            .status()?;
        ensure!(sent.success(), "kill -TERM {pid}: {sent}");
        match wait_limited(&mut self.child, STOP_MAX)? {
            Ended::With(status) if status.success() => Ok(()),
            Ended::With(status) => bail!("after SIGTERM the broker ended with {status}"),
            Ended::Killed => bail!("the broker was still there {STOP_MAX:?} after SIGTERM"),
        }
    }

    fn wait_until_accepting(&mut self, log: &Path) -> Result<()> {
        let (child, address) = (&mut self.child, self.address);
        let accepts = poll(START_MAX, || match child.try_wait()? {
            Some(status) => bail!("the broker ended at once, {status}: {}", last_line(log)),
            None => Ok(TcpStream::connect_timeout(&address, CONNECT_MAX).is_ok()),
        })?;
        ensure!(
            accepts,
            "the broker does not accept connections after {START_MAX:?}"
        );
        Ok(())
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // After a clean stop there is nothing to kill, and on the way out of a failure there is
        // nobody to tell.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Two free addresses; both listeners are open at once, so that they differ.
fn free_addresses() -> Result<(SocketAddr, SocketAddr)> {
    let (first, second) = (
        TcpListener::bind("127.0.0.1:0")?,
        TcpListener::bind("127.0.0.1:0")?,
    );
    Ok((first.local_addr()?, second.local_addr()?))
}
