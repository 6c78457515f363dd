//! The life of a serving process: bind, open, serve, end.

pub(crate) mod log;
mod signal;

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use pop_broker::{
    Broker, BrokerError, Health,
    data::{DataPort, DataService},
    listener::Listener,
    rpc,
};
use tokio::{
    net::TcpListener,
    runtime::{Builder, Handle, Runtime},
    task::JoinHandle,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::{
    admin,
    cli::{Exit, Failure, say},
    config::Settings,
};
use signal::Signals;

/// How long connections may take to carry their last answers; above the limit that the
/// listener of clients sets itself.
const DRAIN_MAX: Duration = Duration::from_secs(12);
/// How long threads that may block, such as an engine's, may take to let go at the end.
const THREADS_MAX: Duration = Duration::from_secs(2);
/// The name of the threads of the data port.
const TRANSFERS: &str = "transfers";

/// Serves until a signal.
pub(crate) fn run(settings: Settings) -> Result<(), Failure> {
    log::start(settings.log.clone(), settings.log_format);
    let runtime = Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::because(Exit::Failed, &error))?;
    let transfers = transfers().map_err(|error| Failure::because(Exit::Failed, &error))?;
    let outcome = runtime.block_on(serve(&settings, transfers.handle()));
    runtime.shutdown_timeout(THREADS_MAX);
    transfers.shutdown_timeout(THREADS_MAX);
    outcome
}

/// Where the data port works, behind everybody who waits for an answer: a backup of a broker
/// at work would otherwise have its clients wait for a turn on every processor.
fn transfers() -> io::Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name(TRANSFERS)
        .on_thread_start(pop_store::run_in_background)
        .enable_all()
        .build()
}

async fn serve(settings: &Settings, transfers: &Handle) -> Result<(), Failure> {
    let opener = settings.store.opener(&settings.data)?;
    let mut signals = Signals::listen().map_err(|error| Failure::because(Exit::Failed, &error))?;
    // Bound before the store is opened: whoever starts the program twice is told so before
    // a journal is read.
    let doors = Doors::open(settings).await?;
    let options = settings.broker_options(Arc::new(draw));
    let broker = tokio::select! {
        opened = Broker::open(opener, options) => opened?,
        // Nothing was promised to anybody yet.
        () = signals.next() => return Ok(()),
    };
    warn_of_what_the_store_is_not(&broker)?;
    create_missing(&broker, settings).await?;

    let stop = CancellationToken::new();
    let ready = doors.ready_line(settings);
    let mut work = doors.serve(&broker, settings, transfers, &stop);
    say(&ready);

    let outcome = tokio::select! {
        () = signals.next() => {
            tracing::info!("a signal: shutting down; another one ends the process at once");
            Ok(())
        }
        failure = store_lost(&broker) => Err(failure),
        failure = work.ended() => Err(failure),
    };
    let hurry = tokio::spawn(async move {
        signals.next().await;
        tracing::warn!("a second signal: ending at once");
        std::process::exit(Exit::SecondSignal.code().into());
    });
    stop.cancel();
    // Ends waiting receives, and with them most of what connections still carry.
    let closed = broker.shutdown().await;
    work.drain().await;
    hurry.abort();
    outcome?;
    closed?;
    tracing::info!("everything is stored; goodbye");
    Ok(())
}

/// The addresses that the process listens on.
struct Doors {
    clients: Listener,
    admin: TcpListener,
    data: Option<DataPort>,
    addresses: (SocketAddr, SocketAddr),
}

impl Doors {
    async fn open(settings: &Settings) -> Result<Self, Failure> {
        let clients = Listener::bind(settings.listen, settings.tls.clone()).await;
        let clients = clients.map_err(|error| not_bound("--listen", settings.listen, &error))?;
        let admin = TcpListener::bind(settings.admin).await;
        let admin = admin.map_err(|error| not_bound("--admin", settings.admin, &error))?;
        let admin_address = admin.local_addr();
        let admin_address =
            admin_address.map_err(|error| not_bound("--admin", settings.admin, &error))?;
        let data = match &settings.data_port {
            None => None,
            Some(port) => Some(
                DataPort::bind(port.listen, &port.access)
                    .await
                    .map_err(|error| not_bound("--data-listen", port.listen, &error))?,
            ),
        };
        Ok(Self {
            addresses: (clients.local_addr(), admin_address),
            clients,
            admin,
            data,
        })
    }

    /// What a script waits for.
    fn ready_line(&self, settings: &Settings) -> String {
        let (clients, admin) = self.addresses;
        let mut line = format!(
            "ready listen={clients} admin={admin} store={}",
            settings.store
        );
        if let Some(data) = &self.data {
            line.push_str(&format!(" data-listen={}", data.local_addr()));
        }
        if settings.store.has_folder() {
            line.push_str(&format!(" data={}", settings.data.display()));
        }
        line
    }

