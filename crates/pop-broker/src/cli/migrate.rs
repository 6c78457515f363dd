//! `migrate`: the content of a folder in another store.

use clap::Args;
use pop_broker::{
    data::{ByteRate, SourceUrl},
    stores::Backend,
    transfer::{Location, Source, installed, place},
};

use super::{
    Exit, Failure,
    bootstrap::Bootstrap,
    outcome::Origin,
    progress::{amount, moved_line},
    remote::Remote,
    say,
    transfer::{
        Destination, block_on, close, help, limiter, now, of, of_folders_alone, open_source,
        totals, whose,
    },
};

/// Copies the content of a folder into a folder of another store.
///
/// Any store into any other, or into one of the same kind. No broker may be running on
/// either folder. The new content takes its place at one moment, when all of it is there and was
/// compared. What was cut is gone on with by the same command, if nothing else opened the
/// folder in between and no broker was on the old one.
///
/// What comes out is a copy: a broker on it delivers again what was out, once its time is
/// over, and refuses the receipt handles of the old one. The old folder stays as it is. Don't
/// serve both to the same consumers: each would deliver every message.
#[derive(Args, Debug)]
#[command(after_long_help = help(EXAMPLES))]
pub(super) struct Migrate {
    /// The folder to copy from, or STORE:FOLDER; or the data port of a running broker,
    /// tcp://HOST:PORT or tls://HOST:PORT, as for `bootstrap`
    #[arg(long, value_name = "FOLDER|URL")]
    from: String,

    /// The folder to copy to, as STORE:FOLDER; made if it is not there
    #[arg(long, value_name = "STORE:FOLDER")]
    to: String,

    /// Puts the copy in the place of the data that the folder has
    #[arg(long)]
    replace: bool,

    /// The most bytes a second, such as 20M; as fast as it goes if absent
    #[arg(long, value_name = "RATE")]
    rate: Option<ByteRate>,

    /// Copies a folder that was handed over, or waits to be its own
    ///
    /// What is in it is older than what its owner has, or may be.
    #[arg(long)]
    not_owned: bool,

    /// From a running broker: makes the folder the next owner, and retires the source
    #[arg(long)]
    handover: bool,

    #[command(flatten)]
    remote: Remote,
}

impl Migrate {
    pub(super) fn run(self) -> Result<(), Failure> {
        if self.from.contains("://") {
            return self.of_broker()?.run_as("migration");
        }
        if self.handover {
            let problem = "--handover is between a running broker and its successor: give its data port with --from, or stop it and serve the copy alone";
            return Err(Failure::new(Exit::Usage, problem));
        }
        block_on(self.copy())
    }

    /// What runs is not opened but asked, and that is what starts a new node, too.
    fn of_broker(self) -> Result<Bootstrap, Failure> {
        let from = self.from.parse::<SourceUrl>();
        of_folders_alone(self.not_owned)?;
        Ok(Bootstrap {
            from: from.map_err(|error| Failure::because(Exit::Usage, &error))?,
            to: parse(&self.to),
            handover: self.handover,
            replace: self.replace,
            rate: self.rate,
            remote: self.remote,
        })
    }

    async fn copy(self) -> Result<(), Failure> {
        let (from, to) = self.places()?;
        // The source first: where there is none, no folder is made.
        let (_, store) = open_source(&from).await?;
        let folder = Destination::open(&to, Backend::Fjall).await?;
        let limiter = limiter(self.rate);
        let wanted = match folder.may_have_it(self.replace) {
            true => {
                let what = "reading the folder to copy from";
                Some(totals(what, &from.folder, store.as_ref(), &limiter).await?)
            }
            false => None,
        };
        let (digest, moved) = match wanted {
            Some(wanted)
                if folder
                    .is_filled(&to, &wanted, self.replace, &limiter)
                    .await? =>
            {
                (wanted, None)
            }
            _ => {
                let over = of(&to.folder, installed(&folder.store).await)?;
                let whose = whose(self.not_owned);
                let source = Source::of_store(&store, now(), over.as_ref(), whose).await;
                let source = of(&from.folder, source)?;
                let filled = folder
                    .fill(
                        &source,
                        Origin::Folder(&from.folder),
                        self.rate,
                        "migration",
                        None,
                    )
                    .await?;
                (filled.0.seal.totals, Some(filled.1))
            }
        };
        close(&from.folder, store.as_ref()).await?;
        close(&to.folder, folder.store.as_ref()).await?;
        say(&format!(
            "copied {from} to {}:{}: {}\n{}serve it  pop-broker serve --store {} --data {}\nThis is a copy: it honours no receipt handle of the old folder, which stays as it is. Serve one of the two.",
            folder.backend,
            to.folder.display(),
            amount(digest.rows(), digest.bytes()),
            moved_line(moved),
            folder.backend,
            to.folder.display(),
        ));
        Ok(())
    }

    fn places(&self) -> Result<(Location, Location), Failure> {
        let (from, to) = (parse(&self.from), parse(&self.to));
        let problem = if from.folder.is_file() {
            format!(
                "--from {from} is a file, and not the folder of a store: to bring a backup back, say `pop-broker restore --from {from} --to {to}`"
            )
        } else if place::is_inside(&to.folder, &from.folder)
            && place::is_inside(&from.folder, &to.folder)
        {
            format!("{from} and {to} are the same folder: choose another one to copy to")
        } else if place::is_inside(&to.folder, &from.folder)
            || place::is_inside(&from.folder, &to.folder)
        {
            format!("{from} and {to} lie in each other: choose a folder outside of both")
        } else if to.existing().is_err() && to.store.is_none() {
            format!(
                "--to {to} says no store, and there is none in that folder: say which, such as --to rocksdb:{to}"
            )
        } else {
            return Ok((from, to));
        };
        Err(Failure::new(Exit::Usage, problem))
    }
}

fn parse(text: &str) -> Location {
    match text.parse() {
        Ok(location) => location,
        Err(never) => match never {},
    }
}

const EXAMPLES: &str = "\
Examples:
  pop-broker migrate --from /var/lib/pop-broker --to rocksdb:/var/lib/pop-broker-rocksdb
      Then serve the new folder, and delete the old one when all is well.";
