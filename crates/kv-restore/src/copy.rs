//! Copying the content of a store into another one, in one process, all or nothing.

use bytes::Bytes;
use pop_store::{Entry, Keyspace, Scan, Snapshot, Staging, Store};

use crate::{CopyError, Digest, Phase, digest, digest::Pages};

/// How a copy is made.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CopyOptions {
    /// The most bytes that are read and loaded at once.
    pub page_bytes: usize,
    /// Read the target back and compare digests. Needs a snapshot of the target.
    pub verify: bool,
}

impl Default for CopyOptions {
    fn default() -> Self {
        Self {
            page_bytes: 256 << 10,
            verify: true,
        }
    }
}

/// Makes `keyspaces` of `target` hold exactly what those of `source` hold now, and
/// returns the digest of it.
///
/// The rows are those of one moment of the source. The target has its old content until
/// it has all of the new one, whatever fails and wherever this future is dropped.
///
/// # Errors
///
/// [`CopyError`] says in which step, and so what the target holds.
///
/// # Cancel safety
///
/// Dropped before the switch, the target keeps its old content and the half-loaded one is
/// thrown away.
pub async fn copy(
    source: &dyn Store,
    target: &dyn Store,
    keyspaces: &[Keyspace],
    options: &CopyOptions,
) -> Result<Digest, CopyError> {
    let snapshot = source.snapshot().await.map_err(at(Phase::Snapshot))?;
    let mut staging = target
        .begin_replace(keyspaces)
        .await
        .map_err(at(Phase::Begin))?;
    let loaded = load(snapshot.as_ref(), staging.as_mut(), keyspaces, options).await;
    let copied = match loaded {
        Ok(copied) => copied,
        Err(error) => {
            // The first error is the one to tell; what is left is swept at the next open.
            let _ = staging.abort().await;
            return Err(error);
        }
    };
    staging.publish().await.map_err(at(Phase::Publish))?;
    if options.verify {
        verify(target, keyspaces, copied).await?;
    }
    Ok(copied)
}

async fn load(
    snapshot: &dyn Snapshot,
    staging: &mut dyn Staging,
    keyspaces: &[Keyspace],
    options: &CopyOptions,
) -> Result<Digest, CopyError> {
    let mut copied = Digest::default();
    for keyspace in keyspaces {
        let mut pages = Pages::new(
            Scan::all()
                .with_bytes_max(options.page_bytes)
                .with_entries_max(500),
        );
        let mut last: Option<Bytes> = None;
        while let Some(entries) = pages
            .next(snapshot, *keyspace)
            .await
            .map_err(at(Phase::Read))?
        {
            if !ascending(last.as_ref(), &entries) {
                return Err(CopyError::Order {
                    keyspace: *keyspace,
                });
            }
            for entry in &entries {
                copied.add(*keyspace, entry);
            }
            last = entries.last().map(|entry| entry.key.clone());
            staging
                .load(*keyspace, entries)
                .await
                .map_err(at(Phase::Load))?;
        }
    }
    Ok(copied)
}

async fn verify(
    target: &dyn Store,
    keyspaces: &[Keyspace],
    copied: Digest,
) -> Result<(), CopyError> {
    let snapshot = target.snapshot().await.map_err(at(Phase::Verify))?;
    let found = digest(snapshot.as_ref(), keyspaces)
        .await
        .map_err(at(Phase::Verify))?;
    if found == copied {
        return Ok(());
    }
    Err(CopyError::Differs {
        source_digest: copied,
        target_digest: found,
    })
}

fn ascending(last: Option<&Bytes>, entries: &[Entry]) -> bool {
    let keys = last
        .into_iter()
        .chain(entries.iter().map(|entry| &entry.key));
    keys.is_sorted_by(|left, right| left < right)
}

fn at(phase: Phase) -> impl Fn(pop_store::Error) -> CopyError {
    move |error| CopyError::Store { phase, error }
}