    fn serve(
        self,
        broker: &Broker,
        settings: &Settings,
        transfers: &Handle,
        stop: &CancellationToken,
    ) -> Work {
        let service = rpc::service(broker.clone(), rpc::RpcOptions::default());
        let (clients, admin) = (self.clients, self.admin);
        let stopped = stop.clone().cancelled_owned();
        let moved = handed_over(broker.clone());
        let stop_clients = stop.clone();
        let clients = async move {
            let ended = async {
                tokio::select! {
                    () = stopped => {}
                    () = moved => {}
                }
            };
            let served = clients.serve(service, ended).await;
            served.map_err(|error| Failure::because(Exit::Failed, &error))?;
            // Whoever connects now finds nobody and goes elsewhere; the operator and the
            // broker that took over still find us.
            stop_clients.cancelled().await;
            Ok(())
        };
        let service = settings
            .data_port
            .as_ref()
            .map(|port| DataService::new(broker.clone(), port.access.clone(), port.options));
        if let (Some(door), Some(service)) = (self.data, &service) {
            let port = settings.data_port.as_ref();
            if port.is_some_and(|port| port.access.is_readable(door.local_addr())) {
                tracing::warn!(
                    "--data-listen {} is reached from elsewhere without TLS: whoever is on the way \
                     reads the token and every message; give --data-tls-certificate and --data-tls-key",
                    door.local_addr()
                );
            }
            transfers.spawn(door.serve(service.clone(), stop.clone()));
        }
        let router = admin::router(broker.clone(), service);
        let stopped = stop.clone().cancelled_owned();
        let admin = async move {
            let served = axum::serve(admin, router)
                .with_graceful_shutdown(stopped)
                .await;
            served.map_err(|error| Failure::because(Exit::Failed, &error))
        };
        Work {
            clients: tokio::spawn(clients),
            admin: tokio::spawn(admin),
        }
    }
}

/// What serves at the doors.
struct Work {
    clients: JoinHandle<Result<(), Failure>>,
    admin: JoinHandle<Result<(), Failure>>,
}

impl Work {
    /// Either door closing by itself is a failure: nobody told it to.
    async fn ended(&mut self) -> Failure {
        let (door, outcome) = tokio::select! {
            outcome = &mut self.clients => ("--listen", outcome),
            outcome = &mut self.admin => ("--admin", outcome),
        };
        match outcome {
            Ok(Err(failure)) => failure,
            Ok(Ok(())) | Err(_) => Failure::new(
                Exit::Failed,
                format!("nothing is served at {door} any more"),
            ),
        }
    }

    /// Lets the last answers out. A connection that never ends is left after a while.
    async fn drain(self) {
        for task in [self.clients, self.admin] {
            let abort = task.abort_handle();
            // A task that ended before was looked at when it did.
            if !task.is_finished() && timeout(DRAIN_MAX, task).await.is_err() {
                tracing::warn!("some connections did not end within {DRAIN_MAX:?}");
                abort.abort();
            }
        }
    }
}

/// An address that can't be listened on, or files for TLS that can't be used.
fn not_bound(flag: &str, address: SocketAddr, error: &io::Error) -> Failure {
    let problem = match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "address {address} is in use, perhaps by another broker: stop that one, or choose another with {flag}"
        ),
        io::ErrorKind::AddrNotAvailable => {
            format!("address {address} is not one of this machine's: choose another with {flag}")
        }
        io::ErrorKind::PermissionDenied => format!(
            "address {address} may not be used by this user: choose a port above 1023 with {flag}"
        ),
        // What the listener says of TLS alone; the system's own errors have other kinds.
        io::ErrorKind::Other => return Failure::because(Exit::Usage, error),
        _ => return Failure::because(Exit::Address, error),
    };
    Failure::new(Exit::Address, problem)
}

/// Waits for the store to fail for good.
async fn store_lost(broker: &Broker) -> Failure {
    let mut health = broker.health();
    let failed = health.wait_for(|health| matches!(health, Health::Failed(_)));
    let problem = match failed.await.as_deref() {
        Ok(Health::Failed(problem)) => problem.clone(),
        _ => "the broker is gone".into(),
    };
    Failure::new(
        Exit::StoreLost,
        format!("{problem}: the log tells why; start again once the cause is removed"),
    )
}

/// Waits until the content has another owner.
async fn handed_over(broker: Broker) {
    let mut health = broker.health();
    let moved = health.wait_for(|health| matches!(health, Health::Moved(_)));
    if moved.await.is_err() {
        // The broker is gone, which others see.
        std::future::pending().await
    }
}

fn warn_of_what_the_store_is_not(broker: &Broker) -> Result<(), Failure> {
    let capabilities = broker.store_capabilities()?;
    if !capabilities.durable {
        tracing::warn!("this store keeps everything in memory: nothing survives the process");
    } else if !capabilities.production {
        tracing::warn!("this store is for evaluation, not for production: fjall and rocksdb are");
    }
    Ok(())
}

/// Creates the topics and groups of the configuration. What is there stays as it is: the
/// file says what must exist, and the command line and the API what becomes of it.
async fn create_missing(broker: &Broker, settings: &Settings) -> Result<(), Failure> {
    for topic in &settings.topics {
        match broker.create_topic(topic.clone()).await {
            Ok(_) | Err(BrokerError::TopicExists(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    for group in &settings.groups {
        match broker.create_group(group.clone()).await {
            Ok(_) | Err(BrokerError::GroupExists(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Randomness for secrets and identities.
#[expect(clippy::disallowed_methods, reason = "this is the edge that draws")]
pub(crate) fn draw(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the operating system has a source of randomness");
}
