//! A leader's snapshot arrives: the rows are moved beside Raft, and then Raft decides.

use std::{cmp::Ordering, sync::Arc};

use openraft::{
    Raft, RaftTypeConfig,
    errors::Fatal,
    raft::SnapshotResponse,
    storage::RaftStateMachine,
    type_config::alias::{SnapshotMetaOf, SnapshotOf, VoteOf},
    vote::{RaftLeaderId, RaftTerm, RaftVote},
};

use super::{RaftSnapshot, Reference, Snapshots, applied::encode, reference::Held};
use crate::{Epoch, RestoreError, Session, session::WeakSession};

/// Why a follower does not have a snapshot. A leader tries again, after a pause.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError<C: RaftTypeConfig> {
    /// The rows did not arrive, or could not be staged.
    #[error(transparent)]
    Restore(#[from] RestoreError),
    /// Another snapshot arrived since.
    #[error("a later snapshot took its place")]
    Superseded,
    /// What says how far the snapshot has come can't be written.
    #[error(transparent)]
    Meta(#[from] std::io::Error),
    /// Raft has ended, here.
    #[error(transparent)]
    Raft(#[from] Fatal<C>),
}

/// The transfer that may be under way, and whose it is.
pub(super) struct Moving<C: RaftTypeConfig> {
    vote: VoteOf<C>,
    session: WeakSession,
}

impl<C: RaftTypeConfig> Snapshots<C> {
    /// Does what a leader asks with a snapshot: moves its rows, and has Raft install it.
    ///
    /// The vote comes first, so that a leader that was overruled costs no copy, and so does
    /// what is as old as the content. A higher vote ends what a lower one moves. Then Raft looks at
    /// both again.
    ///
    /// # Errors
    ///
    /// If the rows did not arrive, or Raft has ended. The content is the old one, but for a
    /// switch that failed; see [`install`](Self::install).
    ///
    /// # Cancel safety
    ///
    /// Dropped while rows are moved, nothing is left of them. Dropped later Raft goes on.
    pub async fn receive<SM>(
        &self,
        raft: &Raft<C, SM>,
        vote: VoteOf<C>,
        meta: SnapshotMetaOf<C>,
        reference: Reference,
    ) -> Result<SnapshotResponse<C>, ReceiveError<C>>
    where
        SM: RaftStateMachine<C, SnapshotData = RaftSnapshot>,
    {
        let state =
            raft.with_raft_state(|it| (it.vote_ref().clone(), it.local_committed().cloned()));
        let (current, committed) = state.await?;
        if is_below::<C>(&vote, &current) {
            return Ok(SnapshotResponse::new(current));
        }
        if meta.last_log_id <= committed {
            let held = Held::Nothing;
            let snapshot = RaftSnapshot { reference, held };
            let snapshot = SnapshotOf::<C, _> { meta, snapshot };
            return Ok(raft.install_full_snapshot(vote, snapshot).await?);
        }
        let session = self.begin(&vote, &meta, &reference).await?;
        session.staged().await?;
        // From here on nobody may take its place: Raft counts on what it was given. Whoever
        // asked may go, and so the lock is the task's.
        let moving = Arc::clone(&self.inner.moving).lock_owned().await;
        if moving
            .as_ref()
            .is_none_or(|it| it.session.id != session.id())
        {
            return Err(ReceiveError::Superseded);
        }
        let raft = raft.clone();
        let installing = tokio::spawn(async move {
            let _moving = moving;
            let held = Held::Staged(session);
            let snapshot = RaftSnapshot { reference, held };
            let snapshot = SnapshotOf::<C, _> { meta, snapshot };
            raft.install_full_snapshot(vote, snapshot).await
        });
        Ok(installing.await.map_err(|_| Fatal::Stopped)??)
    }

    /// Begins to move the rows, in place of what a lower vote moves.
    async fn begin(
        &self,
        vote: &VoteOf<C>,
        meta: &SnapshotMetaOf<C>,
        reference: &Reference,
    ) -> Result<Session, ReceiveError<C>> {
        let index = meta.last_log_id.as_ref().map_or(0, |it| it.index());
        let epoch = Epoch(vote.leader_id().term().as_u64().unwrap_or(u64::MAX));
        let at = self.inner.space.at(reference.snapshot(), epoch, index);
        let at = at.with_meta(encode(meta)?);
        let mut moving = self.inner.moving.lock().await;
        // A term may have had several leaders, of which the epoch knows nothing.
        if let Some(lower) = moving.take_if(|it| is_below::<C>(&it.vote, vote)) {
            lower.session.end().await;
        }
        let session = self.inner.restorer.stage(at, &[reference.source()])?;
        *moving = Some(Moving {
            vote: vote.clone(),
            session: session.downgrade(),
        });
        Ok(session)
    }
}

fn is_below<C: RaftTypeConfig>(vote: &VoteOf<C>, other: &VoteOf<C>) -> bool {
    RaftVote::partial_cmp(vote, other) == Some(Ordering::Less)
}
