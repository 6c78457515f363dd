//! A message as it lies in the log.

use std::hash::Hasher;

use bytes::{BufMut, Bytes};
use siphasher::sip::SipHasher24;

use crate::{
    BodyId, CodecError, StoredValue, WallTime,
    codec::{
        reader::Reader,
        value::{write_bytes, write_option},
    },
};

/// What the producer asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessageKind {
    /// Deliver it.
    Normal,
    /// Deliver it in order within its message group.
    Fifo,
    /// Deliver it at a moment.
    Delay,
    /// Deliver it once its transaction is committed.
    Transaction,
}

impl MessageKind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Normal, Self::Fifo, Self::Delay, Self::Transaction];

    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Normal => 0,
            Self::Fifo => 1,
            Self::Delay => 2,
            Self::Transaction => 3,
        }
    }
}

/// How the producer packed the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BodyEncoding {
    /// As it is.
    Identity,
    /// With gzip.
    Gzip,
}

/// Where the body is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageBody {
    /// In the message's own row.
    Inline(Bytes),
    /// In chunk rows, written before the message's row.
    Chunked {
        /// Under this id.
        id: BodyId,
        /// So many bytes in all.
        bytes: u32,
    },
}

impl MessageBody {
    /// How many bytes it has.
    #[must_use]
    pub fn byte_count(&self) -> usize {
        match self {
            Self::Inline(body) => body.len(),
            Self::Chunked { bytes, .. } => usize::try_from(*bytes).unwrap_or(usize::MAX),
        }
    }
}

/// Where a dead letter came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetterOrigin {
    /// The topic that it was sent to.
    pub topic: String,
    /// Its message id there.
    pub message_id: String,
    /// Why it is a dead letter.
    pub reason: String,
    /// How often it was delivered.
    pub delivery_attempts: u32,
}

/// A message: what the producer sent, and what the broker adds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The producer's name for it.
    pub message_id: String,
    /// What the producer asked for.
    pub kind: MessageKind,
    /// Its tag, for filters.
    pub tag: Option<String>,
    /// Its keys, for people who look for it.
    pub keys: Vec<String>,
    /// Its message group: same group, same order.
    pub message_group: Option<String>,
    /// How the producer packed the body.
    pub encoding: BodyEncoding,
    /// When the producer made it.
    pub born_at: WallTime,
    /// Where the producer made it.
    pub born_host: String,
    /// When the broker took it.
    pub stored_at: WallTime,
    /// When it is to be delivered, if not at once.
    pub deliver_at: Option<WallTime>,
    /// The producer's trace.
    pub trace_context: Option<String>,
    /// Its priority, if the producer gave one.
    pub priority: Option<i32>,
    /// What the producer's user attached.
    pub properties: Vec<(String, String)>,
    /// Where it came from, if it is a dead letter.
    pub origin: Option<DeadLetterOrigin>,
    /// MD5 of the body as sent: the digest that every client checks.
    pub body_md5: [u8; 16],
    /// The body.
    pub body: MessageBody,
}

/// What stands for a message group in memory and in stored deliveries. Part of the format.
///
/// Two groups that share one wait for each other and nothing else: their order holds.
#[must_use]
pub fn message_group_hash(group: &str) -> u64 {
    let mut hasher = SipHasher24::new_with_keys(0, 0);
    hasher.write(group.as_bytes());
    hasher.finish()
}

fn write_text(out: &mut Vec<u8>, text: impl AsRef<str>) {
    write_bytes(out, text.as_ref().as_bytes());
}

fn write_count(out: &mut Vec<u8>, count: usize) {
    out.put_u32(u32::try_from(count).expect("limits keep every list short"));
}

impl StoredValue for Message {
    const WHAT: &'static str = "message";

