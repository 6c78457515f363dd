//! Topics and groups: durable records, held in memory, made on demand where that is on.

mod delete;

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use parking_lot::RwLock;
use pop_model::{
    Clock, GroupId, GroupName, GroupRecord, LogQueue, MessageKind, QueueId, RetryPolicy,
    StartPosition, TopicId, TopicName, TopicRecord, limits,
};
use pop_store::{
    Durability, ErrorKind, Store, WriteBatch,
    table::{meta, tombstone::require_group},
};

use crate::BrokerError;

/// A topic as it is in use.
#[derive(Debug)]
pub struct Topic {
    record: TopicRecord,
    turn: AtomicU32,
}

impl Topic {
    fn new(record: TopicRecord) -> Arc<Self> {
        Arc::new(Self {
            record,
            turn: AtomicU32::new(0),
        })
    }

    /// Its record.
    #[must_use]
    pub fn record(&self) -> &TopicRecord {
        &self.record
    }

    /// Its queues, in order.
    pub fn queues(&self) -> impl Iterator<Item = LogQueue> + use<> {
        let topic = self.record.id;
        (0..self.record.queues).map(move |queue| LogQueue {
            topic,
            queue: QueueId::new(queue),
        })
    }

    /// The queue of the next message without a message group: each in turn.
    pub(crate) fn next_queue(&self) -> LogQueue {
        // Only spreads: which of two concurrent sends gets which turn does not matter.
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        self.queue(turn % self.record.queues)
    }

    /// The queue of a message group: always the same one, whatever the client thinks.
    pub(crate) fn queue_of_group(&self, message_group: &str) -> LogQueue {
        // FNV-1a: fixed for ever, since the order of a message group depends on it.
        let hash = message_group
            .bytes()
            .fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
            });
        let queue = hash % u64::from(self.record.queues);
        self.queue(u32::try_from(queue).expect("a remainder of a u32 fits"))
    }

    fn queue(&self, queue: u32) -> LogQueue {
        LogQueue {
            topic: self.record.id,
            queue: QueueId::new(queue),
        }
    }
}

/// How the catalog makes what is missing.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CatalogOptions {
    /// Make a topic when a client asks for its route.
    pub auto_create_topics: bool,
    /// Make a group at its first receive.
    pub auto_create_groups: bool,
    /// How many queues a topic gets.
    pub queues: u32,
    /// Where a group starts.
    pub start: StartPosition,
}

impl Default for CatalogOptions {
    fn default() -> Self {
        Self {
            auto_create_topics: true,
            auto_create_groups: true,
            queues: 4,
            start: StartPosition::Earliest,
        }
    }
}

/// What a new topic is to be.
#[derive(Clone, Debug)]
pub struct TopicSpec {
    /// Its name.
    pub name: TopicName,
    /// How many queues it gets.
    pub queues: u32,
}

/// What a new group is to be.
#[derive(Clone, Debug)]
pub struct GroupSpec {
    /// Its name.
    pub name: GroupName,
    /// How often it gets a message, and how long it waits between.
    pub policy: RetryPolicy,
    /// Where it starts.
    pub start: StartPosition,
    /// Whether it consumes the messages of a message group in order, one batch at a time.
    pub fifo: bool,
}

/// All topics and groups.
#[derive(Debug)]
pub struct Catalog {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    options: CatalogOptions,
    names: RwLock<Names>,
}

#[derive(Debug, Default)]
struct Names {
    topics: HashMap<TopicName, Arc<Topic>>,
    topics_by_id: HashMap<TopicId, Arc<Topic>>,
    groups: HashMap<GroupName, Arc<GroupRecord>>,
    groups_by_id: HashMap<GroupId, Arc<GroupRecord>>,
    // Whoever read a record before it was deleted must not add it after.
    deleted_topics: HashSet<TopicId>,
    deleted_groups: HashSet<GroupId>,
}

