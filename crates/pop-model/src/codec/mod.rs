//! How keys and values become bytes, and back.
//!
//! Keys lead with a one-byte code of their kind, are order-preserving (bytes sort as the
//! fields do, first field first) and self-delimiting. Values are `version, payload,
//! crc32c`: an unknown version and a flipped bit are both refused before the payload is
//! looked at. All numbers are big-endian.
//!
//! | code | key | fields after the code |
//! |---|---|---|
//! | 0x01 | [`LogKey`](key::LogKey) | topic, queue, offset |
//! | 0x02 | [`BodyChunkKey`](key::BodyChunkKey) | body, chunk |
//! | 0x03 | [`BodyPendingKey`](key::BodyPendingKey) | body |
//! | 0x04 | [`LeaseKey`](key::LeaseKey) | shard, group, topic, queue, offset |
//! | 0x05 | [`DueKey`](key::DueKey) | shard, visible at, group, topic, queue, offset |
//! | 0x06 | [`ProgressKey`](key::ProgressKey) | shard, group, topic, queue |
//! | 0x07 | [`MarkPageKey`](key::MarkPageKey) | shard, group, topic, queue, page |
//! | 0x08 | [`RetryKey`](key::RetryKey) | group, topic, sequence |
//! | 0x09 | [`TimerKey`](key::TimerKey) | shard, due, sequence |
//! | 0x0A | [`QuarantineKey`](key::QuarantineKey) | sequence |
//! | 0x0B | [`RetainedKey`](key::RetainedKey) | topic, queue, offset |
//! | 0x0C | [`ParkedKey`](key::ParkedKey) | shard, group, topic, queue, message group, offset |
//! | 0x10 to 0x1F | [`MetaKey`](key::MetaKey) | a sub-kind each |
//!
//! A code that goes out of use stays reserved.

pub mod key;
pub mod reader;
pub mod value;

pub use key::StoredKey;
pub use value::StoredValue;

/// Bytes that are not what they should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The bytes end inside a field.
    #[error("{what}: the bytes end too early")]
    Truncated {
        /// What was decoded.
        what: &'static str,
    },
    /// Something follows the last field.
    #[error("{what}: {bytes} bytes follow the end")]
    Trailing {
        /// What was decoded.
        what: &'static str,
        /// How many.
        bytes: usize,
    },
    /// A version that this program does not know.
    #[error(
        "{what}: version {version} is not known to this program: run one that is as new as the data"
    )]
    Version {
        /// What was decoded.
        what: &'static str,
        /// The version that the bytes carry.
        version: u8,
    },
    /// The checksum does not match: bytes were changed after they were written.
    #[error("{what}: checksum {found:08x} where the bytes give {computed:08x}")]
    Checksum {
        /// What was decoded.
        what: &'static str,
        /// The stored one.
        found: u32,
        /// That of the bytes.
        computed: u32,
    },
    /// A key of another kind.
    #[error("{what}: key code {code:#04x} is another kind of key")]
    Kind {
        /// What was decoded.
        what: &'static str,
        /// The code found.
        code: u8,
    },
    /// A field whose value has no meaning.
    #[error("{what}: {field} has no valid value")]
    Field {
        /// What was decoded.
        what: &'static str,
        /// The field.
        field: &'static str,
    },
}
