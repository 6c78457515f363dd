//! The values that this crate defines, pinned: what it writes is what the fixtures hold, and
//! what they hold is what it reads.

use std::fmt::Debug;

use bytes::Bytes;
use pop_model::{
    BodyEncoding, LogQueue, Message, MessageBody, MessageKind, QueueId, StoredValue, TopicId,
    WallTime,
};

use super::{Timer, number::Number};
use crate::golden::pinned;

fn check<V: StoredValue + Debug + PartialEq>(kind: &str, samples: Vec<(&str, V)>) {
    let written: Vec<_> = samples
        .iter()
        .map(|(name, it)| (*name, it.encode()))
        .collect();
    for ((name, value), bytes) in samples.into_iter().zip(pinned(kind, &written)) {
        assert_eq!(
            V::decode(bytes),
            Ok(value),
            "{kind} {name} is read differently"
        );
    }
}

// Mutants, for all of them: two fields swapped, a field left out, another order of bytes,
// another version or checksum.

#[test]
fn numbers_keep_their_bytes() {
    let samples = [("zero", 0), ("some", 0x0123_4567), ("last", u64::MAX)];
    let samples = samples.map(|(name, number)| (name, Number(number)));
    check("number", samples.into());
}

#[test]
fn timers_keep_their_bytes() {
    let message = Message {
        message_id: "0100000000000000000000000000000001".into(),
        kind: MessageKind::Delay,
        tag: Some("срочно".into()),
        keys: vec!["k1".into()],
        message_group: None,
        encoding: BodyEncoding::Identity,
        born_at: WallTime::from_unix_millis(1_700_000_000_000),
        born_host: "10.0.0.1:4321".into(),
        stored_at: WallTime::from_unix_millis(1_700_000_000_001),
        deliver_at: Some(WallTime::from_unix_millis(1_700_000_060_000)),
        trace_context: None,
        priority: None,
        properties: vec![("a".into(), "1".into())],
        origin: None,
        body_md5: *b"0123456789abcdef",
        body: MessageBody::Inline(Bytes::from_static(b"later")),
    };
    let timer = |topic, queue| Timer {
        queue: LogQueue {
            topic: TopicId::new(topic),
            queue: QueueId::new(queue),
        },
        message: message.clone(),
    };
    check(
        "timer",
        vec![("some", timer(9, 3)), ("last", timer(u64::MAX, u32::MAX))],
    );
}