impl Names {
    /// Adds a topic, or returns the one that is there: a topic is one thing in memory.
    fn add_topic(&mut self, record: TopicRecord) -> Result<Arc<Topic>, BrokerError> {
        if self.deleted_topics.contains(&record.id) {
            return Err(BrokerError::TopicNotFound(record.name));
        }
        let topic = self
            .topics_by_id
            .entry(record.id)
            .or_insert_with(|| Topic::new(record));
        self.topics
            .insert(topic.record.name.clone(), Arc::clone(topic));
        Ok(Arc::clone(topic))
    }

    fn add_group(&mut self, record: GroupRecord) -> Result<Arc<GroupRecord>, BrokerError> {
        if self.deleted_groups.contains(&record.id) {
            return Err(BrokerError::GroupNotFound(record.name));
        }
        let group = self
            .groups_by_id
            .entry(record.id)
            .or_insert_with(|| Arc::new(record));
        self.groups.insert(group.name.clone(), Arc::clone(group));
        Ok(Arc::clone(group))
    }
}

impl Catalog {
    /// Reads the catalog of a store.
    pub(crate) async fn open(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        options: CatalogOptions,
    ) -> Result<Self, BrokerError> {
        let mut names = Names::default();
        for topic in meta::topics(store.as_ref()).await? {
            names.add_topic(topic)?;
        }
        for group in meta::groups(store.as_ref()).await? {
            names.add_group(group)?;
        }
        Ok(Self {
            store,
            clock,
            options,
            names: RwLock::new(names),
        })
    }

    /// A topic by its name.
    #[must_use]
    pub fn topic(&self, name: &TopicName) -> Option<Arc<Topic>> {
        self.names.read().topics.get(name).cloned()
    }

    /// A topic by its id.
    #[must_use]
    pub fn topic_by_id(&self, id: TopicId) -> Option<Arc<Topic>> {
        self.names.read().topics_by_id.get(&id).cloned()
    }

    /// A group by its name.
    #[must_use]
    pub fn group(&self, name: &GroupName) -> Option<Arc<GroupRecord>> {
        self.names.read().groups.get(name).cloned()
    }

    /// A group by its id.
    #[must_use]
    pub fn group_by_id(&self, id: GroupId) -> Option<Arc<GroupRecord>> {
        self.names.read().groups_by_id.get(&id).cloned()
    }

    /// All topics, by name.
    #[must_use]
    pub fn topics(&self) -> Vec<Arc<Topic>> {
        let mut topics: Vec<_> = self.names.read().topics.values().cloned().collect();
        topics.sort_by(|left, right| left.record.name.cmp(&right.record.name));
        topics
    }

    /// All groups, by name.
    #[must_use]
    pub fn groups(&self) -> Vec<Arc<GroupRecord>> {
        let mut groups: Vec<_> = self.names.read().groups.values().cloned().collect();
        groups.sort_by(|left, right| left.name.cmp(&right.name));
        groups
    }

    /// Makes a topic; it is durable when this returns.
    ///
    /// # Errors
    ///
    /// [`BrokerError::TopicExists`] for a name that is taken, or the store's.
    pub async fn create_topic(&self, spec: TopicSpec) -> Result<Arc<Topic>, BrokerError> {
        self.create_topic_if(spec, WriteBatch::new()).await
    }

