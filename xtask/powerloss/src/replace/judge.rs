//! What is left of the contents, held against what was promised of them.

use anyhow::{Context, Result};
use pop_store::{Entry, Scan, Store, StoreExt, backend::engine::Space};

use super::{KEYSPACES, PARTS, STAGED, load, name, parts, rows};
use crate::{
    marks::{Mark, RawMark, ReplaceMark},
    raw,
    stores::Opener,
};

/// Opens what a power cut left, twice. In between it goes on with the content that was begun
/// last, where `goes_on` says so; else the first open has to sweep it.
pub(crate) async fn judge(
    opener: &Opener,
    marks: &[Mark],
    goes_on: bool,
    violations: &mut Vec<String>,
) -> Result<()> {
    let promises = Promises::of(marks);
    let store = opener.clone().keeping_staging(goes_on).store().await?;
    let mut version = content(&*store, violations).await?;
    promises.hold_against(version, violations);
    let lanes = raw::survivors(&*store, violations).await?;
    raw::judge(&Promises::in_order(marks, version), &lanes, violations);
    if goes_on && let Some(begun) = promises.begun {
        go_on(&*store, &promises, version, begun, violations).await?;
        version = begun;
    }
    store.close().await?;

    let (spaces, store) = opener.store_with_spaces().await?;
    check_spaces(&spaces, violations);
    let again = content(&*store, violations).await?;
    if again != version {
        violations.push(format!(
            "content {version} was in use, and content {again} after another open"
        ));
    }
    if raw::survivors(&*store, violations).await? != lanes {
        violations.push("another open found other rows in the other keyspaces".to_owned());
    }
    store.close().await?;
    Ok(())
}

/// Loads what is missing of content `begun` and publishes it.
async fn go_on(
    store: &dyn Store,
    promises: &Promises,
    in_use: u64,
    begun: u64,
    violations: &mut Vec<String>,
) -> Result<()> {
    let resumed = store.resume_replace(&STAGED, name(begun)).await;
    let resumed = resumed.context("no content can be begun")?;
    let found = parts(resumed.point.as_deref())?;
    promises.hold_parts_against(in_use, found, violations);
    let mut staging = resumed.staging;
    load(&mut *staging, begun, found, PARTS).await?;
    staging.publish().await?;
    if content(store, violations).await? != begun {
        violations.push(format!(
            "content {begun} was gone on with after {found} parts, and is not what is in use then"
        ));
    }
    Ok(())
}

/// The number of the content in use; what it has besides its rows, or not, is a violation.
async fn content(store: &dyn Store, violations: &mut Vec<String>) -> Result<u64> {
    let mut found = Vec::new();
    for keyspace in STAGED {
        let mut rows = Vec::new();
        let read = store
            .for_each_page(keyspace, Scan::all(), |page| {
                rows.extend(page);
                Ok::<_, pop_store::Error>(true)
            })
            .await;
        read.with_context(|| format!("{keyspace} can't be read"))?;
        found.push((keyspace, rows));
    }
    let version = found
        .first()
        .and_then(|(_, rows)| number(rows.first()?))
        .unwrap_or(0);
    for (keyspace, found) in found {
        let expected = rows(version, keyspace);
        if found != expected {
            let of: Vec<_> = found.iter().filter_map(number).collect();
            violations.push(format!(
                "a mixture: content {version} has {} rows in {keyspace}, and there are {}, of contents {:?} to {:?}",
                expected.len(),
                found.len(),
                of.iter().min(),
                of.iter().max()
            ));
        }
    }
    Ok(version)
}

/// Of which content a row is.
fn number(row: &Entry) -> Option<u64> {
    let (number, _) = row.value.split_first_chunk()?;
    Some(u64::from_be_bytes(*number))
}

/// One space a keyspace and one of the store: what was staged is gone, and what was replaced.
fn check_spaces(spaces: &[Space], violations: &mut Vec<String>) {
    let has_one = KEYSPACES.iter().all(|keyspace| {
        let mut of = spaces.iter().filter_map(|it| it.name().split_once('@'));
        of.any(|(name, _)| name == keyspace.name())
    });
    if !has_one || spaces.len() != KEYSPACES.len() + 1 {
        violations.push(format!("litter: the engine has the spaces {spaces:?}"));
    }
}

/// What was said of contents when the power went.
#[derive(Debug, Default, PartialEq, Eq)]
struct Promises {
    /// The last one that was answered.
    published: u64,
    /// The one that may be in use as well.
    publishing: Option<u64>,
    /// The last one that was ever checkpointed.
    begun: Option<u64>,
    /// At most so many of its parts are kept.
    parts_max: u64,
    /// At least so many, unless it is in use.
    parts_min: u64,
}

impl Promises {
    fn of(marks: &[Mark]) -> Self {
        let mut promises = Self::default();
        for mark in marks {
            let Mark::Replace(mark) = mark else { continue };
            match *mark {
                ReplaceMark::Keeping { version, parts } => {
                    if promises.begun.replace(version) != Some(version) {
                        promises.parts_min = 0;
                    }
                    promises.parts_max = parts;
                }
                ReplaceMark::Kept { parts, .. } => promises.parts_min = parts,
                ReplaceMark::Ending { .. } => promises.parts_min = 0,
                // Rows that are in place before the switch are not gone back from.
                ReplaceMark::Publishing { version } => {
                    promises.publishing = Some(version);
                    promises.parts_min = 0;
                }
                // Its switch is synced, and ends whatever was kept.
                ReplaceMark::Published { version } => {
                    promises.published = version;
                    promises.publishing = None;
                    (promises.parts_min, promises.parts_max) = (0, 0);
                }
            }
        }
        promises
    }

    fn hold_against(&self, version: u64, violations: &mut Vec<String>) {
        if version != self.published && Some(version) != self.publishing {
            violations.push(format!(
                "content {version} is in use, and {} was published last{}",
                self.published,
                match self.publishing {
                    Some(next) => format!(", {next} perhaps"),
                    None => String::new(),
                }
            ));
        }
    }

    fn hold_parts_against(&self, in_use: u64, found: u64, violations: &mut Vec<String>) {
        let is_over = Some(in_use) == self.publishing;
        let allowed = match is_over {
            true => 0..=0,
            false => self.parts_min..=self.parts_max,
        };
        if !allowed.contains(&found) {
            violations.push(format!(
                "content {:?} goes on after {found} parts, and not after {allowed:?}",
                self.begun
            ));
        }
    }

    /// The marks, with every batch that was answered before the content in use was published
    /// as one that was synced: the switch syncs all that is before it.
    fn in_order(marks: &[Mark], version: u64) -> Vec<Mark> {
        let switch = Mark::Replace(ReplaceMark::Publishing { version });
        let before = marks.iter().position(|it| *it == switch).unwrap_or(0);
        let mut marks = marks.to_vec();
        for mark in marks.iter_mut().take(before) {
            if let Mark::Raw(RawMark::Done { synced, .. }) = mark {
                *synced = true;
            }
        }
        marks
    }
}
