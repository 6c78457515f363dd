//! Strategies for everything that is stored. Numbers prefer small ones, neighbours and
//! the ends of their range, because that is where orders and ranges break.

use std::time::Duration;

use bytes::Bytes;
use pop_model::{
    Backoff, BodyChunkKey, BodyEncoding, BodyId, BodyPendingKey, Checkpoint, DeadLetterOrigin,
    DeliveryIdentity, DueKey, Generation, GroupId, GroupName, GroupRecord, HandleKey, HandleKeys,
    Holder, Incarnation, LeaseKey, LeaseTime, LogKey, LogQueue, MarkPage, MarkPageKey, Message,
    MessageBody, MessageKind, MetaKey, Namespace, Offset, ParkedKey, Progress, ProgressKey,
    QuarantineKey, QuarantineRecord, QueueId, Retained, RetainedKey, RetryEntry, RetryKey,
    RetryKind, RetryPolicy, ShardId, StartPosition, SubscriptionEpoch, SubscriptionQueue,
    SubscriptionRecord, TimerKey, TopicId, TopicName, TopicRecord, WallTime,
};
use proptest::{collection::vec, option, prelude::*};

pub(crate) fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0..4_u64,
        1 => 254..258_u64,
        2 => (0..3_u64).prop_map(|below| u64::MAX - below),
        3 => any::<u64>(),
    ]
}

pub(crate) fn small_number() -> impl Strategy<Value = u32> {
    prop_oneof![
        4 => 0..4_u32,
        1 => 254..258_u32,
        2 => (0..3_u32).prop_map(|below| u32::MAX - below),
        3 => any::<u32>(),
    ]
}

pub(crate) fn wall() -> impl Strategy<Value = WallTime> {
    prop_oneof![
        3 => -2..3_i64,
        1 => Just(i64::MIN),
        1 => Just(i64::MAX),
        3 => any::<i64>(),
    ]
    .prop_map(WallTime::from_unix_millis)
}

pub(crate) fn lease() -> impl Strategy<Value = LeaseTime> {
    number().prop_map(LeaseTime::from_millis)
}

pub(crate) fn offset() -> impl Strategy<Value = Offset> {
    number().prop_map(Offset::new)
}

fn millis() -> impl Strategy<Value = Duration> {
    number().prop_map(Duration::from_millis)
}

/// Any text, with many of the characters that delimiters and escapes trip over.
pub(crate) fn text() -> impl Strategy<Value = String> {
    let character = prop_oneof![
        2 => Just('\0'),
        1 => Just('\u{1}'),
        1 => Just('\u{FF}'),
        3 => prop::char::range('a', 'c'),
        3 => any::<char>(),
    ];
    vec(character, 0..8).prop_map(String::from_iter)
}

pub(crate) fn user_name(bytes_max: usize) -> impl Strategy<Value = String> {
    // Names made of what separates other things are as valid as any.
    prop_oneof![
        "[a-c_%|-]{1,5}".boxed(),
        prop::string::string_regex(&format!("[a-zA-Z0-9_%|-]{{1,{bytes_max}}}"))
            .expect("a valid pattern")
            .boxed(),
    ]
}

pub(crate) fn namespace() -> impl Strategy<Value = Namespace> {
    prop_oneof![Just(String::new()), user_name(127)]
        .prop_map(|name| Namespace::new(&name).expect("drawn from the allowed characters"))
}

pub(crate) fn user_topic() -> impl Strategy<Value = TopicName> {
    (namespace(), user_name(127)).prop_filter_map("reserved", |(namespace, name)| {
        TopicName::user(&namespace, &name).ok()
    })
}

pub(crate) fn any_topic() -> impl Strategy<Value = TopicName> {
    let internal = (namespace(), "\\PC{1,20}").prop_map(|(namespace, name)| {
        TopicName::internal(&namespace, &name).expect("no control character")
    });
    prop_oneof![
        user_topic(),
        internal,
        (group(), user_topic()).prop_map(|(group, topic)| TopicName::retry(&group, &topic)),
        group().prop_map(|group| TopicName::dead_letter(&group)),
    ]
}

