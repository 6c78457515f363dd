//! The other end of the data port: a running broker as a source of snapshots.

use std::{io, sync::Arc};

use async_trait::async_trait;
use kv_restore::{
    PeerId, SnapshotId, SnapshotRef, StreamId,
    transport::{Channel, Transport, TransportError, framed},
};
use rustls::pki_types::ServerName;
use tokio::{
    net::TcpStream,
    sync::{mpsc, oneshot},
    time::{interval, timeout},
};
use tokio_rustls::TlsConnector;

use super::{
    ClientTls, SourceUrl, Stream, TlsError, Token,
    hello::{self, Ask, Hello, Reply, Say, Why},
    limits::{ALIVE_EVERY, HELLO_TIME_MAX, REPLY_BYTES_MAX},
    tls,
};

/// Taking a snapshot, and even more so a flush before it, may wait for a slow disk.
const ANSWER_TIME_MAX: std::time::Duration = std::time::Duration::from_secs(120);

/// What is shown to the port.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    /// What it wants to hear.
    pub token: Option<Token>,
    /// For `tls://`.
    pub tls: Option<ClientTls>,
}

/// Why a broker gives nothing.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// `tls://` without the certificates to know the broker by.
    #[error("{0} is spoken to through TLS: give --tls-ca FILE, the certificates to know it by")]
    NoCa(SourceUrl),
    /// Certificates, but no TLS.
    #[error("{0} is spoken to without TLS, so that certificates are of no use: give tls://")]
    NoTls(SourceUrl),
    /// A host that no certificate can be of.
    #[error("{0}: the host is neither a name nor an address, so that no certificate can be of it")]
    NoName(SourceUrl),
    /// Files that can't be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// It can't be reached, or broke off.
    #[error("{url} does not answer: {error}")]
    Broken {
        /// Where.
        url: SourceUrl,
        /// Why.
        error: io::Error,
    },
    /// It answered, and not with what was asked for.
    #[error("{url} refuses: {text}")]
    Refused {
        /// Who.
        url: SourceUrl,
        /// Its words.
        text: String,
        /// Whether it may work later.
        busy: bool,
    },
    /// It was asked for the receipt of a handover that it took back.
    #[error("{0} took that handover back and serves")]
    TakenBack(SourceUrl),
}

/// A running broker, by its data port.
pub struct Source {
    url: SourceUrl,
    token: Option<Token>,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

impl Source {
    /// The broker at a URL; nothing is asked yet.
    ///
    /// # Errors
    ///
    /// Credentials that don't go with the URL, or can't be read.
    pub fn new(url: SourceUrl, credentials: &Credentials) -> Result<Arc<Self>, SourceError> {
        let tls = match (url.tls, &credentials.tls) {
            (false, None) => None,
            (false, Some(_)) => return Err(SourceError::NoTls(url)),
            (true, None) => return Err(SourceError::NoCa(url)),
            (true, Some(tls)) => {
                let name = ServerName::try_from(url.host.clone());
                let name = name.map_err(|_| SourceError::NoName(url.clone()))?;
                Some((tls::connector(tls)?, name))
            }
        };
        let token = credentials.token.clone();
        Ok(Arc::new(Self { url, token, tls }))
    }

    /// Where it is.
    #[must_use]
    pub fn url(&self) -> &SourceUrl {
        &self.url
    }

    /// As sessions call it.
    #[must_use]
    pub fn peer(&self) -> PeerId {
        PeerId::new(self.url.to_string())
    }

    /// Has a snapshot taken of what it holds now; or goes on with the one that is `wanted`,
    /// if that is still kept.
    ///
    /// # Errors
    ///
    /// If it can't be reached or refuses.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it asked for nothing, or for what nobody holds.
    pub async fn snapshot(&self, wanted: Option<SnapshotId>) -> Result<Held, SourceError> {
        let wanted = wanted.map(|it| it.to_string());
        self.hold(Ask::Snapshot { wanted }).await
    }

    /// The same, and it serves nobody from then on, until this side is done or gone.
    ///
    /// # Errors
    ///
    /// If it can't be reached or refuses.
    ///
    /// # Cancel safety
    ///
    /// As of [`snapshot`](Self::snapshot): it goes on serving.
    pub async fn handover(&self, to: &str) -> Result<Held, SourceError> {
        self.hold(Ask::Handover { to: to.to_owned() }).await
    }

    /// The receipt of a handover that was cut off after the source had let go of its data.
    ///
    /// # Errors
    ///
    /// If it can't be reached, or did not let go of that snapshot: `TakenBack` if it remembers
    /// that, and so goes on from what is in it.
    ///
    /// # Cancel safety
    ///
    /// It only asks.
    pub async fn receipt(&self, at: &SnapshotRef) -> Result<String, SourceError> {
        let ask = Ask::Receipt {
            snapshot: at.id.to_string(),
        };
        match self.ask(ask).await? {
            (_, Reply::Receipt(receipt)) => Ok(receipt),
            (_, other) => Err(self.unexpected(other)),
        }
    }

    async fn hold(&self, ask: Ask) -> Result<Held, SourceError> {
        let (stream, reply) = self.ask(ask).await?;
        let reference = match reply {
            Reply::Snapshot(reference) => reference,
            other => return Err(self.unexpected(other)),
        };
        let Some(at) = reference.read() else {
            return Err(self.broken(io::Error::other("its snapshot has no readable name")));
        };
        let (say, said) = mpsc::channel(1);
        tokio::spawn(keep(stream, said));
        let url = self.url.clone();
        Ok(Held { at, say, url })
    }

