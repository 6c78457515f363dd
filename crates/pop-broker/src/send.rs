//! Taking a message: checked whole before anything is written, answered once it is as
//! durable as the broker is told.

use std::sync::Arc;

use bytes::Bytes;
use md5::{Digest, Md5};
use pop_model::{
    BodyEncoding, Message, MessageBody, MessageKind, Offset, QueueId, TopicName, WallTime,
    limits::{
        BODY_BYTES_MAX, MESSAGE_GROUP_BYTES_MAX, MESSAGE_ID_BYTES_MAX, PROPERTIES_BYTES_MAX,
        PROPERTIES_MAX,
    },
};
use pop_store::{ErrorKind, table::MessageLog};

use crate::{BrokerError, MessageError, catalog::Topic, core::Core};

/// A message as a producer gives it.
#[derive(Clone, Debug)]
pub struct NewMessage {
    /// The producer's name for it.
    pub message_id: String,
    /// What the producer asks for.
    pub kind: MessageKind,
    /// Its tag.
    pub tag: Option<String>,
    /// Its keys.
    pub keys: Vec<String>,
    /// Its message group.
    pub message_group: Option<String>,
    /// How the body is packed.
    pub encoding: BodyEncoding,
    /// When the producer made it.
    pub born_at: WallTime,
    /// Where the producer made it.
    pub born_host: String,
    /// When it is to be delivered.
    pub deliver_at: Option<WallTime>,
    /// The producer's trace.
    pub trace_context: Option<String>,
    /// Its priority.
    pub priority: Option<i32>,
    /// What the producer's user attached.
    pub properties: Vec<(String, String)>,
    /// The body.
    pub body: Bytes,
}

/// Where a message was stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendReceipt {
    /// The producer's name for it.
    pub message_id: String,
    /// The queue that the broker chose.
    pub queue: QueueId,
    /// Its position there.
    pub offset: Offset,
}

impl NewMessage {
    /// A normal message with a body and nothing else; set the other fields as needed.
    #[must_use]
    pub fn new(message_id: impl Into<String>, body: Bytes) -> Self {
        Self {
            message_id: message_id.into(),
            kind: MessageKind::Normal,
            tag: None,
            keys: Vec::new(),
            message_group: None,
            encoding: BodyEncoding::Identity,
            born_at: WallTime::default(),
            born_host: String::new(),
            deliver_at: None,
            trace_context: None,
            priority: None,
            properties: Vec::new(),
            body,
        }
    }

    /// Checks everything that a message may be refused for.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), MessageError> {
        let id = &self.message_id;
        if !is_text(id) || id.len() > MESSAGE_ID_BYTES_MAX {
            return Err(MessageError::Id(shortened(id)));
        }
        if self.body.is_empty() {
            return Err(MessageError::BodyEmpty);
        }
        if self.body.len() > BODY_BYTES_MAX {
            return Err(MessageError::BodyTooLarge(self.body.len()));
        }
        if let Some(tag) = self
            .tag
            .as_ref()
            .filter(|tag| !is_text(tag) || tag.contains('|'))
        {
            return Err(MessageError::Tag(shortened(tag)));
        }
        if let Some(key) = self.keys.iter().find(|key| !is_text(key)) {
            return Err(MessageError::Key(shortened(key)));
        }
        let too_long = |group: &&String| !is_text(group) || group.len() > MESSAGE_GROUP_BYTES_MAX;
        if let Some(group) = self.message_group.as_ref().filter(too_long) {
            return Err(MessageError::Group(shortened(group)));
        }
        self.check_properties()?;
        self.check_kind()
    }

    fn check_properties(&self) -> Result<(), MessageError> {
        let bad = |(name, value): &&(String, String)| {
            !is_text(name) || value.chars().any(char::is_control)
        };
        if let Some((name, _)) = self.properties.iter().find(bad) {
            return Err(MessageError::Property(shortened(name)));
        }
        let properties = self
            .properties
            .iter()
            .map(|(name, value)| name.len() + value.len());
        let keys = self.keys.iter().map(String::len);
        let tag = self.tag.iter().map(String::len);
        // Not the user's, and bounded with them all the same: they travel in one frame.
        let others = [
            self.born_host.len(),
            self.trace_context.as_ref().map_or(0, String::len),
        ];
        let bytes: usize = properties.chain(keys).chain(tag).chain(others).sum();
        let count = self.properties.len();
        if count > PROPERTIES_MAX
            || self.keys.len() > PROPERTIES_MAX
            || bytes > PROPERTIES_BYTES_MAX
        {
            return Err(MessageError::PropertiesTooLarge { count, bytes });
        }
        Ok(())
    }

    fn check_kind(&self) -> Result<(), MessageError> {
        let conflict = |problem| Err(MessageError::KindConflict(problem));
        match self.kind {
            MessageKind::Fifo if self.message_group.is_none() => {
                conflict("a FIFO message needs a message group")
            }
            MessageKind::Delay if self.deliver_at.is_none() => {
                conflict("a delayed message needs a delivery time")
            }
            MessageKind::Normal | MessageKind::Transaction if self.message_group.is_some() => {
                conflict("a message with a message group is a FIFO message")
            }
            MessageKind::Normal | MessageKind::Fifo | MessageKind::Transaction
                if self.deliver_at.is_some() =>
            {
                conflict("a message with a delivery time is a delayed message")
            }
            _ => Ok(()),
        }
    }
}

