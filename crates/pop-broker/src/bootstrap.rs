//! Starting a folder with the data of a running broker: as a copy, or as its next owner.

use std::sync::Arc;

use kv_restore::{
    Digest, Progress, RestoreStats, Seal, SnapshotId, SnapshotRef, Target, transport::Transport,
};
use pop_store::Store;

use crate::{
    BrokerError, Entropy, OpenStore,
    data::{ByteRate, Held, Source, SourceError},
    handover::machine::{self, TargetAction, TargetEvent},
    owner::{self, NotOwner, Receipt, Standing},
    space::{MetaError, SEALS, SpaceMeta},
    transfer::{self, Copied, CopyOptions, copy, place::is_empty},
};

/// What is to be made of the data.
#[derive(Clone)]
pub struct BootstrapOptions {
    /// Makes the folder the next owner, called so at the source; a copy if absent.
    pub handover: Option<String>,
    /// Takes the place of data that is there.
    pub replace: bool,
    /// How fast it may come.
    pub rate: ByteRate,
    /// Where identities are drawn from.
    pub entropy: Entropy,
}

impl std::fmt::Debug for BootstrapOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BootstrapOptions")
            .field("handover", &self.handover)
            .field("replace", &self.replace)
            .finish_non_exhaustive()
    }
}

/// What was made.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Bootstrapped {
    /// Which snapshot.
    pub at: SnapshotRef,
    /// What its rows add up to.
    pub totals: Digest,
    /// What was moved for it now, and where the time went.
    pub stats: RestoreStats,
    /// Whether it came earlier and only its handover was finished now.
    pub finished: bool,
}