pub(crate) fn group() -> impl Strategy<Value = GroupName> {
    (namespace(), user_name(120)).prop_map(|(namespace, name)| {
        GroupName::user(&namespace, &name).expect("drawn from the allowed characters")
    })
}

pub(crate) fn shard() -> impl Strategy<Value = ShardId> {
    prop_oneof![Just(0), Just(62), Just(63), 0..ShardId::COUNT]
        .prop_map(|raw| ShardId::new(raw).expect("below the count"))
}

pub(crate) fn log_queue() -> impl Strategy<Value = LogQueue> {
    (number(), small_number()).prop_map(|(topic, queue)| LogQueue {
        topic: TopicId::new(topic),
        queue: QueueId::new(queue),
    })
}

pub(crate) fn queue() -> impl Strategy<Value = SubscriptionQueue> {
    (number(), log_queue()).prop_map(|(group, LogQueue { topic, queue })| SubscriptionQueue {
        group: GroupId::new(group),
        topic,
        queue,
    })
}

pub(crate) fn log_key() -> impl Strategy<Value = LogKey> {
    (log_queue(), offset()).prop_map(|(queue, offset)| LogKey { queue, offset })
}

pub(crate) fn body_chunk_key() -> impl Strategy<Value = BodyChunkKey> {
    (number(), small_number()).prop_map(|(body, chunk)| BodyChunkKey {
        body: BodyId::new(body),
        chunk,
    })
}

pub(crate) fn body_pending_key() -> impl Strategy<Value = BodyPendingKey> {
    number().prop_map(|body| BodyPendingKey {
        body: BodyId::new(body),
    })
}

pub(crate) fn lease_key() -> impl Strategy<Value = LeaseKey> {
    (queue(), offset()).prop_map(|(queue, offset)| LeaseKey { queue, offset })
}

pub(crate) fn due_key() -> impl Strategy<Value = DueKey> {
    (lease(), queue(), offset()).prop_map(|(visible_at, queue, offset)| DueKey {
        visible_at,
        queue,
        offset,
    })
}

pub(crate) fn progress_key() -> impl Strategy<Value = ProgressKey> {
    queue().prop_map(|queue| ProgressKey { queue })
}

pub(crate) fn parked_key() -> impl Strategy<Value = ParkedKey> {
    (queue(), number(), offset()).prop_map(|(queue, message_group, offset)| ParkedKey {
        queue,
        message_group,
        offset,
    })
}

pub(crate) fn mark_page_key() -> impl Strategy<Value = MarkPageKey> {
    (queue(), number()).prop_map(|(queue, page)| MarkPageKey { queue, page })
}

pub(crate) fn retry_key() -> impl Strategy<Value = RetryKey> {
    (number(), number(), number()).prop_map(|(group, topic, sequence)| RetryKey {
        group: GroupId::new(group),
        topic: TopicId::new(topic),
        sequence,
    })
}

pub(crate) fn timer_key() -> impl Strategy<Value = TimerKey> {
    (shard(), wall(), number()).prop_map(|(shard, due, sequence)| TimerKey {
        shard,
        due,
        sequence,
    })
}

pub(crate) fn quarantine_key() -> impl Strategy<Value = QuarantineKey> {
    number().prop_map(|sequence| QuarantineKey { sequence })
}

pub(crate) fn retained_key() -> impl Strategy<Value = RetainedKey> {
    (log_queue(), offset()).prop_map(|(queue, offset)| RetainedKey { queue, offset })
}

