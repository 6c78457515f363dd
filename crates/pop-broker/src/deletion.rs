//! Deleting topics and groups: gone at once for everybody, and swept behind that.

use std::time::Duration;

use pop_model::{GroupId, GroupName, TopicId, TopicName};
use pop_store::{
    ErrorKind,
    table::{
        erase::{Erased, erase_group, erase_topic},
        tombstone,
    },
};

use crate::{Broker, BrokerError, consumption::Consumption, core::Core};

/// How long the sweep waits after a failure that is not the end of the store.
const PAUSE: Duration = Duration::from_secs(1);

/// What becomes of the dead-letter topic of a group that is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeadLetters {
    /// It stays, with what is in it, under its name.
    #[default]
    Keep,
    /// It is deleted with the group.
    Delete,
}

/// A group that was deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeletedGroup {
    /// Its dead-letter topic, if it stays.
    pub dead_letters_kept: Option<TopicName>,
}

impl Broker {
    /// Deletes a topic, with all its messages, for every group. Durable when it returns;
    /// from then on nobody sends to it or receives from it, waiting receives have ended,
    /// and its name is free for another one. What it leaves behind is swept by and by.
    ///
    /// # Errors
    ///
    /// [`BrokerError::TopicNotFound`], [`BrokerError::InternalTopic`], or the store's.
    pub async fn delete_topic(&self, name: &TopicName) -> Result<(), BrokerError> {
        let name = name.clone();
        self.run(move |core| async move {
            let topic = core.catalog.delete_topic(&name).await?;
            core.part_with_topic(topic.record().id).await
        })
        .await
    }

    /// Deletes a group, with its offsets, its deliveries and its retry queues. Durable when
    /// it returns; from then on waiting receives have ended, and a group of this name is
    /// another one, which begins where new groups do. Messages stay.
    ///
    /// # Errors
    ///
    /// [`BrokerError::GroupNotFound`], or the store's.
    pub async fn delete_group(
        &self,
        name: &GroupName,
        dead_letters: DeadLetters,
    ) -> Result<DeletedGroup, BrokerError> {
        let name = name.clone();
        self.run(move |core| async move {
            let group = core.catalog.delete_group(&name).await?;
            core.part_with_group(group.id).await;
            if dead_letters == DeadLetters::Delete
                && let Some(topic) = core.catalog.delete_dead_letters(&name).await?
            {
                core.part_with_topic(topic.record().id).await?;
            }
            let kept = TopicName::dead_letter(&name);
            let dead_letters_kept = core.catalog.topic(&kept).map(|_| kept);
            Ok(DeletedGroup { dead_letters_kept })
        })
        .await
    }
}

impl Core {
    async fn part_with_topic(&self, id: TopicId) -> Result<(), BrokerError> {
        self.close_to_topic(id).await?;
        self.deleted.notify_one();
        Ok(())
    }

    async fn part_with_group(&self, id: GroupId) {
        self.close_to_group(id).await;
        self.deleted.notify_one();
    }

    /// Ends everything in memory that still works on a deleted topic.
    async fn close_to_topic(&self, id: TopicId) -> pop_store::Result<()> {
        self.consumptions.end_topic(id);
        self.cache.close_topic(id).await;
        self.log.close_topic(id).await
    }

    /// Ends everything in memory that still works on a deleted group.
    async fn close_to_group(&self, id: GroupId) {
        self.consumptions.end_group(id);
        self.cache.close_group(id).await;
    }

    /// Sweeps what deletions leave behind, those of runs before this one first.
    pub(crate) async fn sweep_deleted(&self) -> pop_store::Result<()> {
        loop {
            let swept = tokio::select! {
                biased;
                () = self.closing.cancelled() => return Ok(()),
                swept = self.sweep_tombstones() => swept,
            };
            let is_swept = match swept {
                Ok(()) => true,
                Err(error) if matches!(error.kind(), ErrorKind::Poisoned | ErrorKind::InDoubt) => {
                    return Err(error);
                }
                Err(error) => {
                    tracing::warn!(%error, "what a deletion left behind could not be swept; it is tried again");
                    false
                }
            };
            tokio::select! {
                biased;
                () = self.closing.cancelled() => return Ok(()),
                () = self.deleted.notified(), if is_swept => {}
                () = tokio::time::sleep(PAUSE), if !is_swept => {}
            }
        }
    }

    async fn sweep_tombstones(&self) -> pop_store::Result<()> {
        let store = self.store.as_ref();
        for topic in tombstone::deleted_topics(store).await? {
            self.close_to_topic(topic.id).await?;
            let Erased {
                messages,
                deliveries,
            } = erase_topic(store, &topic).await?;
            tracing::info!(topic = %topic.name, id = %topic.id, messages, deliveries, "swept what a deleted topic left behind");
        }
        for group in tombstone::deleted_groups(store).await? {
            self.close_to_group(group.id).await;
            let Erased { deliveries, .. } = erase_group(store, &group).await?;
            tracing::info!(group = %group.name, id = %group.id, deliveries, "swept what a deleted group left behind");
        }
        Ok(())
    }

    /// The error for a consumption that ended while something ran on it.
    pub(crate) fn ended(&self, consumption: &Consumption) -> BrokerError {
        if self.catalog.group_by_id(consumption.group.id).is_none() {
            BrokerError::GroupNotFound(consumption.group.name.clone())
        } else {
            BrokerError::TopicNotFound(consumption.topic.record().name.clone())
        }
    }
}