    fn write(&self, out: &mut Vec<u8>) {
        write_text(out, &self.message_id);
        out.push(self.kind.code());
        write_option(out, self.tag.as_ref(), write_text);
        write_count(out, self.keys.len());
        for key in &self.keys {
            write_text(out, key);
        }
        write_option(out, self.message_group.as_ref(), |out, group| {
            write_text(out, group)
        });
        out.push(match self.encoding {
            BodyEncoding::Identity => 0,
            BodyEncoding::Gzip => 1,
        });
        out.put_i64(self.born_at.as_unix_millis());
        write_text(out, &self.born_host);
        out.put_i64(self.stored_at.as_unix_millis());
        write_option(out, self.deliver_at, |out, at| {
            out.put_i64(at.as_unix_millis())
        });
        write_option(out, self.trace_context.as_ref(), |out, trace| {
            write_text(out, trace)
        });
        write_option(out, self.priority, |out, priority| out.put_i32(priority));
        write_count(out, self.properties.len());
        for (name, value) in &self.properties {
            write_text(out, name);
            write_text(out, value);
        }
        write_option(out, self.origin.as_ref(), |out, origin| {
            write_text(out, &origin.topic);
            write_text(out, &origin.message_id);
            write_text(out, &origin.reason);
            out.put_u32(origin.delivery_attempts);
        });
        out.put_slice(&self.body_md5);
        match &self.body {
            MessageBody::Inline(body) => {
                out.push(0);
                write_bytes(out, body);
            }
            MessageBody::Chunked { id, bytes } => {
                out.push(1);
                out.put_u64(id.get());
                out.put_u32(*bytes);
            }
        }
    }

    fn read(reader: &mut Reader) -> Result<Self, CodecError> {
        Ok(Self {
            message_id: reader.text("message id")?,
            kind: match reader.u8()? {
                0 => MessageKind::Normal,
                1 => MessageKind::Fifo,
                2 => MessageKind::Delay,
                3 => MessageKind::Transaction,
                _ => return Err(reader.bad("kind")),
            },
            tag: reader.option("tag", |reader| reader.text("tag"))?,
            keys: read_list(reader, |reader| reader.text("key"))?,
            message_group: reader.option("message group", |reader| reader.text("message group"))?,
            encoding: match reader.u8()? {
                0 => BodyEncoding::Identity,
                1 => BodyEncoding::Gzip,
                _ => return Err(reader.bad("encoding")),
            },
            born_at: WallTime::from_unix_millis(reader.i64()?),
            born_host: reader.text("born host")?,
            stored_at: WallTime::from_unix_millis(reader.i64()?),
            deliver_at: reader.option("delivery time", |reader| {
                reader.i64().map(WallTime::from_unix_millis)
            })?,
            trace_context: reader.option("trace context", |reader| reader.text("trace context"))?,
            priority: reader.option("priority", |reader| reader.raw().map(i32::from_be_bytes))?,
            properties: read_list(reader, |reader| {
                Ok((
                    reader.text("property name")?,
                    reader.text("property value")?,
                ))
            })?,
            origin: reader.option("origin", |reader| {
                Ok(DeadLetterOrigin {
                    topic: reader.text("origin topic")?,
                    message_id: reader.text("origin message id")?,
                    reason: reader.text("reason")?,
                    delivery_attempts: reader.u32()?,
                })
            })?,
            body_md5: reader.raw()?,
            body: match reader.u8()? {
                0 => MessageBody::Inline(reader.bytes()?),
                1 => MessageBody::Chunked {
                    id: BodyId::new(reader.u64()?),
                    bytes: reader.u32()?,
                },
                _ => return Err(reader.bad("body")),
            },
        })
    }

    fn size_hint(&self) -> usize {
        let body = match &self.body {
            MessageBody::Inline(body) => body.len(),
            MessageBody::Chunked { .. } => 12,
        };
        let properties: usize = self
            .properties
            .iter()
            .map(|(name, value)| name.len() + value.len() + 8)
            .sum();
        let keys: usize = self.keys.iter().map(|key| key.len() + 4).sum();
        256 + self.message_id.len() + properties + keys + body
    }
}

/// Reads a count and that many items; a forged count allocates nothing ahead.
fn read_list<T>(
    reader: &mut Reader,
    mut read: impl FnMut(&mut Reader) -> Result<T, CodecError>,
) -> Result<Vec<T>, CodecError> {
    let count = reader.u32()?;
    let mut items = Vec::new();
    for _ in 0..count {
        items.push(read(reader)?);
    }
    Ok(items)
}