pub(crate) fn meta_key() -> impl Strategy<Value = MetaKey> {
    prop_oneof![
        text().prop_map(MetaKey::Counter),
        number().prop_map(|id| MetaKey::Topic(TopicId::new(id))),
        any_topic().prop_map(MetaKey::TopicByName),
        number().prop_map(|id| MetaKey::Group(GroupId::new(id))),
        group().prop_map(MetaKey::GroupByName),
        queue().prop_map(MetaKey::Subscription),
        log_queue().prop_map(MetaKey::LogStart),
        Just(MetaKey::HandleKeys),
        Just(MetaKey::Incarnation),
        Just(MetaKey::LeaseClockMark),
        shard().prop_map(MetaKey::DueFloor),
        log_queue().prop_map(MetaKey::LogEnd),
        number().prop_map(|id| MetaKey::DeletedTopic(TopicId::new(id))),
        number().prop_map(|id| MetaKey::DeletedGroup(GroupId::new(id))),
        Just(MetaKey::RetentionClock),
    ]
}

pub(crate) fn identity() -> impl Strategy<Value = DeliveryIdentity> {
    (queue(), number(), offset(), number(), small_number()).prop_map(
        |(queue, epoch, offset, incarnation, generation)| DeliveryIdentity {
            queue,
            epoch: SubscriptionEpoch::new(epoch),
            offset,
            incarnation: Incarnation::new(incarnation),
            generation: Generation::new(generation),
        },
    )
}

pub(crate) fn checkpoint() -> impl Strategy<Value = Checkpoint> {
    let times = (lease(), millis(), lease(), lease());
    let counts = (small_number(), small_number());
    let kind = prop::sample::select(vec![
        RetryKind::Normal,
        RetryKind::RetryV1,
        RetryKind::RetryV2,
    ]);
    let rest = (
        option::of(text()),
        any::<bool>(),
        any::<bool>(),
        kind,
        option::of(number()),
    );
    (identity(), times, counts, rest).prop_map(|(identity, times, counts, rest)| {
        let (popped_at, invisible_for, visible_at, first_popped_at) = times;
        let (delivery_attempt, revive_failures) = counts;
        let (attempt_id, suspend, auto_renew, retry_kind, message_group_hash) = rest;
        Checkpoint {
            identity,
            popped_at,
            invisible_for,
            visible_at,
            delivery_attempt,
            revive_failures,
            attempt_id: attempt_id.map(String::into_boxed_str),
            suspend,
            auto_renew,
            retry_kind,
            message_group_hash,
            first_popped_at,
        }
    })
}

pub(crate) fn retry_entry() -> impl Strategy<Value = RetryEntry> {
    (log_queue(), offset(), number(), small_number(), lease()).prop_map(
        |(source, offset, epoch, delivery_attempt, first_popped_at)| RetryEntry {
            source,
            offset,
            epoch: SubscriptionEpoch::new(epoch),
            delivery_attempt,
            first_popped_at,
        },
    )
}

fn origin() -> impl Strategy<Value = DeadLetterOrigin> {
    (text(), text(), text(), small_number()).prop_map(
        |(topic, message_id, reason, delivery_attempts)| DeadLetterOrigin {
            topic,
            message_id,
            reason,
            delivery_attempts,
        },
    )
}

fn body() -> impl Strategy<Value = MessageBody> {
    prop_oneof![
        vec(any::<u8>(), 0..64).prop_map(|body| MessageBody::Inline(body.into())),
        (number(), small_number()).prop_map(|(id, bytes)| MessageBody::Chunked {
            id: BodyId::new(id),
            bytes,
        }),
    ]
}

pub(crate) fn message() -> impl Strategy<Value = Message> {
    let labels = (
        text(),
        option::of(text()),
        vec(text(), 0..3),
        option::of(text()),
        text(),
    );
    let kinds = (
        prop::sample::select(MessageKind::ALL.to_vec()),
        prop::sample::select(vec![BodyEncoding::Identity, BodyEncoding::Gzip]),
    );
    let times = (wall(), wall(), option::of(wall()));
    let extras = (
        option::of(text()),
        option::of(any::<i32>()),
        vec((text(), text()), 0..3),
        option::of(origin()),
    );
    (labels, kinds, times, extras, any::<[u8; 16]>(), body()).prop_map(
        |(labels, kinds, times, extras, body_md5, body)| Message {
            message_id: labels.0,
            kind: kinds.0,
            tag: labels.1,
            keys: labels.2,
            message_group: labels.3,
            encoding: kinds.1,
            born_at: times.0,
            born_host: labels.4,
            stored_at: times.1,
            deliver_at: times.2,
            trace_context: extras.0,
            priority: extras.1,
            properties: extras.2,
            origin: extras.3,
            body_md5,
            body,
        },
    )
}

