//! What `backup`, `restore` and `migrate` share: folders that are opened for a while.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use kv_restore::{Digest, Installed, Limiter, Target};
use pop_broker::{
    OpenStore,
    data::ByteRate,
    space::SEALS,
    stores::Backend,
    transfer::{
        CopyOptions, Location, Source, Whose, copy,
        place::{self, check_folder},
    },
};
use pop_model::{Clock, SystemClock};
use pop_store::Store;
use tokio::runtime::Builder;

use super::{
    Exit, Failure, complain,
    exit::exit_codes,
    outcome::{Origin, Transfer, UNCHANGED},
    progress::{Meter, Moved, PROGRESS, amount},
};
use crate::{
    config::{self, LogFormat},
    server::{self, draw},
};

/// What else decides how such a command works, for `--help`.
pub(super) const ENVIRONMENT: &str = "\
Environment:
  POP_LOG  what is logged on stderr, such as info or kv_restore=debug; warnings if it is not
           set";

/// The end of `--help`.
pub(super) fn help(examples: &str) -> String {
    let exit_codes = exit_codes();
    format!("{examples}\n\n{PROGRESS}\n\n{ENVIRONMENT}\n\n{exit_codes}")
}

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

/// What came of something that was done in this folder: where two are at work, an error has
/// to say of which it is.
pub(super) fn of<T>(folder: &Path, done: Result<T, impl Into<Failure>>) -> Result<T, Failure> {
    done.map_err(|error| error.into().at(folder.display()))
}

/// Opens a store that nobody else has open.
async fn open(opener: &dyn OpenStore, folder: &Path) -> Result<Arc<dyn Store>, Failure> {
    of(folder, opener.open().await)
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

/// Refuses `--not-owned` where it means nothing.
pub(super) fn of_folders_alone(not_owned: bool) -> Result<(), Failure> {
    match not_owned {
        true => Err(Failure::new(
            Exit::Usage,
            "--not-owned is of a folder: a broker that serves owns what it gives out",
        )),
        false => Ok(()),
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
        let has_data = !of(&to.folder, place::is_empty(store.as_ref()).await)?;
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
        wanted: &Digest,
        replace: bool,
        limiter: &Limiter,
    ) -> Result<bool, Failure> {
        if !self.may_have_it(replace) {
            return Ok(false);
        }
        let what = "comparing what the folder has";
        let found = totals(what, &self.folder, self.store.as_ref(), limiter).await?;
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
        from: Origin<'_>,
        rate: Option<ByteRate>,
        what: &'static str,
        total: Option<u64>,
    ) -> Result<(Installed, Moved), Failure> {
        let target = Target::new(Arc::clone(&self.store)).with_seals(SEALS);
        let mut meter = Meter::new(what, total);
        let filled = copy(source, target, &options(rate), |it| meter.see(it)).await;
        match filled {
            Ok(copied) => Ok((copied.installed, meter.moved(&copied.stats))),
            Err(error) => {
                let transfer = Transfer {
                    what,
                    from,
                    to: &self.folder,
                    kept: UNCHANGED,
                };
                Err(transfer.failed(&error))
            }
        }
    }
}

/// What the rows of a store add up to: that takes as long as to move them, and who waits is told
/// how far it is.
pub(super) async fn totals(
    what: &'static str,
    folder: &Path,
    store: &dyn Store,
    limiter: &Limiter,
) -> Result<Digest, Failure> {
    let mut meter = Meter::new(what, None);
    let totals = place::totals(store, limiter, |it| meter.at(it.rows(), it.bytes()));
    of(folder, totals.await)
}

/// Ends the use of the store in a folder.
pub(super) async fn close(folder: &Path, store: &dyn Store) -> Result<(), Failure> {
    of(folder, store.close().await)
}