    /// Makes a topic on these conditions; where they don't hold it is as if its name was taken.
    async fn create_topic_if(
        &self,
        spec: TopicSpec,
        conditions: WriteBatch,
    ) -> Result<Arc<Topic>, BrokerError> {
        if !(1..=limits::QUEUES_MAX).contains(&spec.queues) {
            return Err(BrokerError::QueueCount {
                queues: spec.queues,
            });
        }
        if self.topic(&spec.name).is_some() {
            return Err(BrokerError::TopicExists(spec.name));
        }
        let record = TopicRecord {
            id: meta::next_topic_id(self.store.as_ref()).await?,
            name: spec.name,
            queues: spec.queues,
            kinds: vec![MessageKind::Normal, MessageKind::Fifo],
            created_at: self.clock.wall(),
        };
        let mut batch = conditions;
        meta::put_new_topic(&mut batch, &record);
        match self.store.write(batch, Durability::Synced).await {
            Ok(()) => {
                tracing::info!(topic = %record.name, queues = record.queues, "created a topic");
                self.names.write().add_topic(record)
            }
            Err(error) if error.kind() == ErrorKind::Conflict => {
                Err(BrokerError::TopicExists(record.name))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Makes a group; it is durable when this returns.
    ///
    /// # Errors
    ///
    /// [`BrokerError::GroupExists`] for a name that is taken, or the store's.
    pub async fn create_group(&self, spec: GroupSpec) -> Result<Arc<GroupRecord>, BrokerError> {
        if self.group(&spec.name).is_some() {
            return Err(BrokerError::GroupExists(spec.name));
        }
        let record = GroupRecord {
            id: meta::next_group_id(self.store.as_ref()).await?,
            name: spec.name,
            policy: spec.policy,
            start: spec.start,
            fifo: spec.fifo,
            created_at: self.clock.wall(),
        };
        let mut batch = WriteBatch::new();
        meta::put_new_group(&mut batch, &record);
        match self.store.write(batch, Durability::Synced).await {
            Ok(()) => {
                tracing::info!(group = %record.name, "created a group");
                self.names.write().add_group(record)
            }
            Err(error) if error.kind() == ErrorKind::Conflict => {
                Err(BrokerError::GroupExists(record.name))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The topic that a client asks the route of, made on demand where that is on: asking
    /// the route is what every client does before anything else.
    ///
    /// # Errors
    ///
    /// [`BrokerError::TopicNotFound`], or the store's.
    pub async fn route(&self, name: &TopicName) -> Result<Arc<Topic>, BrokerError> {
        if let Some(topic) = self.topic(name) {
            return Ok(topic);
        }
        if !self.options.auto_create_topics
            || TopicName::user(name.namespace(), name.name()).is_err()
        {
            return Err(BrokerError::TopicNotFound(name.clone()));
        }
        let queues = self.options.queues;
        self.topic_made(name, queues, WriteBatch::new()).await
    }

    /// The dead-letter topic of a group, made on demand: it belongs to the broker. None is
    /// made of a group that is deleted, which may have been deleted with its dead letters.
    pub(crate) async fn dead_letter_topic(
        &self,
        group: &GroupRecord,
    ) -> Result<Arc<Topic>, BrokerError> {
        let name = TopicName::dead_letter(&group.name);
        if let Some(topic) = self.topic(&name) {
            return Ok(topic);
        }
        let mut conditions = WriteBatch::new();
        require_group(&mut conditions, group);
        self.topic_made(&name, 1, conditions).await
    }

    /// The group of a receive, made on demand where that is on.
    ///
    /// # Errors
    ///
    /// [`BrokerError::GroupNotFound`], or the store's.
    pub async fn consumer(&self, name: &GroupName) -> Result<Arc<GroupRecord>, BrokerError> {
        if let Some(group) = self.group(name) {
            return Ok(group);
        }
        if !self.options.auto_create_groups {
            return Err(BrokerError::GroupNotFound(name.clone()));
        }
        let spec = GroupSpec {
            name: name.clone(),
            policy: RetryPolicy::default(),
            start: self.options.start,
            fifo: false,
        };
        match self.create_group(spec).await {
            // Somebody made it at the same time, and memory may not have it yet.
            Err(BrokerError::GroupExists(name)) => {
                match meta::group_by_name(self.store.as_ref(), &name).await? {
                    Some(record) => self.names.write().add_group(record),
                    None => Err(BrokerError::GroupNotFound(name)),
                }
            }
            other => other,
        }
    }

    async fn topic_made(
        &self,
        name: &TopicName,
        queues: u32,
        conditions: WriteBatch,
    ) -> Result<Arc<Topic>, BrokerError> {
        let spec = TopicSpec {
            name: name.clone(),
            queues,
        };
        match self.create_topic_if(spec, conditions).await {
            Err(BrokerError::TopicExists(name)) => self.stored_topic(&name).await,
            other => other,
        }
    }

    /// A topic that is stored, and that memory may not know yet.
    async fn stored_topic(&self, name: &TopicName) -> Result<Arc<Topic>, BrokerError> {
        match meta::topic_by_name(self.store.as_ref(), name).await? {
            Some(record) => self.names.write().add_topic(record),
            None => Err(BrokerError::TopicNotFound(name.clone())),
        }
    }
}
