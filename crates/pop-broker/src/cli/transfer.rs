//! What `backup`, `restore` and `migrate` share: folders that are opened for a while, and
//! errors that say what to do.

use std::{
    error::Error as _,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use kv_restore::{ErrorKind, Installed, Limiter, RestoreError, Target};
use pop_broker::{
    OpenStore,
    data::ByteRate,
    space::SEALS,
    stores::Backend,
    transfer::{
        CopyOptions, Location, LocationError, Source, SourceError, Whose, copy,
        file::BackupError,
        place::{self, check_folder},
    },
};
use pop_model::{Clock, SystemClock};
use pop_store::Store;
use tokio::runtime::Builder;

use super::{
    Exit, Failure, complain,
    progress::{Meter, Moved, amount},
};
use crate::{
    config::{self, LogFormat},
    server::{self, draw},
};

/// Runs a command that waits for disks.
///
/// What goes on below is logged on stderr beside the bar: warnings, or what `POP_LOG` says.
pub(super) fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let filter = std::env::var("POP_LOG");
    let filter = config::log_filter(filter.as_deref().unwrap_or("warn"))?;
    server::log::start(filter, LogFormat::Text);
    let runtime = Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::because(Exit::Failed, &error))?;
    runtime.block_on(work)
}

/// The moment that a snapshot is taken.
pub(super) fn now() -> i64 {
    SystemClock::resume(None).wall().as_unix_millis()
}

/// How rows are moved.
pub(super) fn options(rate: Option<ByteRate>) -> CopyOptions {
    let chance = || {
        let mut bytes = [0; 8];
        draw(&mut bytes);
        u64::from_be_bytes(bytes)
    };
    CopyOptions::new(Arc::new(chance)).with_rate(rate.map_or(0, ByteRate::bytes_per_second))
}

/// How fast anything is read that is not moved: what is compared or read again.
pub(super) fn limiter(rate: Option<ByteRate>) -> Limiter {
    Limiter::new(rate.map_or(0, ByteRate::bytes_per_second))
}

/// Opens a store that nobody else has open.
async fn open(opener: &dyn OpenStore, folder: &Path) -> Result<Arc<dyn Store>, Failure> {
    let opened = opener.open().await;
    opened.map_err(|error| Failure::from(error).at(folder))
}

/// Opens the store to copy from, which must be there.
pub(super) async fn open_source(from: &Location) -> Result<(Backend, Arc<dyn Store>), Failure> {
    let store = from.existing()?;
    let opener = store.opener(&from.folder)?;
    Ok((store, open(opener.as_ref(), &from.folder).await?))
}

/// Whose content is copied, by the flag for it.
pub(super) fn whose(not_owned: bool) -> Whose {
    match not_owned {
        true => Whose::Anybody,
        false => Whose::Owner,
    }
}

/// A store that is to get another content.
pub(super) struct Destination {
    pub(super) store: Arc<dyn Store>,
    pub(super) backend: Backend,
    folder: PathBuf,
    has_data: bool,
}

impl Destination {
    /// Opens the folder, or makes it.
    pub(super) async fn open(to: &Location, usual: Backend) -> Result<Self, Failure> {
        let backend = to.wanted(usual)?;
        check_folder(&to.folder)?;
        let opener = backend.filler(&to.folder)?;
        let store = open(opener.as_ref(), &to.folder).await?;
        let has_data = !place::is_empty(store.as_ref()).await?;
        Ok(Self {
            store,
            backend,
            folder: to.folder.clone(),
            has_data,
        })
    }

    /// Whether it has data that are not to be replaced, and that may be what is wanted.
    pub(super) fn may_have_it(&self, replace: bool) -> bool {
        self.has_data && !replace
    }

