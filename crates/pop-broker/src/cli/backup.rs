//! `backup`: the content of a store, in one file.

use std::{
    fmt::Display,
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::Args;
use kv_restore::{Damage, ErrorKind, SnapshotId, Target};
use pop_broker::data::{self, ByteRate, SourceUrl};
use pop_broker::transfer::{
    Location, Manifest, Source, copy,
    file::{BackupError, BackupFile, Begun, Draft, PARTIAL},
    moment, place,
};

use super::{
    Exit, Failure, complain,
    exit::EXIT_CODES,
    progress::{Meter, amount},
    remote::Remote,
    say,
    transfer::{block_on, close, not_moved, now, open_source, options},
};

/// Copies the content of a broker into one file.
///
/// The file has everything: messages, topics and groups, offsets, what is out or to be
/// delivered again, dead letters, quarantine. It is the content of one moment. It is read
/// again and compared when it is written, and gets its name only then; beside it comes a
/// manifest, NAME.toml, that says what is in it.
///
/// What was cut is no loss: the same command goes on behind the last whole block, as long as
/// no broker was on the folder in between.
#[derive(Args, Debug)]
#[command(after_long_help = after_help())]
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
    /// In a folder it is called after the moment of the backup.
    #[arg(long, value_name = "FILE")]
    to: PathBuf,

    /// The most bytes a second, such as 20M; as fast as it goes if absent
    #[arg(long, value_name = "RATE")]
    rate: Option<ByteRate>,

    #[command(flatten)]
    remote: Remote,
}

impl Backup {
    pub(super) fn run(self) -> Result<(), Failure> {
        block_on(self.make())
    }

    async fn make(self) -> Result<(), Failure> {
        if self.from.contains("://") {
            return self.make_of_broker().await;
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
        let source = Source::of_store(&store, now(), None).await?;
        let file = self.make_of(&source).await?;
        drop(source);
        close(store.as_ref()).await?;
        tell(&from, &file);
        Ok(())
    }

    /// Of a broker that runs, which keeps the snapshot for us.
    async fn make_of_broker(self) -> Result<(), Failure> {
        let url = self.from.parse::<SourceUrl>();
        let url = url.map_err(|error| Failure::because(Exit::Usage, &error))?;
        let broker = data::Source::new(url, &self.remote.credentials()?)?;
        let held = broker.snapshot(self.cut()?).await?;
        let (at, peer) = (held.at.clone(), broker.peer());
        let source = Source::remote(at, peer, Arc::clone(&broker) as _, Box::new(()));
        let file = self.make_of(&source).await?;
        held.done().await;
        tell(broker.url(), &file);
        Ok(())
    }

    async fn make_of(&self, source: &Source) -> Result<BackupFile, Failure> {
        let to = self.file(source)?;
        match already(&to, source)? {
            Some(file) => Ok(file),
            None => self.write(source, &to).await,
        }
    }

    /// The snapshot of a backup that was cut, which its broker may still keep.
    fn cut(&self) -> Result<Option<SnapshotId>, Failure> {
        let drafts = match self.to.is_dir() {
            true => self.drafts()?,
            false => vec![self.to.clone()],
        };
        let mut snapshots = drafts.iter().filter_map(|it| Draft::snapshot_of(it));
        let draft = snapshots.next().map(|it| it.id);
        // A command that was killed when it was done left the backup itself.
        let done = || Some(BackupFile::open(&self.to).ok()?.at().id);
        Ok(draft.or_else(done))
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
        for to in self.drafts()? {
            let draft = Draft::snapshot_of(&to);
            if draft.is_some_and(|it| it.id == source.at().id) {
                return Ok(to);
            }
        }
        let taken: String = moment(now())
            .chars()
            .take_while(|it| *it != '.' && *it != 'Z')
            .filter(char::is_ascii_alphanumeric)
            .collect();
        Ok(self.to.join(format!("pop-broker-{taken}Z.backup")))
    }

    /// What was begun in the folder and is not done.
    fn drafts(&self) -> Result<Vec<PathBuf>, Failure> {
        let unreadable = |source| BackupError::Io {
            path: self.to.clone(),
            doing: "read",
            source,
        };
        let mut drafts = Vec::new();
        for entry in std::fs::read_dir(&self.to).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            let named = path.to_str().and_then(|it| it.strip_suffix(PARTIAL));
            drafts.extend(named.map(PathBuf::from));
        }
        Ok(drafts)
    }

    async fn write(&self, source: &Source, to: &Path) -> Result<BackupFile, Failure> {
        let keyspaces = pop_store::table::KEYSPACES;
        let (draft, begun) = Draft::open(to, source.at(), &keyspaces)?;
        match &begun {
            Begun::Anew => {}
            Begun::Instead => complain(
                "an earlier backup was cut, and the store has changed since: beginning anew",
            ),
            Begun::Behind(resume) => complain(&format!(
                "an earlier backup was cut: going on behind its first {}",
                amount(resume.totals.rows(), resume.totals.bytes())
            )),
            Begun::Whole => complain("an earlier backup was cut when all was written"),
        }
        let mut target = Target::new(Arc::new(draft.clone()));
        if let Begun::Behind(resume) = &begun {
            target = target.resuming(resume.clone());
        }
        if begun != Begun::Whole {
            let copied = self.copy(source, target, &draft).await;
            copied.map_err(|failure| {
                failure.with(&format!(
                    "; what is written stays in {}{PARTIAL}, and the same command goes on with it",
                    to.display()
                ))
            })?;
        }
        let mut meter = Meter::new("reading the backup again", None);
        Ok(draft.finish(|seen| meter.at(seen.rows, seen.bytes))?)
    }

    async fn copy(&self, source: &Source, target: Target, draft: &Draft) -> Result<(), Failure> {
        let options = options(self.rate);
        let mut meter = Meter::new("backup", None);
        let copied = copy(source, target, &options, |it| meter.at(it.rows, it.bytes)).await;
        let copied = match copied {
            Err(error) if error.kind() == ErrorKind::Corrupt(Damage::Resume) => {
                complain("the source has other rows than the backup that was cut: beginning anew");
                draft.restart()?;
                let target = Target::new(Arc::new(draft.clone()));
                copy(source, target, &options, |it| meter.at(it.rows, it.bytes)).await
            }
            copied => copied,
        };
        drop(meter);
        copied
            .map(|_| ())
            .map_err(|error| not_moved("backup", &error))
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
        return Err(BackupError::Exists(to.to_owned()).into());
    };
    complain("the backup of this content is there already: reading it again");
    let mut meter = Meter::new("reading the backup again", None);
    file.verify(|seen| meter.at(seen.rows, seen.bytes))?;
    drop(meter);
    Ok(Some(file))
}

fn tell(from: &impl Display, file: &BackupFile) {
    let manifest = Manifest::of(file);
    say(&format!(
        "backed up {from}: {}, as of {}\nfile      {}\nmanifest  {}.toml\ndigest    {}",
        amount(manifest.rows, manifest.bytes),
        manifest.taken_at,
        file.path().display(),
        file.path().display(),
        manifest.digest
    ));
}

fn after_help() -> String {
    format!("{EXAMPLES}\n\n{EXIT_CODES}")
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
keep it where the messages may be kept. Check a backup with `pop-broker restore --check`.";
