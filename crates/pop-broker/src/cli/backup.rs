//! `backup`: the content of a store, in one file.

mod left;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::Args;
use kv_restore::{Damage, ErrorKind, Target};
use pop_broker::data::{self, ByteRate, SourceUrl};
use pop_broker::transfer::{
    Location, Manifest, Source, copy,
    file::{BackupError, BackupFile, Begun, Draft, Totals, Written},
    moment, place,
};

use super::{
    Exit, Failure, complain,
    outcome::{Origin, Transfer},
    progress::{Meter, Moved, amount, moved_line},
    remote::Remote,
    say,
    transfer::{
        block_on, close, help, limiter, now, of, of_folders_alone, open_source, options, whose,
    },
};

const AGAIN: &str = "reading the backup again";
const CUT: &str = "reading the backup that was cut";

/// Copies the content of a broker into one file.
///
/// The file has everything: messages, topics and groups, offsets, what is out or to be
/// delivered again, dead letters, quarantine. It is the content of one moment. It is read
/// again and compared when it is written, and gets its name only then; beside it comes a
/// manifest, NAME.toml, that says what is in it.
///
/// What was cut is no loss: the same command goes on behind the last whole block, if the source
/// still has that snapshot: a folder, as long as no broker was on it in between; a broker, for a
/// minute. Else it begins anew, with the content of now, and says so. The folder or broker is
/// let go of once all is written: while the backup is read again a broker may be on that folder,
/// and the one that runs keeps nothing for it; so a command that is killed in that time begins
/// anew, too, unless the folder is as it was. One that was killed when its backup was done says
/// so when it is typed again. Nothing else that has the name is ever written over.
#[derive(Args, Debug)]
#[command(after_long_help = help(EXAMPLES))]
pub(super) struct Backup {
    /// The folder of the store, or STORE:FOLDER; or the data port of a running broker,
    /// tcp://HOST:PORT or tls://HOST:PORT
    ///
    /// No broker may be running on a folder. One that runs gives its data out with
    /// `serve --data-listen`, and serves on.
    #[arg(long, value_name = "FOLDER|URL")]
    from: String,

    /// The file that is to be made, or a folder for it
    ///
    /// In a folder it is called after the moment of the backup. What was cut there and can't be
    /// gone on with any more stays until it is deleted; each command that begins anew tells of it.
    #[arg(long, value_name = "FILE")]
    to: PathBuf,

    /// The most bytes a second, such as 20M; as fast as it goes if absent
    #[arg(long, value_name = "RATE")]
    rate: Option<ByteRate>,

    /// Copies a folder that was handed over, or waits to be its own
    ///
    /// What is in it is older than what its owner has, or may be.
    #[arg(long)]
    not_owned: bool,

    #[command(flatten)]
    remote: Remote,
}

/// What is there of a backup when its source is not needed any more.
enum Fetched {
    /// All is written now, after so much was moved for it.
    Now(Written, Option<Moved>),
    /// It was done before.
    Before(BackupFile),
}

impl Backup {
    pub(super) fn run(self) -> Result<(), Failure> {
        block_on(self.back_up())
    }

    async fn back_up(&self) -> Result<(), Failure> {
        let fetched = if let Some(file) = left::untold(&self.to, &self.from) {
            complain("an earlier command was cut when this backup was done");
            Fetched::Before(file)
        } else {
            self.fetch().await?
        };
        let (file, moved) = match fetched {
            Fetched::Now(written, moved) => (self.finish(written).await?, moved),
            Fetched::Before(file) => (self.again(file).await?, None),
        };
        tell(&self.from, &file, moved);
        // The last thing: killed before it, the same command says the same again.
        file.told(&self.from)?;
        self.tell_of_others();
        Ok(())
    }

    /// In a folder: makes known what is whole and was not, so that it looks like any other.
    ///
    /// What is wrong with one of them is no failure: what was asked for is there.
    fn tell_of_others(&self) {
        let wrong = |error: BackupError| complain(&Failure::from(error).to_string());
        let others = left::others(&self.to, &self.from);
        for file in others.map_err(wrong).unwrap_or_default() {
            let path = file.path().display();
            complain(&format!(
                "{path} is whole, too: an earlier command was cut before it said so"
            ));
            let _ = file.told(&self.from).map_err(wrong);
        }
    }