/// Why nothing was made. Unless it says otherwise, the folder is as it was.
#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    /// The folder has data.
    #[error("the folder has data already: choose another, or add --replace to give that up")]
    NotEmpty,
    /// The folder waits for the receipt of a handover, which this is not.
    #[error(
        "the folder holds snapshot {snapshot} of a handover that was cut off, and it may be all \
         that is left of it: run the same `pop-broker bootstrap` again, with --handover, or \
         `pop-broker handover finish`; else choose another folder, or add --replace to give that up"
    )]
    Awaiting {
        /// What came.
        snapshot: SnapshotId,
    },
    /// The folder waits for a receipt, and the source does not say what became of that handover.
    #[error(
        "the folder holds snapshot {snapshot} of a handover that was cut off, and the source does \
         not say that it took that back ({error}): ask the source that it was of; if that is gone \
         for good, what is here may be all that is left: `pop-broker handover finish \
         --source-is-gone`; else choose another folder, or add --replace to give that up"
    )]
    NotTakenBack {
        /// What came.
        snapshot: SnapshotId,
        /// What the source said.
        error: SourceError,
    },
    /// The folder took over what was handed over to it, and is served or may be.
    #[error(
        "the folder took over snapshot {snapshot} already and is its owner, and the source does \
         not say that it gave it ({error}): serve the folder if that is what was wanted; else \
         choose another, or add --replace to give that up"
    )]
    Owned {
        /// What it took over.
        snapshot: SnapshotId,
        /// What the source said.
        error: SourceError,
    },
    /// The folder has a later owner than the source is.
    #[error(
        "the folder belongs to epoch {folder}, and the source is of epoch {source_epoch}: it is a \
         former owner, and what it has is older"
    )]
    StaleEpoch {
        /// That of the folder.
        folder: u64,
        /// That of the source.
        source_epoch: u64,
    },
    /// The source.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// What came is not a broker's.
    #[error("the source does not serve a broker's data: {0}")]
    Meta(#[from] MetaError),
    /// The transfer.
    #[error(transparent)]
    Restore(#[from] kv_restore::RestoreError),
    /// Everything is here, and the source did not say that it let go of it.
    #[error(
        "everything came and waits in the folder, but the source may still serve ({0}): run the \
         same command again; or, if the source is retired, start it to be told the receipt and \
         give that to `pop-broker handover finish`"
    )]
    NoReceipt(#[source] SourceError),
    /// The folder.
    #[error(transparent)]
    Broker(#[from] BrokerError),
}

impl From<pop_store::Error> for BootstrapError {
    fn from(error: pop_store::Error) -> Self {
        Self::Broker(error.into())
    }
}

/// Fills the folder of `opener` with the data of `source`. `watch` is told how far it is.
///
/// # Errors
///
/// [`BootstrapError`].
///
/// # Cancel safety
///
/// Dropped, the folder has its old content or the new one, whole. A handover that was cut
/// off is gone on with by the next one.
pub async fn bootstrap(
    source: &Arc<Source>,
    opener: &dyn OpenStore,
    options: &BootstrapOptions,
    watch: impl FnMut(&Progress),
) -> Result<Bootstrapped, BootstrapError> {
    let store = opener.open().await?;
    let made = fill(source, &store, options, watch).await;
    let closed = store.close().await;
    let made = made?;
    closed?;
    Ok(made)
}

async fn fill(
    source: &Arc<Source>,
    store: &Arc<dyn Store>,
    options: &BootstrapOptions,
    watch: impl FnMut(&Progress),
) -> Result<Bootstrapped, BootstrapError> {
    let rows = owner::Rows::read(store).await?;
    let standing = rows.standing();
    let url = source.url().to_string();
    // What is here counts for something, unless this source gave it, and goes on from there.
    let spare = match (&standing, &options.handover) {
        (Standing::Awaiting { seal, .. }, Some(_)) => {
            if let Some(made) = go_on(source, store, seal, options.replace).await? {
                return Ok(made);
            }
            true
        }
        (Standing::Awaiting { seal, .. }, None) if !options.replace => {
            let snapshot = seal.snapshot;
            return Err(BootstrapError::Awaiting { snapshot });
        }
        (Standing::Own(_), Some(_)) => {
            if let Some((seal, receipt)) = rows.taken()
                && let Some(made) = is_done(source, seal, receipt, options).await?
            {
                return Ok(made);
            }
            false
        }
        // Complete, and never served.
        (Standing::Copy(_), _) => rows.came_from(&url),
        _ => false,
    };
    if !spare && !options.replace && !is_empty(store.as_ref()).await? {
        return Err(BootstrapError::NotEmpty);
    }
    let held = match &options.handover {
        // What an earlier command was sent of a snapshot that the source still keeps does not
        // come again.
        None => {
            let begun = Target::new(Arc::clone(store)).begun().await?;
            source.snapshot(begun).await?
        }
        Some(to) => source.handover(to).await?,
    };
    SpaceMeta::from_bytes(&held.at.meta)?;
    // What is handed over must be ahead of what is here, and a copy not behind it.
    let behind = match options.handover {
        Some(_) if !spare => held.at.epoch <= standing.epoch(),
        _ => held.at.epoch < standing.epoch(),
    };
    if behind {
        return Err(BootstrapError::StaleEpoch {
            folder: standing.epoch().0,
            source_epoch: held.at.epoch.0,
        });
    }
    let filling = rows.filling(held.at.id, url);
    owner::note_filling(store.as_ref(), &filling).await?;
    let Copied { installed, stats } = install(source, store, &held.at, options, watch).await?;
    let totals = installed.seal.totals;
    if options.handover.is_some() {
        take_over(source, store, &held, &totals).await?;
    }
    let at = held.at.clone();
    held.done().await;
    Ok(Bootstrapped {
        at,
        totals,
        stats,
        finished: false,
    })
}

/// Finishes a handover that was cut off, if its source let go of what is here; `None` if that
/// took it back, or what is here is to be given up.
async fn go_on(
    source: &Source,
    store: &Arc<dyn Store>,
    seal: &Seal,
    replace: bool,
) -> Result<Option<Bootstrapped>, BootstrapError> {
    let at = crate::space::of_seal(seal)?;
    let receipt = match source.receipt(&at).await {
        Ok(receipt) => receipt,
        // It serves, so that what is here is not the last any more.
        Err(SourceError::TakenBack(_)) => return Ok(None),
        Err(SourceError::Refused { busy: false, .. }) if replace => return Ok(None),
        Err(error @ SourceError::Refused { busy: false, .. }) => {
            let snapshot = at.id;
            return Err(BootstrapError::NotTakenBack { snapshot, error });
        }
        Err(error) => return Err(error.into()),
    };
    adopt(machine::Target::Awaiting, store, &receipt).await?;
    Ok(Some(finished(at, seal)))
}

/// Whether this very handover came to its end before, as when the command was killed before
/// it said so.
async fn is_done(
    source: &Source,
    seal: &Seal,
    digest: &str,
    options: &BootstrapOptions,
) -> Result<Option<Bootstrapped>, BootstrapError> {
    let at = crate::space::of_seal(seal)?;
    match source.receipt(&at).await {
        Ok(receipt) if Receipt::read(&receipt).is_some_and(|it| it.digest() == digest) => {
            Ok(Some(finished(at, seal)))
        }
        Err(error) if !options.replace => Err(BootstrapError::Owned {
            snapshot: at.id,
            error,
        }),
        // The folder has data, or is to have others.
        _ => Ok(None),
    }
}

fn finished(at: SnapshotRef, seal: &Seal) -> Bootstrapped {
    Bootstrapped {
        at,
        totals: seal.totals,
        stats: RestoreStats::default(),
        finished: true,
    }
}

/// Moves the rows, all or none.
async fn install(
    source: &Arc<Source>,
    store: &Arc<dyn Store>,
    at: &SnapshotRef,
    options: &BootstrapOptions,
    watch: impl FnMut(&Progress),
) -> Result<Copied, BootstrapError> {
    let entropy = Arc::clone(&options.entropy);
    let chance = Arc::new(move || {
        let mut bytes = [0; 8];
        entropy(&mut bytes);
        u64::from_be_bytes(bytes)
    });
    let rows = transfer::Source::remote(
        at.clone(),
        source.peer(),
        Arc::clone(source) as Arc<dyn Transport>,
        // The caller keeps it, who has more to say about it.
        Box::new(()),
    );
    let target = Target::new(Arc::clone(store)).with_seals(SEALS);
    let options = CopyOptions::new(chance).with_rate(options.rate.bytes_per_second());
    Ok(copy(&rows, target, &options, watch).await?)
}

/// Has the source let go of what is here, and makes it the folder's own.
async fn take_over(
    source: &Source,
    store: &Arc<dyn Store>,
    held: &Held,
    totals: &Digest,
) -> Result<(), BootstrapError> {
    let (state, action) = machine::Target::Empty.step(TargetEvent::Installed);
    debug_assert_eq!(action, Some(TargetAction::Tell), "it is installed");
    let receipt = match held.retire(totals).await {
        Ok(receipt) => receipt,
        // It may have let go and only its answer be lost.
        Err(error) => match source.receipt(&held.at).await {
            Ok(receipt) => receipt,
            Err(_) => return Err(BootstrapError::NoReceipt(error)),
        },
    };
    adopt(state, store, &receipt).await
}

async fn adopt(
    state: machine::Target,
    store: &Arc<dyn Store>,
    receipt: &str,
) -> Result<(), BootstrapError> {
    let (state, action) = state.step(TargetEvent::Receipt);
    debug_assert_eq!(action, Some(TargetAction::Adopt), "the receipt is here");
    let receipt = Receipt::read(receipt).ok_or(NotOwner::Nothing(
        "what the source told is no receipt: use programs of the same version on both sides",
    ));
    let receipt = receipt.map_err(BrokerError::from)?;
    let finished = owner::finish(store, Some(receipt)).await;
    let (state, _) = state.step(match &finished {
        Ok(_) => TargetEvent::Adopted,
        Err(_) => TargetEvent::Failed,
    });
    tracing::info!(?state, "what was handed over was to be taken");
    finished?;
    Ok(())
}

#[cfg(test)]
mod tests;
