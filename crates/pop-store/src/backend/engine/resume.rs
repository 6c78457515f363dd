//! Stagings that outlive their process: the record of the last checkpoint, and the way back
//! to just the rows that it speaks of.

use bytes::Bytes;

use super::{
    Changes, Engine, Operation, Space,
    checkpoint::{Checkpoint, Mark},
    record,
    writer::Writer,
};
use crate::{Entry, ErrorKind, Keyspace, Result, Scan, WriteBatch};

impl<E: Engine> Writer<E> {
    /// Records how far the open staging has come, synced with all that it wrote before.
    pub(super) fn checkpoint(&mut self, id: u64, checkpoint: Checkpoint) -> Result<()> {
        let open = self.staging.as_ref().is_some_and(|it| it.is(id));
        if !open {
            return Err(self
                .core
                .error(ErrorKind::Invalid, "checkpoint")
                .with_detail("the staging is over"));
        }
        let record = Operation {
            space: self.system.clone(),
            key: Bytes::from_static(record::STAGING),
            value: Some(checkpoint.encode()),
        };
        let changes = Changes {
            operations: vec![record],
            ..Changes::default()
        };
        self.admit(checkpoint.point.len())?;
        self.commit("checkpoint", changes, true)?;
        if let Some(staged) = &mut self.staging {
            staged.set_checkpoint(checkpoint);
        }
        Ok(())
    }

    /// Goes back to the checkpoint that was kept under `name`, if there is one of these
    /// keyspaces. It stays kept.
    pub(super) fn resume(
        &mut self,
        keyspaces: &[Keyspace],
        name: Option<&Bytes>,
    ) -> Result<Option<Checkpoint>> {
        let kept = self.kept.clone();
        let kept = kept.filter(|it| Some(&it.name) == name && it.is_of(keyspaces));
        let Some(checkpoint) = kept else {
            return Ok(None);
        };
        for (keyspace, mark) in &checkpoint.marks {
            let space = Space::new(keyspace, mark.generation);
            if !self.go_back(&space, mark)? {
                tracing::warn!(%space, "a staging can't be resumed and is begun anew");
                return Ok(None);
            }
        }
        Ok(Some(checkpoint))
    }

    /// Drops what was loaded into `space` after its mark.
    fn go_back(&mut self, space: &Space, mark: &Mark) -> Result<bool> {
        if self.engine.has_bulk_load() {
            return self.read_engine(|engine| engine.resume_bulk_load(space, mark.files));
        }
        let mut scan = match &mark.last {
            Some(last) => Scan::from([last, &[0][..]].concat()),
            None => Scan::all(),
        };
        scan = scan.with_entries_max(WriteBatch::KEYS_MAX);
        loop {
            let rows = self.read_engine(|engine| engine.scan(space, &scan))?;
            if rows.is_empty() {
                return Ok(true);
            }
            let delete = |row: Entry| Operation {
                space: space.clone(),
                key: row.key,
                value: None,
            };
            let changes = Changes {
                operations: rows.into_iter().map(delete).collect(),
                ..Changes::default()
            };
            self.commit("resume_replace", changes, false)?;
        }
    }

    /// Throws away what was kept.
    pub(super) fn forget_kept(&mut self) -> Result<()> {
        let Some(kept) = &self.kept else {
            return Ok(());
        };
        let spaces: Vec<_> = kept.spaces().collect();
        let changes = Changes {
            operations: vec![self.no_checkpoint()],
            ..Changes::default()
        };
        // Before its spaces go: the record must not speak of later ones of their names.
        self.commit("begin_replace", changes, true)?;
        self.kept = None;
        for space in &spaces {
            self.write_engine("begin_replace", |engine| engine.drop_space(space))?;
        }
        Ok(())
    }

    /// Takes the record of the last checkpoint away.
    pub(super) fn no_checkpoint(&self) -> Operation {
        Operation {
            space: self.system.clone(),
            key: Bytes::from_static(record::STAGING),
            value: None,
        }
    }
}
