//! The topics and groups of a run, made and made again.

use std::time::Duration;

use pop_broker::{BrokerError, GroupSpec, TopicSpec};
use pop_model::{
    Backoff, GroupId, GroupName, Namespace, RetryPolicy, StartPosition, TopicId, TopicName,
};

use super::{World, unexpected};
use crate::{cast::Cast, violation::Checked};

/// The name of a topic.
pub fn topic(name: &str) -> TopicName {
    TopicName::user(&Namespace::default(), name).expect("the names of a cast are names")
}

/// The name of a group.
pub fn group(name: &str) -> GroupName {
    GroupName::user(&Namespace::default(), name).expect("the names of a cast are names")
}

impl World {
    /// Makes all of a cast.
    pub(super) async fn populate(&mut self, cast: &Cast) -> Checked {
        for of in 0..cast.topics.len() {
            self.make_topic(cast, of).await.map_err(unexpected)?;
        }
        for of in 0..cast.groups.len() {
            self.make_group_of(cast, of).await.map_err(unexpected)?;
        }
        Ok(())
    }

    /// Makes a topic of the cast.
    ///
    /// # Errors
    ///
    /// The broker's.
    pub async fn make_topic(&mut self, cast: &Cast, of: usize) -> Result<(), BrokerError> {
        let spec = TopicSpec {
            name: topic(cast.topics[of].name),
            queues: cast.topics[of].queues,
        };
        match self.broker.create_topic(spec).await {
            // The one before was in doubt.
            Ok(_) | Err(BrokerError::TopicExists(_)) => {}
            Err(error) => return Err(error),
        }
        let made = self.standing_topic(cast, of)?;
        self.topics[of].extend(made);
        Ok(())
    }

    /// Makes a group of the cast.
    ///
    /// # Errors
    ///
    /// The broker's.
    pub async fn make_group_of(&mut self, cast: &Cast, of: usize) -> Result<(), BrokerError> {
        let each = &cast.groups[of];
        let backoff = Backoff::Customized(vec![Duration::from_secs(1)]);
        let spec = GroupSpec {
            name: group(each.name),
            fifo: each.is_fifo,
            policy: RetryPolicy::new(each.attempts_max, backoff).expect("a cast has good policies"),
            start: if each.starts_at_the_end {
                StartPosition::Latest
            } else {
                StartPosition::Earliest
            },
        };
        match self.broker.create_group(spec).await {
            Ok(_) | Err(BrokerError::GroupExists(_)) => {}
            Err(error) => return Err(error),
        }
        let made = self.standing_group(cast, of)?;
        self.groups[of].extend(made);
        Ok(())
    }

    /// Makes a group that is not of the cast, once.
    pub async fn make_group(&self, name: &str) -> Checked {
        let spec = GroupSpec {
            name: group(name),
            fifo: false,
            policy: RetryPolicy::default(),
            start: StartPosition::Earliest,
        };
        let made = self.broker.create_group(spec).await;
        made.map(drop).map_err(unexpected)
    }

    /// The topic of this name, as the broker has it.
    fn standing_topic(&self, cast: &Cast, of: usize) -> Result<Option<TopicId>, BrokerError> {
        let found = self.broker.topic(&topic(cast.topics[of].name))?;
        Ok(found.map(|topic| topic.record().id))
    }

    /// The group of this name, as the broker has it.
    fn standing_group(&self, cast: &Cast, of: usize) -> Result<Option<GroupId>, BrokerError> {
        let found = self.broker.group(&group(cast.groups[of].name))?;
        Ok(found.map(|group| group.id))
    }

    /// Whether the topic that was last made stands.
    ///
    /// # Errors
    ///
    /// While the store is not open.
    pub fn has_topic(&self, cast: &Cast, of: usize) -> Result<bool, BrokerError> {
        Ok(self.standing_topic(cast, of)?.as_ref() == self.topics[of].last())
    }

    /// Whether the group that was last made stands.
    ///
    /// # Errors
    ///
    /// While the store is not open.
    pub fn has_group(&self, cast: &Cast, of: usize) -> Result<bool, BrokerError> {
        Ok(self.standing_group(cast, of)?.as_ref() == self.groups[of].last())
    }

    /// The place in the cast of a topic, and how often it had been deleted.
    pub(super) fn topic_of(&self, id: TopicId) -> Option<(usize, usize)> {
        place_of(&self.topics, id)
    }

    /// The same of a group.
    pub(super) fn group_of(&self, id: GroupId) -> Option<(usize, usize)> {
        place_of(&self.groups, id)
    }
}

fn place_of<T: PartialEq>(all: &[Vec<T>], id: T) -> Option<(usize, usize)> {
    let mut lives = all.iter().enumerate();
    lives.find_map(|(of, lives)| Some((of, lives.iter().position(|it| *it == id)?)))
}