    /// Has all of it written.
    ///
    /// What comes after that needs no source: only the file is read again. At a `--rate` that
    /// takes as long as the copy did, and all the while a broker would keep what it deletes, and
    /// a folder could not be served; so the source is let go of first. Whoever types this command
    /// again after a kill wants the content of then, of the source that is called so then: that
    /// one is asked, and if it has another snapshot than the draft, all of it is moved anew.
    async fn fetch(&self) -> Result<Fetched, Failure> {
        if self.from.contains("://") {
            return self.fetch_from_broker().await;
        }
        let from = self.source()?;
        if place::is_inside(&self.to, &from.folder) {
            let problem = format!(
                "--to {} lies in the folder that is backed up: choose a place outside of {}, best on another disk",
                self.to.display(),
                from.folder.display()
            );
            return Err(Failure::new(Exit::Usage, problem));
        }
        let (_, store) = open_source(&from).await?;
        let source = Source::of_store(&store, now(), None, whose(self.not_owned)).await;
        let source = of(&from.folder, source)?;
        let fetched = self
            .fetch_from(&source, Origin::Folder(&from.folder))
            .await?;
        drop(source);
        close(&from.folder, store.as_ref()).await?;
        Ok(fetched)
    }

    /// Of a broker that runs, which keeps the snapshot for us.
    async fn fetch_from_broker(&self) -> Result<Fetched, Failure> {
        let url = self.from.parse::<SourceUrl>();
        let url = url.map_err(|error| Failure::because(Exit::Usage, &error))?;
        of_folders_alone(self.not_owned)?;
        let broker = data::Source::new(url, &self.remote.credentials()?)?;
        // The newest: the snapshots of the others are gone sooner.
        let cut = left::all(&self.to, &self.from)?.pop();
        let held = broker.snapshot(cut.map(|(_, id)| id)).await?;
        let (at, peer) = (held.at.clone(), broker.peer());
        let source = Source::remote(at, peer, Arc::clone(&broker) as _, Box::new(()));
        let fetched = self.fetch_from(&source, Origin::Broker(broker.url()));
        let fetched = fetched.await?;
        held.done().await;
        Ok(fetched)
    }

    async fn fetch_from(&self, source: &Source, from: Origin<'_>) -> Result<Fetched, Failure> {
        let to = self.file(source)?;
        match already(&to, source)? {
            Some(file) => Ok(Fetched::Before(file)),
            None => self.write(source, from, &to).await,
        }
    }

    /// The folder to read, or what was meant instead.
    fn source(&self) -> Result<Location, Failure> {
        let from: Location = match self.from.parse() {
            Ok(from) => from,
            Err(never) => match never {},
        };
        if BackupFile::open(&from.folder).is_ok() {
            let problem = format!(
                "--from {from} is a backup, and not the folder of a store: to bring it back, say `pop-broker restore --from {from} --to FOLDER`"
            );
            return Err(Failure::new(Exit::Usage, problem));
        }
        Ok(from)
    }

    /// The name of the file. In a folder the draft of the same snapshot is gone on with.
    fn file(&self, source: &Source) -> Result<PathBuf, Failure> {
        if !self.to.is_dir() {
            let folder = self.to.parent().filter(|it| !it.as_os_str().is_empty());
            let missing = folder.filter(|it| !it.is_dir());
            return missing.map_or(Ok(self.to.clone()), |folder| {
                let problem = format!("there is no folder {} to put it in", folder.display());
                Err(Failure::new(Exit::Usage, problem))
            });
        }
        let all = left::all(&self.to, &self.from)?;
        if let Some((to, _)) = all.into_iter().find(|(_, id)| *id == source.at().id) {
            return Ok(to);
        }
        for draft in left::drafts(&self.to)? {
            complain(&format!(
                "{} was cut, and is of another snapshot than the source has: beginning anew, with the content of now; delete that file, unless it is another source's",
                draft.display()
            ));
        }
        let taken: String = moment(now())
            .chars()
            .take_while(|it| *it != '.' && *it != 'Z')
            .filter(char::is_ascii_alphanumeric)
            .collect();
        Ok(self.to.join(format!("pop-broker-{taken}Z.backup")))
    }