pub(crate) fn progress() -> impl Strategy<Value = Progress> {
    (offset(), number()).prop_map(|(committed, epoch)| Progress {
        committed,
        epoch: SubscriptionEpoch::new(epoch),
    })
}

pub(crate) fn mark_page() -> impl Strategy<Value = MarkPage> {
    prop_oneof![
        vec(0..4_096_u16, 0..8),
        vec(0..4_096_u16, 0..4_096),
        Just((0..4_096).collect()),
    ]
    .prop_map(|places| {
        let mut page = MarkPage::default();
        places.into_iter().for_each(|place| page.set(place));
        page
    })
}

fn key_pair() -> impl Strategy<Value = HandleKey> {
    (any::<u8>(), any::<[u8; 16]>()).prop_map(|(id, secret)| HandleKey { id, secret })
}

pub(crate) fn handle_keys() -> impl Strategy<Value = HandleKeys> {
    (key_pair(), option::of(key_pair()))
        .prop_map(|(current, previous)| HandleKeys { current, previous })
}

pub(crate) fn topic_record() -> impl Strategy<Value = TopicRecord> {
    let kinds = prop::sample::subsequence(MessageKind::ALL.to_vec(), 0..=4);
    (number(), any_topic(), small_number(), kinds, wall()).prop_map(
        |(id, name, queues, kinds, created_at)| TopicRecord {
            id: TopicId::new(id),
            name,
            queues,
            kinds,
            created_at,
        },
    )
}

fn policy() -> impl Strategy<Value = RetryPolicy> {
    let backoff = prop_oneof![
        vec(millis(), 1..6).prop_map(Backoff::Customized),
        (millis(), millis(), 1.0..100.0_f32).prop_map(|(initial, max, multiplier)| {
            Backoff::Exponential {
                initial,
                max,
                multiplier,
            }
        }),
    ];
    (1..=1_000_u32, backoff)
        .prop_map(|(attempts, backoff)| RetryPolicy::new(attempts, backoff).expect("within limits"))
}

pub(crate) fn group_record() -> impl Strategy<Value = GroupRecord> {
    let start = prop::sample::select(vec![StartPosition::Earliest, StartPosition::Latest]);
    (number(), group(), policy(), start, any::<bool>(), wall()).prop_map(
        |(id, name, policy, start, fifo, created_at)| GroupRecord {
            id: GroupId::new(id),
            name,
            policy,
            start,
            fifo,
            created_at,
        },
    )
}

pub(crate) fn subscription_record() -> impl Strategy<Value = SubscriptionRecord> {
    (offset(), number()).prop_map(|(start, epoch)| SubscriptionRecord {
        start,
        epoch: SubscriptionEpoch::new(epoch),
    })
}

pub(crate) fn retained() -> impl Strategy<Value = Retained> {
    let holder = (number(), number()).prop_map(|(group, epoch)| Holder {
        group: GroupId::new(group),
        epoch: SubscriptionEpoch::new(epoch),
    });
    (vec(holder, 0..4), vec(any::<u8>(), 0..32)).prop_map(|(holders, row)| Retained {
        holders,
        row: row.into(),
    })
}

pub(crate) fn quarantine_record() -> impl Strategy<Value = QuarantineRecord> {
    let bytes = || vec(any::<u8>(), 0..32).prop_map(Bytes::from);
    let group = option::of(number().prop_map(GroupId::new));
    (text(), text(), bytes(), bytes(), wall(), group).prop_map(
        |(reason, keyspace, key, value, at, group)| QuarantineRecord {
            reason,
            keyspace,
            key,
            value,
            at,
            group,
        },
    )
}
