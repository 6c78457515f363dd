//! The instances whose bytes are pinned: every kind, with options absent and present,
//! text in other scripts, and numbers at both ends.

use std::time::Duration;

use bytes::Bytes;
use pop_model::*;

const TWO_HOURS: Duration = Duration::from_secs(2 * 60 * 60);

pub(crate) fn queue() -> SubscriptionQueue {
    SubscriptionQueue {
        group: GroupId::new(7),
        topic: TopicId::new(9),
        queue: QueueId::new(3),
    }
}

pub(crate) fn last_queue() -> SubscriptionQueue {
    SubscriptionQueue {
        group: GroupId::new(u64::MAX),
        topic: TopicId::new(u64::MAX),
        queue: QueueId::new(u32::MAX),
    }
}

fn tenant() -> Namespace {
    Namespace::new("tenant").unwrap()
}

pub(crate) fn topics() -> [(&'static str, TopicName); 6] {
    let plain = Namespace::default();
    let long = "t".repeat(127);
    let group = GroupName::user(&tenant(), &"g".repeat(120)).unwrap();
    let longest = TopicName::user(&tenant(), &long).unwrap();
    [
        ("plain", TopicName::user(&plain, "orders").unwrap()),
        (
            "in_namespace",
            TopicName::user(&tenant(), "a%b|c_-9").unwrap(),
        ),
        (
            "unicode",
            TopicName::internal(&plain, "журнал/事件+🦀").unwrap(),
        ),
        ("longest", longest.clone()),
        ("retry_longest", TopicName::retry(&group, &longest)),
        ("dead_letter", TopicName::dead_letter(&group)),
    ]
}

pub(crate) fn groups() -> [(&'static str, GroupName); 2] {
    [
        (
            "plain",
            GroupName::user(&Namespace::default(), "g").unwrap(),
        ),
        (
            "longest",
            GroupName::user(&tenant(), &"g".repeat(120)).unwrap(),
        ),
    ]
}

pub(crate) fn identity() -> DeliveryIdentity {
    DeliveryIdentity {
        queue: queue(),
        epoch: SubscriptionEpoch::new(2),
        offset: Offset::new(41),
        incarnation: Incarnation::new(0x0123_4567_89AB_CDEF),
        generation: Generation::new(5),
    }
}

pub(crate) fn last_identity() -> DeliveryIdentity {
    DeliveryIdentity {
        queue: last_queue(),
        epoch: SubscriptionEpoch::new(u64::MAX),
        offset: Offset::new(u64::MAX),
        incarnation: Incarnation::new(u64::MAX),
        generation: Generation::new(u32::MAX),
    }
}

pub(crate) fn checkpoints() -> Vec<(&'static str, Checkpoint)> {
    let bare = Checkpoint {
        identity: identity(),
        popped_at: LeaseTime::from_millis(1_700_000_000_000),
        invisible_for: Duration::from_secs(30),
        visible_at: LeaseTime::from_millis(1_700_000_030_000),
        delivery_attempt: 1,
        revive_failures: 0,
        attempt_id: None,
        suspend: false,
        auto_renew: false,
        retry_kind: RetryKind::Normal,
        message_group_hash: None,
        first_popped_at: LeaseTime::from_millis(1_700_000_000_000),
    };
    let full = Checkpoint {
        identity: last_identity(),
        delivery_attempt: 17,
        revive_failures: 16,
        attempt_id: Some("попытка-7".into()),
        suspend: true,
        auto_renew: true,
        retry_kind: RetryKind::RetryV2,
        message_group_hash: Some(u64::MAX),
        ..bare.clone()
    };
    let suspended = Checkpoint {
        suspend: true,
        retry_kind: RetryKind::RetryV1,
        ..bare.clone()
    };
    vec![("bare", bare), ("suspended", suspended), ("full", full)]
}

pub(crate) fn retry_entries() -> Vec<(&'static str, RetryEntry)> {
    let plain = RetryEntry {
        source: queue().log_queue(),
        offset: Offset::new(41),
        epoch: SubscriptionEpoch::new(2),
        delivery_attempt: 2,
        first_popped_at: LeaseTime::from_millis(1_700_000_000_000),
    };
    let last = RetryEntry {
        source: last_queue().log_queue(),
        offset: Offset::new(u64::MAX),
        epoch: SubscriptionEpoch::new(u64::MAX),
        delivery_attempt: u32::MAX,
        first_popped_at: LeaseTime::from_millis(u64::MAX),
    };
    vec![("plain", plain), ("last", last)]
}

pub(crate) fn messages() -> Vec<(&'static str, Message)> {
    let bare = Message {
        message_id: "0100000000000000000000000000000001".into(),
        kind: MessageKind::Normal,
        tag: None,
        keys: vec![],
        message_group: None,
        encoding: BodyEncoding::Identity,
        born_at: WallTime::from_unix_millis(1_700_000_000_000),
        born_host: String::new(),
        stored_at: WallTime::from_unix_millis(1_700_000_000_001),
        deliver_at: None,
        trace_context: None,
        priority: None,
        properties: vec![],
        origin: None,
        body_md5: [0; 16],
        body: MessageBody::Inline(Bytes::new()),
    };
    let full = Message {
        kind: MessageKind::Fifo,
        tag: Some("срочно".into()),
        keys: vec!["k1".into(), String::new()],
        message_group: Some("customer-17".into()),
        encoding: BodyEncoding::Gzip,
        born_host: "10.0.0.1:4321".into(),
        deliver_at: Some(WallTime::from_unix_millis(-1)),
        trace_context: Some("00-trace".into()),
        priority: Some(-3),
        properties: vec![("b".into(), "2".into()), ("a".into(), "1".into())],
        origin: Some(DeadLetterOrigin {
            topic: "orders".into(),
            message_id: "0100".into(),
            reason: "delivered 17 times".into(),
            delivery_attempts: 17,
        }),
        body_md5: *b"0123456789abcdef",
        body: MessageBody::Inline(Bytes::from_static(b"hello")),
        ..bare.clone()
    };
    let chunked = Message {
        kind: MessageKind::Transaction,
        body: MessageBody::Chunked {
            id: BodyId::new(77),
            bytes: 4_000_000,
        },
        ..bare.clone()
    };
    let delayed = Message {
        kind: MessageKind::Delay,
        deliver_at: Some(WallTime::from_unix_millis(1_700_000_060_000)),
        ..bare.clone()
    };
    vec![
        ("bare", bare),
        ("full", full),
        ("chunked", chunked),
        ("delayed", delayed),
    ]
}

pub(crate) fn mark_pages() -> Vec<(&'static str, MarkPage)> {
    let page = |places: &[u16]| {
        let mut page = MarkPage::default();
        places.iter().for_each(|place| page.set(*place));
        page
    };
    let all: Vec<_> = (0..4_096).collect();
    vec![
        ("empty", page(&[])),
        ("first", page(&[0])),
        ("last", page(&[4_095])),
        ("scattered", page(&[1, 64, 66, 2_000])),
        ("full", page(&all)),
    ]
}

pub(crate) fn handle_keys() -> Vec<(&'static str, HandleKeys)> {
    let key = |id, secret: &[u8; 16]| HandleKey {
        id,
        secret: *secret,
    };
    let one = HandleKeys {
        current: key(1, b"a secret of ours"),
        previous: None,
    };
    let two = HandleKeys {
        current: key(2, b"another secret.."),
        previous: Some(key(1, b"a secret of ours")),
    };
    vec![("one", one), ("two", two)]
}

pub(crate) fn topic_records() -> Vec<(&'static str, TopicRecord)> {
    topics()
        .into_iter()
        .zip(0..)
        .map(|((label, name), index)| {
            let kinds = MessageKind::ALL.into_iter().take(index % 5);
            let record = TopicRecord {
                id: TopicId::new(9),
                name,
                queues: 4,
                kinds: kinds.collect(),
                created_at: WallTime::from_unix_millis(1_700_000_000_000),
            };
            (label, record)
        })
        .collect()
}

pub(crate) fn group_records() -> Vec<(&'static str, GroupRecord)> {
    let [(_, plain), (_, longest)] = groups();
    let default = GroupRecord {
        id: GroupId::new(7),
        name: plain,
        policy: RetryPolicy::default(),
        start: StartPosition::Earliest,
        fifo: false,
        created_at: WallTime::from_unix_millis(1_700_000_000_000),
    };
    let exponential = Backoff::Exponential {
        initial: Duration::from_secs(5),
        max: TWO_HOURS,
        multiplier: 1.5,
    };
    let fifo = GroupRecord {
        id: GroupId::new(u64::MAX),
        name: longest,
        policy: RetryPolicy::new(1, exponential).unwrap(),
        start: StartPosition::Latest,
        fifo: true,
        created_at: WallTime::from_unix_millis(-1),
    };
    vec![("default", default), ("fifo", fifo)]
}

pub(crate) fn quarantine_records() -> Vec<(&'static str, QuarantineRecord)> {
    let record = QuarantineRecord {
        reason: "checkpoint: the bytes end too early".into(),
        keyspace: "lease".into(),
        key: Bytes::from_static(&[0x04, 0x00]),
        value: Bytes::from_static(&[0x01]),
        at: WallTime::from_unix_millis(1_700_000_000_000),
        group: None,
    };
    let of_group = QuarantineRecord {
        keyspace: "log".into(),
        group: Some(GroupId::new(7)),
        ..record.clone()
    };
    let empty = QuarantineRecord {
        reason: String::new(),
        keyspace: String::new(),
        key: Bytes::new(),
        value: Bytes::new(),
        at: WallTime::from_unix_millis(i64::MIN),
        group: None,
    };
    vec![("record", record), ("of_group", of_group), ("empty", empty)]
}

pub(crate) fn retained() -> Vec<(&'static str, Retained)> {
    let holder = |group, epoch| Holder {
        group: GroupId::new(group),
        epoch: SubscriptionEpoch::new(epoch),
    };
    let some = Retained {
        holders: vec![holder(7, 2), holder(u64::MAX, u64::MAX)],
        row: Bytes::from_static(b"a row as it was"),
    };
    let empty = Retained {
        holders: Vec::new(),
        row: Bytes::new(),
    };
    vec![("some", some), ("empty", empty)]
}

pub(crate) fn meta_keys() -> Vec<(String, MetaKey)> {
    let mut keys = vec![
        ("counter".into(), MetaKey::Counter("topic".into())),
        ("counter_odd".into(), MetaKey::Counter("a\0ü".into())),
        ("topic".into(), MetaKey::Topic(TopicId::new(9))),
        ("group".into(), MetaKey::Group(GroupId::new(7))),
        ("subscription".into(), MetaKey::Subscription(queue())),
        (
            "subscription_last".into(),
            MetaKey::Subscription(last_queue()),
        ),
        ("log_start".into(), MetaKey::LogStart(queue().log_queue())),
        ("handle_keys".into(), MetaKey::HandleKeys),
        ("incarnation".into(), MetaKey::Incarnation),
        ("lease_clock_mark".into(), MetaKey::LeaseClockMark),
        (
            "due_floor".into(),
            MetaKey::DueFloor(ShardId::new(63).unwrap()),
        ),
        ("log_end".into(), MetaKey::LogEnd(queue().log_queue())),
        (
            "deleted_topic".into(),
            MetaKey::DeletedTopic(TopicId::new(9)),
        ),
        (
            "deleted_group".into(),
            MetaKey::DeletedGroup(GroupId::new(7)),
        ),
        ("retention_clock".into(), MetaKey::RetentionClock),
    ];
    for (label, name) in topics() {
        keys.push((format!("topic_by_name_{label}"), MetaKey::TopicByName(name)));
    }
    for (label, name) in groups() {
        keys.push((format!("group_by_name_{label}"), MetaKey::GroupByName(name)));
    }
    keys
}
