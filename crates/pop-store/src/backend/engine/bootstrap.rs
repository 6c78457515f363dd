//! What happens between an engine's open and a store's first call: the format is checked,
//! leftovers of a crash are swept, the keyspaces are there.

use bytes::Bytes;

use super::{
    Changes, Engine, OpenOptions, Operation, Space,
    checkpoint::Checkpoint,
    layout::Layout,
    record::{self, FORMAT, FORMAT_VERSION, LAYOUT, SEQUENCE, STAGING},
};
use crate::{Error, ErrorKind, Keyspace, Result, backend::folder::HighWater};

/// Where a store starts from.
#[derive(Debug)]
pub(super) struct Start {
    pub(super) layout: Layout,
    pub(super) sequence: u64,
    /// A staging that may be resumed.
    pub(super) kept: Option<Checkpoint>,
}

/// Readies `engine` for a store with `keyspaces`.
pub(super) fn bootstrap<E: Engine>(
    engine: &E,
    high_water: Option<&mut HighWater>,
    options: &OpenOptions,
) -> Result<Start> {
    let keyspaces = &options.keyspaces;
    let mut boot = Boot {
        engine,
        high_water,
        system: Space::system(),
        spaces: engine.spaces()?,
    };
    let Found {
        has_format,
        mut sequence,
        mut layout,
    } = boot.found()?;
    engine.open_space(&boot.system)?;
    if !has_format {
        // Before any other space: spaces without a format are a damage.
        sequence += 1;
        boot.record(&layout, sequence)?;
    }
    let mut kept = None;
    if let Some(sealed) = engine.get(&boot.system, STAGING)? {
        kept = boot.keepable(&sealed, &layout, options);
        if kept.is_none() {
            // Before its spaces go: the record must not speak of later ones of their names.
            sequence += 1;
            boot.forget_staging(sequence)?;
        }
    }
    boot.sweep(&layout, kept.as_ref())?;
    if boot.open_keyspaces(&mut layout, keyspaces)? {
        sequence += 1;
        boot.record(&layout, sequence)?;
    }
    Ok(Start {
        layout,
        sequence,
        kept,
    })
}

/// Whether a store on `engine` would find all that was synced. Changes nothing.
#[cfg(feature = "rocksdb")]
pub(crate) fn holds_what_was_synced<E: Engine>(
    engine: &E,
    high_water: &mut HighWater,
) -> Result<()> {
    let boot = Boot {
        engine,
        high_water: Some(high_water),
        system: Space::system(),
        spaces: engine.spaces()?,
    };
    boot.found().map(drop)
}

/// What an open finds, which is all that was synced.
struct Found {
    has_format: bool,
    sequence: u64,
    layout: Layout,
}

struct Boot<'a, E> {
    engine: &'a E,
    high_water: Option<&'a mut HighWater>,
    system: Space,
    spaces: Vec<Space>,
}

