//! Taking a topic or a group out of the catalog. The name is free at once; what is left of
//! the id is swept behind it.

use std::sync::Arc;

use pop_model::{GroupName, GroupRecord, TopicName, TopicNameKind};
use pop_store::{Durability, ErrorKind, WriteBatch, table::tombstone};

use super::{Catalog, Topic};
use crate::BrokerError;

impl Catalog {
    /// Deletes a topic; that is durable when this returns.
    ///
    /// # Errors
    ///
    /// [`BrokerError::TopicNotFound`], [`BrokerError::InternalTopic`], or the store's.
    pub(crate) async fn delete_topic(&self, name: &TopicName) -> Result<Arc<Topic>, BrokerError> {
        self.check_deletable(name)?;
        self.bury_topic(name).await
    }

    /// Deletes the dead-letter topic of a group, if there is one.
    pub(crate) async fn delete_dead_letters(
        &self,
        group: &GroupName,
    ) -> Result<Option<Arc<Topic>>, BrokerError> {
        let name = TopicName::dead_letter(group);
        // It may have been made in this moment.
        let buried = async {
            self.stored_topic(&name).await?;
            self.bury_topic(&name).await
        };
        match buried.await {
            Ok(topic) => Ok(Some(topic)),
            Err(BrokerError::TopicNotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Topics of the broker's own go with what they belong to. Dead letters of a group that
    /// is gone belong to nothing.
    fn check_deletable(&self, name: &TopicName) -> Result<(), BrokerError> {
        let is_deletable = match name.kind() {
            TopicNameKind::User => true,
            TopicNameKind::DeadLetter { group } => self.group(&group).is_none(),
            TopicNameKind::Retry { .. } | TopicNameKind::Internal => false,
        };
        if is_deletable {
            Ok(())
        } else {
            Err(BrokerError::InternalTopic(name.clone()))
        }
    }

    async fn bury_topic(&self, name: &TopicName) -> Result<Arc<Topic>, BrokerError> {
        let not_found = || BrokerError::TopicNotFound(name.clone());
        let topic = self.topic(name).ok_or_else(not_found)?;
        let mut batch = WriteBatch::new();
        tombstone::delete_topic(&mut batch, topic.record());
        match self.store.write(batch, Durability::Synced).await {
            Ok(()) => {}
            // Somebody else deleted it in this moment.
            Err(error) if error.kind() == ErrorKind::Conflict => return Err(not_found()),
            Err(error) => return Err(error.into()),
        }
        let id = topic.record().id;
        let mut names = self.names.write();
        names.deleted_topics.insert(id);
        names.topics_by_id.remove(&id);
        // The name may be another topic's already.
        let is_its = |other: &Arc<Topic>| other.record().id == id;
        if names.topics.get(name).is_some_and(is_its) {
            names.topics.remove(name);
        }
        tracing::info!(topic = %name, %id, "deleted a topic");
        Ok(topic)
    }

    /// Deletes a group; that is durable when this returns.
    ///
    /// # Errors
    ///
    /// [`BrokerError::GroupNotFound`], or the store's.
    pub(crate) async fn delete_group(
        &self,
        name: &GroupName,
    ) -> Result<Arc<GroupRecord>, BrokerError> {
        let not_found = || BrokerError::GroupNotFound(name.clone());
        let group = self.group(name).ok_or_else(not_found)?;
        let mut batch = WriteBatch::new();
        tombstone::delete_group(&mut batch, &group);
        match self.store.write(batch, Durability::Synced).await {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::Conflict => return Err(not_found()),
            Err(error) => return Err(error.into()),
        }
        let mut names = self.names.write();
        names.deleted_groups.insert(group.id);
        names.groups_by_id.remove(&group.id);
        let is_its = |other: &Arc<GroupRecord>| other.id == group.id;
        if names.groups.get(name).is_some_and(is_its) {
            names.groups.remove(name);
        }
        tracing::info!(group = %name, id = %group.id, "deleted a group");
        Ok(group)
    }
}