    async fn write(
        &self,
        source: &Source,
        from: Origin<'_>,
        to: &Path,
    ) -> Result<Fetched, Failure> {
        let keyspaces = pop_store::table::KEYSPACES;
        // The source is asked before: a broker gives up within a minute what nobody holds.
        let limiter = limiter(self.rate);
        let mut meter = Meter::new(CUT, None);
        let seen = |seen: Totals| meter.at(seen.rows, seen.bytes);
        let (draft, begun) = Draft::open(to, source.at(), &keyspaces, &limiter, seen).await?;
        drop(meter);
        match &begun {
            Begun::Anew => {}
            Begun::Instead => complain(
                "an earlier backup was cut, and is of another snapshot than the source has: beginning anew, with the content of now",
            ),
            // It is said once the session takes it up.
            Begun::Behind(_) => {}
            Begun::Whole => complain("an earlier backup was cut when all was written"),
        }
        let mut target = Target::new(Arc::new(draft.clone()));
        if let Begun::Behind(resume) = &begun {
            target = target.resuming(resume.clone());
        }
        let mut moved = None;
        if begun != Begun::Whole {
            let transfer = Transfer {
                what: "backup",
                from,
                to,
                kept: &format!("what is written stays in {}", Draft::path(to).display()),
            };
            moved = Some(self.copy(source, target, &draft, &transfer).await?);
        }
        Ok(Fetched::Now(draft.written()?, moved))
    }

    /// Reads what is written, and gives it its name.
    async fn finish(&self, written: Written) -> Result<BackupFile, Failure> {
        let mut meter = Meter::new(AGAIN, Some(written.totals().bytes));
        let limiter = limiter(self.rate);
        let seen = |seen: Totals| meter.at(seen.rows, seen.bytes);
        let named = written.finish(&self.from, &limiter, seen);
        named.await.map_err(|error| {
            Failure::of_backup(&error, "it was written so that it could be read: see what is wrong with that disk, and type the same command again")
        })
    }

    /// Reads a backup that is there, before anybody is told that it is.
    async fn again(&self, file: BackupFile) -> Result<BackupFile, Failure> {
        let mut meter = Meter::new(AGAIN, Some(file.digest().1.bytes));
        let limiter = limiter(self.rate);
        let read = file.verify(&limiter, |seen| meter.at(seen.rows, seen.bytes));
        let advice = "move it away, and type the same command again";
        read.await
            .map_err(|error| Failure::of_backup(&error, advice))?;
        Ok(file)
    }

    async fn copy(
        &self,
        source: &Source,
        target: Target,
        draft: &Draft,
        transfer: &Transfer<'_>,
    ) -> Result<Moved, Failure> {
        let options = options(self.rate);
        let mut meter = Meter::new("backup", None);
        let copied = copy(source, target, &options, |it| meter.see(it)).await;
        let copied = match copied {
            Err(error) if error.kind() == ErrorKind::Corrupt(Damage::Resume) => {
                complain("the source has other rows than the backup that was cut: beginning anew");
                draft.restart()?;
                let target = Target::new(Arc::new(draft.clone()));
                copy(source, target, &options, |it| meter.see(it)).await
            }
            copied => copied,
        };
        copied
            .map(|copied| meter.moved(&copied.stats))
            .map_err(|error| transfer.failed(&error))
    }
}

/// A backup of the same content that has the name: what a command left that was killed when
/// it was done.
fn already(to: &Path, source: &Source) -> Result<Option<BackupFile>, Failure> {
    if !to.exists() {
        return Ok(None);
    }
    let found = BackupFile::open(to).ok();
    let Some(file) = found.filter(|it| it.at().id == source.at().id) else {
        return Err(BackupError::exists(to).into());
    };
    complain("the backup of this content is there already");
    Ok(Some(file))
}

fn tell(from: &str, file: &BackupFile, moved: Option<Moved>) {
    let manifest = Manifest::of(file);
    say(&format!(
        "backed up {from}: {}, as of {}\n{}file      {}\nmanifest  {}.toml\ndigest    {}",
        amount(manifest.rows, manifest.bytes),
        manifest.taken_at,
        moved_line(moved),
        file.path().display(),
        file.path().display(),
        manifest.digest
    ));
}

const EXAMPLES: &str = "\
Examples:
  pop-broker backup --from /var/lib/pop-broker --to /backups/
      Makes /backups/pop-broker-20261130T034500Z.backup and its manifest.
  pop-broker backup --from rocksdb:/var/lib/pop-broker --to /backups/monday.backup --rate 20M
      Leaves the disk to others.
  pop-broker backup --from tcp://127.0.0.1:8083 --to /backups/ --token-file /etc/pop-token
      Backs up a broker while it runs.

The folder itself says which store it holds; STORE: in front of it insists on one.

A backup has the bodies of all messages in plain text, and is readable for its owner alone:
keep it where the messages may be kept. Check a backup with `pop-broker restore --check`.

In a cron job give a folder, so that each run makes a backup of its own; or a name that the
job moves away. A name that has a backup of another moment is refused with exit code 1, and
the line says as of when that one is.";