    async fn ask(&self, ask: Ask) -> Result<(Stream, Reply), SourceError> {
        let asked = async {
            let mut stream = hello::within(HELLO_TIME_MAX, self.open(ask)).await?;
            let reply = hello::read(&mut stream, REPLY_BYTES_MAX);
            let reply: Reply = hello::within(ANSWER_TIME_MAX, reply).await?;
            io::Result::Ok((stream, reply))
        };
        asked.await.map_err(|error| self.broken(error))
    }

    async fn open(&self, ask: Ask) -> io::Result<Stream> {
        let socket = TcpStream::connect((self.url.host.as_str(), self.url.port)).await?;
        socket.set_nodelay(true)?;
        let mut stream: Stream = match &self.tls {
            None => Box::new(socket),
            Some((tls, name)) => Box::new(tls.connect(name.clone(), socket).await?),
        };
        let token = self.token.as_ref().map(|it| it.secret().to_owned());
        tokio::io::AsyncWriteExt::write_all(&mut stream, &hello::opening_bytes()).await?;
        hello::write(&mut stream, &Hello { token, ask }).await?;
        Ok(stream)
    }

    fn broken(&self, error: io::Error) -> SourceError {
        let url = self.url.clone();
        SourceError::Broken { url, error }
    }

    fn unexpected(&self, reply: Reply) -> SourceError {
        refusal(&self.url, reply)
    }
}

fn refusal(url: &SourceUrl, reply: Reply) -> SourceError {
    let url = url.clone();
    match reply {
        Reply::Refused {
            why: Why::TakenBack,
            ..
        } => SourceError::TakenBack(url),
        Reply::Refused { why, text } => SourceError::Refused {
            url,
            text,
            busy: why == Why::Busy,
        },
        _ => SourceError::Broken {
            url,
            error: io::Error::other("it answered something else than was asked"),
        },
    }
}

#[async_trait]
impl Transport for Source {
    async fn connect(&self, _: &PeerId, _: StreamId) -> Result<Channel, TransportError> {
        let broken = |error: SourceError| TransportError::Broken(error.to_string());
        match self.ask(Ask::Fetch).await.map_err(broken)? {
            (stream, Reply::Ready) => {
                let (read, write) = tokio::io::split(stream);
                Ok(framed(read, write))
            }
            (_, other) => Err(broken(self.unexpected(other))),
        }
    }
}

/// A snapshot that a broker keeps for us, as long as this is kept.
#[derive(Debug)]
pub struct Held {
    /// Which.
    pub at: SnapshotRef,
    say: mpsc::Sender<(Say, oneshot::Sender<io::Result<Option<Reply>>>)>,
    url: SourceUrl,
}

impl Held {
    /// Says that all of a handover is here, and asks the broker to let go of it for good.
    /// The receipt proves that it did.
    ///
    /// # Errors
    ///
    /// If it refuses; if the connection broke, it may have let go nevertheless:
    /// [`Source::receipt`] asks again.
    ///
    /// # Cancel safety
    ///
    /// As if the connection broke.
    pub async fn retire(&self, totals: &kv_restore::Digest) -> Result<String, SourceError> {
        let totals = hello::totals(totals);
        let broken = |error| SourceError::Broken {
            url: self.url.clone(),
            error,
        };
        match self.say(Say::Retire { totals }).await.map_err(broken)? {
            Some(Reply::Receipt(receipt)) => Ok(receipt),
            Some(other) => Err(refusal(&self.url, other)),
            None => Err(broken(io::ErrorKind::UnexpectedEof.into())),
        }
    }

    /// Lets go of it.
    pub async fn done(self) {
        // Who can't be told notices that nobody is there.
        let _ = self.say(Say::Done).await;
    }

    async fn say(&self, say: Say) -> io::Result<Option<Reply>> {
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        let (tell, told) = oneshot::channel();
        self.say.send((say, tell)).await.map_err(|_| gone())?;
        told.await.map_err(|_| gone())?
    }
}

/// Tells the broker again and again that somebody is there.
async fn keep(
    mut stream: Stream,
    mut said: mpsc::Receiver<(Say, oneshot::Sender<io::Result<Option<Reply>>>)>,
) {
    let mut alive = interval(ALIVE_EVERY);
    loop {
        tokio::select! {
            said = said.recv() => {
                let Some((say, tell)) = said else { return };
                let answered = async {
                    hello::write(&mut stream, &say).await?;
                    match say {
                        Say::Retire { .. } => hello::read(&mut stream, REPLY_BYTES_MAX).await.map(Some),
                        Say::Alive | Say::Done => Ok(None),
                    }
                };
                let answered = hello::within(ANSWER_TIME_MAX, answered).await;
                // Who does not wait for it any more does not want it.
                let _ = tell.send(answered);
                if say == Say::Done {
                    return;
                }
            }
            _ = alive.tick() => {
                let alive = timeout(ALIVE_EVERY, hello::write(&mut stream, &Say::Alive));
                if !matches!(alive.await, Ok(Ok(()))) {
                    return;
                }
            }
        }
    }
}
