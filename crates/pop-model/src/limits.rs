//! Every limit of the product, and how they relate.

/// The longest topic name of a user, in bytes (RocketMQ's limit).
pub const TOPIC_NAME_BYTES_MAX: usize = 127;
/// The longest group name, in bytes (RocketMQ's limit).
pub const GROUP_NAME_BYTES_MAX: usize = 120;
/// The longest namespace, in bytes.
pub const NAMESPACE_BYTES_MAX: usize = 127;
/// The longest name of an internal topic, in bytes: `%RETRY%`, a namespace, `/`, a group,
/// `+`, a topic.
pub const INTERNAL_NAME_BYTES_MAX: usize = 384;

/// The largest body: 4 MiB less 64 KiB, so that a message with all its properties stays
/// below the 4 MiB frame that the Node.js and Rust clients accept.
pub const BODY_BYTES_MAX: usize = (4 << 20) - (64 << 10);
/// The largest body that is stored inside its message; larger ones are stored in chunks.
pub const INLINE_BODY_BYTES_MAX: usize = 256 << 10;
/// The size of a chunk of a larger body.
pub const BODY_CHUNK_BYTES: usize = 256 << 10;
/// The most user properties of a message.
pub const PROPERTIES_MAX: usize = 128;
/// The most bytes of property names, property values, tag and keys of a message.
pub const PROPERTIES_BYTES_MAX: usize = 16 << 10;
/// The longest message id: clients choose it, all of them use 34 characters.
pub const MESSAGE_ID_BYTES_MAX: usize = 255;
/// The longest message group, in bytes.
pub const MESSAGE_GROUP_BYTES_MAX: usize = 64;
/// The most messages of one send.
pub const SEND_BATCH_MAX: usize = 128;
/// The most messages of one receive.
pub const RECEIVE_BATCH_MAX: usize = 32;
/// The longest text that a client may give as attempt id.
pub const ATTEMPT_ID_BYTES_MAX: usize = 255;
/// The longest invisible duration, in milliseconds: 12 hours.
pub const INVISIBLE_MS_MAX: u64 = 12 * 60 * 60 * 1_000;
/// The most queues of a topic.
pub const QUEUES_MAX: u32 = 1_024;
/// The most delivery attempts that a group may allow.
pub const DELIVERY_ATTEMPTS_MAX: u32 = 1_000;
/// Offsets on one page of settled marks.
pub const MARK_PAGE_OFFSETS: u64 = 4_096;
/// The longest encoded key.
pub const KEY_BYTES_MAX: usize = 1_024;
/// The largest batch of writes, in bytes.
pub const BATCH_BYTES_MAX: usize = 1 << 20;
/// The largest frame that every client accepts.
pub const FRAME_BYTES_MAX: usize = 4 << 20;

const _: () = assert!(
    "%RETRY%/+".len() + NAMESPACE_BYTES_MAX + GROUP_NAME_BYTES_MAX + TOPIC_NAME_BYTES_MAX
        <= INTERNAL_NAME_BYTES_MAX,
    "a retry topic's name fits"
);
const _: () = assert!(
    // Code and two end marks. Only 0x00 takes two bytes in a key, and no name has one.
    1 + NAMESPACE_BYTES_MAX + 2 + INTERNAL_NAME_BYTES_MAX + 2 <= KEY_BYTES_MAX,
    "a key that holds a name fits"
);
const _: () = assert!(
    INLINE_BODY_BYTES_MAX + PROPERTIES_BYTES_MAX + (32 << 10) <= BATCH_BYTES_MAX,
    "the largest message row fits a batch"
);
const _: () = assert!(
    BODY_CHUNK_BYTES * 2 <= BATCH_BYTES_MAX,
    "a chunk fits a batch"
);
const _: () = assert!(
    BODY_BYTES_MAX + PROPERTIES_BYTES_MAX + (32 << 10) <= FRAME_BYTES_MAX,
    "the largest message fits a frame"
);
