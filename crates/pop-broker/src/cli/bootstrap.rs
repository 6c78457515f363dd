//! `bootstrap`: a folder with the data of a running broker.

use std::sync::Arc;

use clap::Args;
use pop_broker::{
    bootstrap::{BootstrapOptions, Bootstrapped, bootstrap},
    data::{ByteRate, Source, SourceUrl},
    stores::Backend,
    transfer::{Location, place::check_folder},
};

use super::{
    Failure,
    outcome::{Origin, Transfer, UNCHANGED},
    progress::{Meter, Moved, amount, moved_line},
    remote::Remote,
    say,
    transfer::{block_on, help},
};
use crate::server;

/// Starts a folder with the data of a running broker.
///
/// The source serves on while a consistent snapshot of what it holds is copied. The folder is
/// a copy: what was leased at the source is not leased here, and both go their own ways.
///
/// With --handover the folder becomes the next owner instead: the source serves nobody from
/// the snapshot on, and once everything is here it is retired for good. All leases and
/// receipt handles stay valid.
#[derive(Args, Debug)]
#[command(after_long_help = help(EXAMPLES))]
pub(super) struct Bootstrap {
    /// Data port of the running broker, its --data-listen: tcp://HOST:PORT or tls://HOST:PORT
    #[arg(long, value_name = "URL")]
    pub(super) from: SourceUrl,

    /// Where the data goes, such as rocksdb:/var/lib/pop-broker; the store is fjall if it is
    /// not named
    #[arg(long, value_name = "STORE:FOLDER")]
    pub(super) to: Location,

    /// Makes the folder the next owner, and retires the source
    #[arg(long)]
    pub(super) handover: bool,

    /// Gives up what the folder holds
    #[arg(long)]
    pub(super) replace: bool,

    /// The most bytes a second, such as 20M; as fast as the source gives them if absent
    #[arg(long, value_name = "RATE")]
    pub(super) rate: Option<ByteRate>,

    #[command(flatten)]
    pub(super) remote: Remote,
}

const EXAMPLES: &str = "\
Examples:
  pop-broker serve --data-listen 127.0.0.1:8083
      Gives out its data on this machine.
  pop-broker bootstrap --from tcp://127.0.0.1:8083 --to fjall:/srv/copy
      Makes a copy of it. Serve that with `pop-broker serve --store fjall --data /srv/copy`.
  pop-broker serve --data-listen 0.0.0.0:8083 --data-token-file /etc/pop-token \\
      --data-tls-certificate broker.pem --data-tls-key broker.key
  pop-broker bootstrap --from tls://old:8083 --tls-ca ca.pem --token-file /etc/pop-token \\
      --to rocksdb:/srv/pop --handover
      Moves a broker to another machine. Clients of the old one are told to try again.";

impl Bootstrap {
    pub(super) fn run(self) -> Result<(), Failure> {
        self.run_as("bootstrap")
    }

    /// As the command was called.
    pub(super) fn run_as(self, what: &'static str) -> Result<(), Failure> {
        let store = self.to.wanted(Backend::Fjall)?;
        check_folder(&self.to.folder)?;
        let opener = store.filler(&self.to.folder)?;
        let source = Source::new(self.from.clone(), &self.remote.credentials()?)?;
        let options = BootstrapOptions {
            handover: self.handover.then(|| called(&self.to)),
            replace: self.replace,
            rate: self.rate.unwrap_or(ByteRate(None)),
            entropy: Arc::new(server::draw),
        };
        block_on(async {
            let mut meter = Meter::new(what, None);
            let made = bootstrap(&source, opener.as_ref(), &options, |it| meter.see(it)).await;
            let transfer = Transfer {
                what,
                from: Origin::Broker(&self.from),
                to: &self.to.folder,
                kept: UNCHANGED,
            };
            let made = made.map_err(|error| transfer.not_bootstrapped(error))?;
            let moved = meter.moved(&made.stats);
            drop(meter);
            say(&self.tell(&made, moved, store));
            Ok(())
        })
    }

    fn tell(&self, made: &Bootstrapped, moved: Moved, store: Backend) -> String {
        let what = match (self.handover, made.finished) {
            (false, _) => "a copy; the source goes on by itself",
            (true, false) => "handed over; the source is retired",
            (true, true) => "handed over; everything had come before, and the source is retired",
        };
        format!(
            "{what}\nsnapshot {} of epoch {}: {}\n{}serve it with `pop-broker serve --store {store} --data {}`",
            made.at.id,
            made.at.epoch,
            amount(made.totals.rows(), made.totals.bytes()),
            moved_line((!made.finished).then_some(moved)),
            self.to.folder.display()
        )
    }
}

/// What the source writes down of where its data went.
fn called(to: &Location) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match host.trim() {
        "" => to.to_string(),
        host => format!("{to} on {host}"),
    }
}