    /// Whether it has the content of `source` already, as after a command that was killed
    /// when it was done. Data that it has otherwise is not touched unless told.
    pub(super) async fn is_filled(
        &self,
        to: &Location,
        wanted: &kv_restore::Digest,
        replace: bool,
        limiter: &Limiter,
    ) -> Result<bool, Failure> {
        if !self.may_have_it(replace) {
            return Ok(false);
        }
        let found = place::totals(self.store.as_ref(), limiter).await?;
        if found == *wanted {
            complain("the folder has this content already");
            return Ok(true);
        }
        Err(Failure::new(
            Exit::Failed,
            format!(
                "folder {} has data already ({}); nothing was changed: choose another folder, or add --replace to put the other content in its place",
                to.folder.display(),
                amount(found.rows(), found.bytes())
            ),
        ))
    }

    /// Puts the content of `source` in the place of whatever it has.
    pub(super) async fn fill(
        &self,
        source: &Source,
        rate: Option<ByteRate>,
        what: &'static str,
        total: Option<u64>,
    ) -> Result<(Installed, Moved), Failure> {
        let target = Target::new(Arc::clone(&self.store)).with_seals(SEALS);
        let mut meter = Meter::new(what, total);
        let filled = copy(source, target, &options(rate), |it| meter.see(it)).await;
        match filled {
            Ok(copied) => Ok((copied.installed, meter.moved(&copied.stats))),
            Err(error) => Err(not_moved(what, &error).at(&self.folder)),
        }
    }
}

/// Ends the use of a store.
pub(super) async fn close(store: &dyn Store) -> Result<(), Failure> {
    Ok(store.close().await?)
}

/// A session that failed, as an operator sees it: who speaks with whom is nobody's concern.
pub(super) fn not_moved(what: &str, error: &RestoreError) -> Failure {
    let mut text = format!("{what} failed: {}", error.kind());
    if !error.detail().is_empty() {
        text.push_str(&format!(": {}", error.detail()));
    }
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text.push_str(&format!(": {next}"));
        }
        cause = error.source();
    }
    let exit = match error.kind() {
        ErrorKind::Begin
        | ErrorKind::Staging
        | ErrorKind::NoSpace
        | ErrorKind::Commit(_)
        | ErrorKind::Corrupt(_)
        | ErrorKind::PeerAborted(_) => Exit::FolderUnusable,
        _ => Exit::Failed,
    };
    let failure = Failure::new(exit, text).advised(error);
    let failure = match error.kind() {
        ErrorKind::SourceGone => failure.with(
            "; a broker keeps a snapshot for as long as --data-snapshot-age-max allows, 6 hours if it does not say: give it more, or choose a higher --rate",
        ),
        _ => failure,
    };
    match error.kind() {
        ErrorKind::Commit(kv_restore::Switch::InDoubt) | ErrorKind::Stalled => failure,
        _ => failure.with("; what was there before is unchanged"),
    }
}

impl From<LocationError> for Failure {
    fn from(error: LocationError) -> Self {
        let exit = match &error {
            LocationError::Unknown { .. } => Exit::FolderForeign,
            LocationError::Unreadable { .. } => Exit::FolderUnusable,
            _ => Exit::Usage,
        };
        Self::because(exit, &error)
    }
}

impl From<SourceError> for Failure {
    fn from(error: SourceError) -> Self {
        match error {
            SourceError::Store(error) => error.into(),
            error @ SourceError::NotOwner(_) => Self::because(Exit::NotOwner, &error),
            other => Self::because(Exit::Failed, &other),
        }
    }
}

impl From<BackupError> for Failure {
    fn from(error: BackupError) -> Self {
        let exit = match &error {
            BackupError::NotABackup(_) => Exit::Usage,
            BackupError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                Exit::Usage
            }
            BackupError::Version { .. } | BackupError::Foreign { .. } => Exit::FolderForeign,
            BackupError::InUse(_) => Exit::FolderInUse,
            BackupError::Cut { .. } | BackupError::Damaged { .. } | BackupError::Io { .. } => {
                Exit::FolderUnusable
            }
            _ => Exit::Failed,
        };
        Self::because(exit, &error)
    }
}
