//! What the messages of a run carry: everything follows from a message's number, so that
//! what arrives can be held against it.

use bytes::Bytes;
use pop_broker::{Delivery, NewMessage};
use pop_model::MessageKind;

use crate::{
    cast::TAG,
    violation::{Checked, Violation},
};

/// What a message carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// Its number in the run.
    pub number: usize,
    /// The topic that it is sent to.
    pub topic: usize,
    /// It has the tag that filters ask for.
    pub has_tag: bool,
    /// The size of its body.
    pub bytes: usize,
    /// Its message group, if it has one.
    pub message_group: Option<u8>,
}

impl Content {
    /// Its message id.
    pub fn id(&self) -> String {
        format!("m{}", self.number)
    }

    /// The number in a message id.
    pub fn number_of(id: &str) -> Option<usize> {
        id.strip_prefix('m')?.parse().ok()
    }

    fn body(&self) -> Bytes {
        let id = self.id();
        let mut body = id.clone().into_bytes();
        let filler = u8::try_from(self.number % 251).unwrap_or(0);
        body.resize(self.bytes.max(id.len()), filler);
        body.into()
    }

    fn tag(&self) -> Option<String> {
        self.has_tag.then(|| TAG.to_owned())
    }

    fn properties(&self) -> Vec<(String, String)> {
        vec![("number".into(), self.number.to_string())]
    }

    /// The message as its producer sends it.
    pub fn message(&self) -> NewMessage {
        let mut message = NewMessage::new(self.id(), self.body());
        message.tag = self.tag();
        message.properties = self.properties();
        if let Some(group) = self.message_group {
            message.kind = MessageKind::Fifo;
            message.message_group = Some(format!("line {group}"));
        }
        message
    }

    /// Holds a delivery against what was sent.
    ///
    /// # Errors
    ///
    /// If it differs.
    pub fn check(&self, arrived: &Delivery) -> Checked {
        let is_same = arrived.body == self.body()
            && arrived.message.tag == self.tag()
            && arrived.message.properties == self.properties();
        if is_same {
            return Ok(());
        }
        let what = format!("{} arrived with another body, tag or property", self.id());
        Err(Violation::new("what is sent arrives", what))
    }
}
