//! `restore`: a backup becomes the content of a folder.

use std::path::PathBuf;

use clap::Args;
use pop_broker::{
    data::ByteRate,
    stores::Backend,
    transfer::{Location, Manifest, Source, file::BackupFile, installed},
};

use super::{
    Exit, Failure,
    outcome::Origin,
    progress::{Meter, amount, moved_line},
    say,
    transfer::{Destination, block_on, close, help, limiter, of},
};

/// Brings a backup back into a folder.
///
/// The backup is read once before anything else is touched: one that is cut, damaged or of
/// something else is refused. Then all of it is loaded beside what the folder has, compared,
/// and takes its place at one moment; until then, whatever happens, the folder has what it
/// had. What was cut is gone on with by the same command, if nothing else opened the folder
/// in between.
///
/// A broker on that folder delivers again what was out at the moment of the backup, once its
/// time is over, and refuses the receipt handles of that time: a copy never settles what was
/// handed out elsewhere.
#[derive(Args, Debug)]
#[command(after_long_help = help(EXAMPLES))]
pub(super) struct Restore {
    /// The backup
    #[arg(long, value_name = "FILE")]
    from: PathBuf,

    /// The folder, or STORE:FOLDER; made if it is not there
    ///
    /// Without STORE: a folder that has a store keeps it, and a new one gets the store that
    /// the backup was taken from. Any store takes any backup.
    #[arg(long, value_name = "FOLDER", required_unless_present = "check")]
    to: Option<String>,

    /// Puts the backup in the place of the data that the folder has
    #[arg(long)]
    replace: bool,

    /// Reads the backup, shows what is in it, and changes nothing
    #[arg(long, conflicts_with_all = ["to", "replace"])]
    check: bool,

    /// The most bytes a second, such as 20M; as fast as it goes if absent
    #[arg(long, value_name = "RATE")]
    rate: Option<ByteRate>,
}

impl Restore {
    pub(super) fn run(self) -> Result<(), Failure> {
        block_on(self.bring_back())
    }

    async fn bring_back(self) -> Result<(), Failure> {
        let file = self.backup()?;
        let mut meter = Meter::new("reading the backup", Some(file.digest().1.bytes));
        let limiter = limiter(self.rate);
        let digest = file.verify(&limiter, |seen| meter.at(seen.rows, seen.bytes));
        let digest = digest.await?;
        drop(meter);
        let Some(to) = &self.to else {
            say(Manifest::of(&file).text().trim_end());
            return Ok(());
        };
        let to: Location = match to.parse() {
            Ok(to) => to,
            Err(never) => match never {},
        };
        // A store that this program does not know, or memory, says nothing about a folder.
        let usual = file
            .meta()
            .store
            .parse()
            .ok()
            .filter(|it: &Backend| it.has_folder());
        let usual = usual.unwrap_or(Backend::Fjall);
        let folder = Destination::open(&to, usual).await?;
        let mut moved = None;
        let replace = self.replace;
        if !folder.is_filled(&to, &digest, replace, &limiter).await? {
            let over = of(&to.folder, installed(&folder.store).await)?;
            let source = Source::of_backup(&file, digest, over.as_ref()).await?;
            let total = Some(digest.bytes());
            let filled = folder
                .fill(
                    &source,
                    Origin::Backup(&self.from),
                    self.rate,
                    "restore",
                    total,
                )
                .await?;
            moved = Some(filled.1);
        }
        close(&to.folder, folder.store.as_ref()).await?;
        say(&format!(
            "restored {}: {}, as of {}\nfolder    {}\n{}serve it  pop-broker serve --store {} --data {}",
            self.from.display(),
            amount(digest.rows(), digest.bytes()),
            Manifest::of(&file).taken_at,
            to.folder.display(),
            moved_line(moved),
            folder.backend,
            to.folder.display(),
        ));
        Ok(())
    }

    /// The backup, or what was meant instead.
    fn backup(&self) -> Result<BackupFile, Failure> {
        if self.from.is_dir() {
            let from = self.from.display();
            let problem = format!(
                "--from {from} is a folder, and not a backup: to make a backup of it, say `pop-broker backup --from {from} --to FILE`; to move it into another store, `pop-broker migrate`"
            );
            return Err(Failure::new(Exit::Usage, problem));
        }
        Ok(BackupFile::open(&self.from)?)
    }
}

const EXAMPLES: &str = "\
Examples:
  pop-broker restore --from /backups/monday.backup --check
      Says what is in it, and whether it is whole.
  pop-broker restore --from /backups/monday.backup --to /var/lib/pop-broker
      Into a folder that is not there, or that has no data.
  pop-broker restore --from /backups/monday.backup --to fjall:/var/lib/pop-broker --replace
      In the place of what that folder has. Stop its broker first.";