impl Core {
    /// Appends a message to the queue that its kind decides.
    pub(crate) async fn send(
        self: &Arc<Self>,
        topic: &Arc<Topic>,
        message: NewMessage,
    ) -> Result<SendReceipt, BrokerError> {
        message.check()?;
        if !topic.record().kinds.contains(&message.kind) {
            return Err(match message.kind {
                MessageKind::Delay => {
                    BrokerError::Unsupported("delayed messages are not offered by this version")
                }
                MessageKind::Transaction => BrokerError::Unsupported(
                    "transactional messages are not offered by this version",
                ),
                MessageKind::Normal | MessageKind::Fifo => {
                    MessageError::KindConflict("the topic does not take messages of this kind")
                        .into()
                }
            });
        }
        let queue = match &message.message_group {
            Some(group) => topic.queue_of_group(group),
            None => topic.next_queue(),
        };
        let message_id = message.message_id.clone();
        let stored = stored(message, self.clock.wall());
        let appended = self
            .log
            .append(queue, stored, self.options.send_durability)
            .await;
        let offset = appended.map_err(|error| match error.kind() {
            // The log is closed to a topic that is deleted.
            ErrorKind::Conflict => BrokerError::TopicNotFound(topic.record().name.clone()),
            _ => error.into(),
        })?;
        self.options.counters.sent.add(1);
        self.consumptions.wake(queue.topic);
        Ok(SendReceipt {
            message_id,
            queue: queue.queue,
            offset,
        })
    }
}

fn stored(message: NewMessage, stored_at: WallTime) -> Message {
    Message {
        body_md5: Md5::digest(&message.body).into(),
        message_id: message.message_id,
        kind: message.kind,
        tag: message.tag,
        keys: message.keys,
        message_group: message.message_group,
        encoding: message.encoding,
        born_at: message.born_at,
        born_host: message.born_host,
        stored_at,
        deliver_at: message.deliver_at,
        trace_context: message.trace_context,
        priority: message.priority,
        properties: message.properties,
        origin: None,
        body: MessageBody::Inline(message.body),
    }
}

/// Whether the messages of a request are all of one topic.
///
/// # Errors
///
/// [`MessageError::MixedTopics`] if not, [`MessageError::None`] if there is none.
pub fn single_topic(
    topics: impl IntoIterator<Item = TopicName>,
) -> Result<TopicName, MessageError> {
    let mut topics = topics.into_iter();
    let first = topics.next().ok_or(MessageError::None)?;
    if topics.all(|topic| topic == first) {
        Ok(first)
    } else {
        Err(MessageError::MixedTopics)
    }
}

/// Not blank and without control characters.
fn is_text(text: &str) -> bool {
    !text.trim().is_empty() && !text.chars().any(char::is_control)
}

/// Enough of a refused text to know it again.
fn shortened(text: &str) -> String {
    const CHARACTERS_MAX: usize = 80;
    match text.char_indices().nth(CHARACTERS_MAX) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.into(),
    }
}
