//! What each fuzz target does with its input. The tests of `pop-model` run the same
//! bodies on random input, so that none of them rots between two nights of fuzzing.

use bytes::Bytes;
use pop_model::{
    BodyChunkKey, BodyPendingKey, Checkpoint, DeliveryIdentity, DueKey, Generation, GroupId,
    GroupName, GroupRecord, HandleKey, HandleKeyring, HandleKeys, Incarnation, LeaseKey, LogKey,
    MarkPage, MarkPageKey, Message, MetaKey, Namespace, Offset, ParkedKey, Progress, ProgressKey,
    QuarantineKey, QuarantineRecord, QueueId, Retained, RetainedKey, RetryEntry, RetryKey,
    StoredKey, StoredValue, SubscriptionEpoch, SubscriptionQueue, SubscriptionRecord, TimerKey,
    TopicId, TopicName, TopicNameKind, TopicRecord, codec::reader::Reader,
};

/// Decodes `data` as every kind of key. A key that comes out goes back to the same bytes.
pub fn keys(data: &[u8]) {
    fn check<K: StoredKey>(data: &Bytes) {
        if let Ok(key) = K::decode(data.clone()) {
            assert_eq!(key.encode(), data, "{}", K::WHAT);
        }
    }
    let data = Bytes::copy_from_slice(data);
    check::<LogKey>(&data);
    check::<BodyChunkKey>(&data);
    check::<BodyPendingKey>(&data);
    check::<LeaseKey>(&data);
    check::<DueKey>(&data);
    check::<ProgressKey>(&data);
    check::<MarkPageKey>(&data);
    check::<ParkedKey>(&data);
    check::<RetryKey>(&data);
    check::<TimerKey>(&data);
    check::<QuarantineKey>(&data);
    check::<RetainedKey>(&data);
    check::<MetaKey>(&data);
}

/// Decodes `data` as every kind of value: as it is, and in an envelope whose version and
/// checksum are right, since chance alone does not find those.
pub fn values(data: &[u8]) {
    fn check<V: StoredValue>(data: &[u8]) {
        let _ = V::decode(Bytes::copy_from_slice(data));
        let mut bytes = vec![V::VERSION];
        bytes.extend(data);
        let checksum = crc32c::crc32c(&bytes);
        bytes.extend(checksum.to_be_bytes());
        let bytes = Bytes::from(bytes);
        if let Ok(value) = V::decode(bytes.clone()) {
            assert_eq!(value.encode(), bytes, "{}", V::WHAT);
        }
    }
    check::<Checkpoint>(data);
    check::<RetryEntry>(data);
    check::<Message>(data);
    check::<Progress>(data);
    check::<MarkPage>(data);
    check::<HandleKeys>(data);
    check::<TopicRecord>(data);
    check::<GroupRecord>(data);
    check::<SubscriptionRecord>(data);
    check::<Retained>(data);
    check::<QuarantineRecord>(data);
}

/// Opens `data` as a handle, which fails, and seals it as an identity, which comes back.
pub fn handle(data: &[u8]) {
    let keyring = HandleKeyring::new(HandleKeys {
        current: HandleKey {
            id: 1,
            secret: *b"not for fuzzers!",
        },
        previous: None,
    });
    if let Ok(text) = std::str::from_utf8(data) {
        assert!(keyring.open(text).is_err(), "a handle was forged");
    }
    let Some(identity) = identity(data) else {
        return;
    };
    let handle = keyring.seal(&identity);
    assert_eq!(keyring.open(handle.as_str()), Ok(identity));
}

fn identity(data: &[u8]) -> Option<DeliveryIdentity> {
    let mut reader = Reader::new("identity", Bytes::copy_from_slice(data));
    Some(DeliveryIdentity {
        queue: SubscriptionQueue {
            group: GroupId::new(reader.u64().ok()?),
            topic: TopicId::new(reader.u64().ok()?),
            queue: QueueId::new(reader.u32().ok()?),
        },
        epoch: SubscriptionEpoch::new(reader.u64().ok()?),
        offset: Offset::new(reader.u64().ok()?),
        incarnation: Incarnation::new(reader.u64().ok()?),
        generation: Generation::new(reader.u32().ok()?),
    })
}

/// Takes `data` as a namespace and two names, cut at line feeds. What an internal name
/// says that it is must give that same name again.
pub fn names(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let mut parts = text.splitn(3, '\n');
    let mut part = || parts.next().unwrap_or_default();
    let (namespace, group, topic) = (part(), part(), part());
    let Ok(namespace) = Namespace::new(namespace) else {
        return;
    };
    for name in [
        TopicName::user(&namespace, topic),
        TopicName::internal(&namespace, topic),
        TopicName::readable(&namespace, topic),
    ]
    .into_iter()
    .flatten()
    {
        match name.kind() {
            TopicNameKind::Retry { group, topic } => {
                assert_eq!(TopicName::retry(&group, &topic), name);
            }
            TopicNameKind::DeadLetter { group } => {
                assert_eq!(TopicName::dead_letter(&group), name);
            }
            TopicNameKind::User | TopicNameKind::Internal => {}
        }
        let key = MetaKey::TopicByName(name.clone());
        assert_eq!(MetaKey::decode(key.encode()), Ok(key));
        for namespace in [Namespace::default(), namespace.clone()] {
            if let Ok(group) = GroupName::user(&namespace, group) {
                let retry = TopicName::retry(&group, &name).kind();
                let topic = name.clone();
                assert_eq!(retry, TopicNameKind::Retry { group, topic });
            }
        }
    }
}
