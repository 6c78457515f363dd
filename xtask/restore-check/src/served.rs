//! A broker's process that serves a folder and gives its data out.

use std::{net::TcpListener, process::Stdio, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    process::{Child, Command},
    sync::watch,
    time::{Instant, sleep, timeout},
};

use crate::program::{Place, Program};

/// A broker is back within this, whatever a kill left behind.
const WITHIN: Duration = Duration::from_secs(60);
/// How fast data are given out, so that there is a while to kill in.
const RATE: &str = "24M";
/// Of a folder that may not be served.
const NOT_OWNER: i32 = 10;

/// Where a broker listens: the same from life to life, so that clients and commands find
/// the one that lives.
#[derive(Clone, Debug)]
pub(crate) struct Ports {
    pub(crate) clients: String,
    admin: String,
    data: String,
}

impl Ports {
    /// Some that nobody listens on.
    pub(crate) fn free() -> Result<Self> {
        let bind = || TcpListener::bind("127.0.0.1:0");
        let all = [bind()?, bind()?, bind()?];
        let address = |at: &TcpListener| Ok::<_, std::io::Error>(at.local_addr()?.to_string());
        let [clients, admin, data] = &all;
        Ok(Self {
            clients: address(clients)?,
            admin: address(admin)?,
            data: address(data)?,
        })
    }

    /// Where data are fetched.
    pub(crate) fn url(&self) -> String {
        format!("tcp://{}", self.data)
    }
}

/// A broker that serves. Dropped, it is killed.
#[derive(Debug)]
pub(crate) struct Served {
    child: Child,
    admin: String,
    log: watch::Receiver<String>,
}

/// What became of a start.
#[derive(Debug)]
pub(crate) enum Start {
    Serves(Box<Served>),
    /// The folder has another owner, or waits to have one; in its words.
    Refused(String),
}

/// Starts a broker and waits until it serves or refuses to.
pub(crate) async fn start(program: &Program, at: &Place, ports: &Ports) -> Result<Start> {
    let mut command = Command::new(&program.0);
    command
        .args(["serve", "--store", at.0.name(), "--data"])
        .arg(&at.1)
        .args(["--listen", &ports.clients, "--admin", &ports.admin])
        .args(["--data-listen", &ports.data, "--data-rate", RATE])
        // What was acknowledged stays so over a kill.
        .args(["--ack-durability", "sync"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn()?;
    let log = follow(child.stderr.take().context("it has a stderr")?);
    let mut stdout = BufReader::new(child.stdout.take().context("it has a stdout")?);
    let mut line = String::new();
    let ready = timeout(WITHIN, stdout.read_line(&mut line)).await;
    ready.with_context(|| format!("not ready within {WITHIN:?}: {}", *log.borrow()))??;
    if line.starts_with("ready") {
        return Ok(Start::Serves(Box::new(Served {
            child,
            admin: ports.admin.clone(),
            log,
        })));
    }
    let status = timeout(WITHIN, child.wait()).await??;
    let mut log = log;
    // Its writer ends with the process.
    while log.changed().await.is_ok() {}
    let said = log.borrow().clone();
    match status.code() {
        Some(NOT_OWNER) => Ok(Start::Refused(said)),
        _ => bail!("{} did not start: {status}: {said}", at.1.display()),
    }
}

impl Served {
    /// The mark in its log behind which [`Self::says`] looks.
    pub(crate) fn said(&self) -> usize {
        self.log.borrow().len()
    }

    /// Waits until it logs `words`.
    pub(crate) async fn says(&self, words: &str, behind: usize) {
        let mut log = self.log.clone();
        let is_there = |log: &String| log.get(behind..).is_some_and(|it| it.contains(words));
        if log.wait_for(is_there).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Kills it, and waits until it is gone.
    pub(crate) async fn kill(mut self) -> Result<()> {
        let ended = self.child.try_wait()?;
        ensure!(ended.is_none(), "the broker ended by itself: {ended:?}");
        self.child.kill().await.context("SIGKILL")
    }

    /// Whether it serves or was handed over, once that is decided.
    pub(crate) async fn is_moved(&self) -> Result<bool> {
        let begun = Instant::now();
        loop {
            let health = get(&self.admin, "/health").await?;
            if health.contains("moved") || health.contains("serving") {
                return Ok(health.contains("moved"));
            }
            ensure!(
                begun.elapsed() < WITHIN,
                "neither serving nor handed over after {WITHIN:?}: {health}"
            );
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// All that it logged, for a person.
    pub(crate) fn log(&self) -> String {
        self.log.borrow().clone()
    }
}

/// All that comes from `from`, as it comes.
fn follow(from: impl AsyncRead + Send + Unpin + 'static) -> watch::Receiver<String> {
    let (tell, told) = watch::channel(String::new());
    tokio::spawn(async move {
        let mut lines = BufReader::new(from).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            tell.send_modify(|all| {
                all.push_str(&line);
                all.push('\n');
            });
        }
    });
    told
}

async fn get(at: &str, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(at).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {at}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}