impl<E: Engine> Boot<'_, E> {
    fn error(&self, kind: ErrorKind) -> Error {
        Error::new(kind, self.engine.name(), "open")
    }

    fn damaged(&self, record: &[u8]) -> Error {
        self.error(ErrorKind::Corrupt).with_detail(format!(
            "the {} record is damaged; restore the folder from a backup",
            record.escape_ascii()
        ))
    }

    fn found(&self) -> Result<Found> {
        let has_format = self.is_begun() && self.check_format()?;
        let sequence = self.sequence()?;
        self.check_history(sequence)?;
        Ok(Found {
            has_format,
            sequence,
            layout: self.layout()?,
        })
    }

    /// Whether the store's own space is there.
    fn is_begun(&self) -> bool {
        self.spaces.contains(&self.system)
    }

    fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        match self.is_begun() {
            true => self.engine.get(&self.system, key),
            false => Ok(None),
        }
    }

    fn number(&self, key: &[u8]) -> Result<Option<u64>> {
        let Some(sealed) = self.get(key)? else {
            return Ok(None);
        };
        match record::unseal_number(&sealed) {
            Some(number) => Ok(Some(number)),
            None => Err(self.damaged(key)),
        }
    }

    /// Whether the format record is there. It is absent only if the first open was cut short.
    fn check_format(&self) -> Result<bool> {
        match self.number(FORMAT)? {
            Some(FORMAT_VERSION) => Ok(true),
            Some(version) => Err(self.error(ErrorKind::Incompatible).with_detail(format!(
                "the folder has format {version}, this program reads format {FORMAT_VERSION}: \
                 use the version of the program that wrote it, or dump there and restore here"
            ))),
            None if self.spaces.len() > 1 => Err(self.damaged(FORMAT)),
            None => Ok(false),
        }
    }

    fn sequence(&self) -> Result<u64> {
        Ok(self.number(SEQUENCE)?.unwrap_or(0))
    }

    /// A history that ends before what was synced was cut: by a damaged log that the engine
    /// recovered by leaving off its end, by a lost file, by an old copy of the folder.
    fn check_history(&self, found: u64) -> Result<()> {
        let synced = self.high_water.as_ref().map_or(0, |it| it.sequence());
        if found >= synced {
            return Ok(());
        }
        Err(self.error(ErrorKind::Corrupt).with_detail(format!(
            "the history ends at group {found}, but group {synced} was synced: the engine's log \
             is damaged or files are missing; restore the folder from a backup"
        )))
    }

    fn layout(&self) -> Result<Layout> {
        let Some(sealed) = self.get(LAYOUT)? else {
            return Ok(Layout::default());
        };
        let layout = Layout::decode(&sealed).ok_or_else(|| self.damaged(LAYOUT))?;
        if let Some(lost) = layout.spaces().find(|it| !self.spaces.contains(it)) {
            return Err(self.error(ErrorKind::Corrupt).with_detail(format!(
                "space {lost} is in use and missing; restore the folder from a backup"
            )));
        }
        Ok(layout)
    }

    /// A checkpointed staging that may be resumed.
    fn keepable(
        &self,
        sealed: &[u8],
        layout: &Layout,
        options: &OpenOptions,
    ) -> Option<Checkpoint> {
        let found = Checkpoint::decode(sealed);
        // Nothing that is in use is kept by it, so a damaged one costs a load and no more.
        let kept = found.filter(|it| {
            let is_there = |space| self.spaces.contains(&space);
            options.keep_staging && it.is_next_to(layout) && it.spaces().all(is_there)
        });
        if kept.is_none() {
            tracing::info!(store = self.engine.name(), "sweeping a staging");
        }
        kept
    }

    fn forget_staging(&mut self, sequence: u64) -> Result<()> {
        self.apply(vec![(STAGING, None)], sequence)
    }

    /// Drops what a crash left: stagings that are not kept, generations out of use.
    fn sweep(&mut self, layout: &Layout, kept: Option<&Checkpoint>) -> Result<()> {
        let kept: Vec<_> = kept.into_iter().flat_map(Checkpoint::spaces).collect();
        for space in std::mem::take(&mut self.spaces) {
            let is_used = layout.spaces().chain(&kept).any(|used| *used == space);
            if space != self.system && !is_used {
                tracing::info!(store = self.engine.name(), %space, "sweeping an unused space");
                self.engine.drop_space(&space)?;
            }
        }
        self.engine.sweep_bulk_loads(&kept)
    }

    /// Whether a keyspace was added.
    fn open_keyspaces(&self, layout: &mut Layout, keyspaces: &[Keyspace]) -> Result<bool> {
        let mut changed = false;
        for &keyspace in keyspaces {
            if layout.space(keyspace).is_none() {
                layout.advance(keyspace);
                changed = true;
            }
        }
        for space in layout.spaces() {
            self.engine.open_space(space)?;
        }
        Ok(changed)
    }

    fn record(&mut self, layout: &Layout, sequence: u64) -> Result<()> {
        let format = record::seal_number(FORMAT_VERSION);
        let records = vec![(FORMAT, Some(format)), (LAYOUT, Some(layout.encode()))];
        self.apply(records, sequence)
    }

    /// Writes the store's own records, synced, as group `sequence`.
    fn apply(
        &mut self,
        mut records: Vec<(&'static [u8], Option<Bytes>)>,
        sequence: u64,
    ) -> Result<()> {
        records.push((SEQUENCE, Some(record::seal_number(sequence))));
        let operations = records.into_iter().map(|(key, value)| Operation {
            space: self.system.clone(),
            key: Bytes::from_static(key),
            value,
        });
        let changes = Changes {
            operations: operations.collect(),
            ..Changes::default()
        };
        self.engine.apply(&changes, true)?;
        let recorded = match &mut self.high_water {
            Some(high_water) => high_water.record(sequence),
            None => Ok(()),
        };
        recorded.map_err(|error| self.error(ErrorKind::Unavailable).with_source(error))
    }
}
