//! Ranges hold exactly the keys that they should, also at the ends of the numbers.

use bytes::Bytes;
use pop_model::{
    BodyChunkKey, BodyId, BodyPendingKey, DueKey, GroupId, LeaseKey, LeaseTime, LogKey,
    MarkPageKey, MetaKey, ParkedKey, ProgressKey, QuarantineKey, QueueId, RetainedKey, RetryKey,
    ShardId, StoredKey, SubscriptionQueue, TimerKey, TopicId, WallTime, codec::key::prefix_range,
    limits,
};
use proptest::{collection::vec, prelude::*};

use crate::arbitrary;

fn holds((start, end): &(Bytes, Bytes), key: &[u8]) -> bool {
    start[..] <= *key && *key < end[..]
}

/// A key of any kind at all, encoded.
fn any_key() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        arbitrary::log_key().prop_map(|key| key.encode()),
        arbitrary::body_chunk_key().prop_map(|key| key.encode()),
        arbitrary::body_pending_key().prop_map(|key| key.encode()),
        arbitrary::lease_key().prop_map(|key| key.encode()),
        arbitrary::due_key().prop_map(|key| key.encode()),
        arbitrary::progress_key().prop_map(|key| key.encode()),
        arbitrary::mark_page_key().prop_map(|key| key.encode()),
        arbitrary::retry_key().prop_map(|key| key.encode()),
        arbitrary::timer_key().prop_map(|key| key.encode()),
        arbitrary::quarantine_key().prop_map(|key| key.encode()),
        arbitrary::retained_key().prop_map(|key| key.encode()),
        arbitrary::meta_key().prop_map(|key| key.encode()),
    ]
}

proptest! {
    #[test]
    fn a_prefix_range_holds_what_starts_with_the_prefix(
        prefix in vec(prop_oneof![Just(0xFF), any::<u8>()], 0..5),
        other in vec(prop_oneof![Just(0xFF), any::<u8>()], 0..8),
        rest in vec(prop_oneof![Just(0xFF), any::<u8>()], 0..8),
    ) {
        let range = prefix_range(prefix.clone());
        // Mutant: 0xFF is raised to 0x00 without a carry; the range is then empty.
        prop_assert!(holds(&range, &[&prefix[..], &rest].concat()));
        prop_assert_eq!(holds(&range, &other), other.starts_with(&prefix));
    }

    #[test]
    fn a_log_queue_range_holds_that_queue(
        queue in arbitrary::log_queue(),
        key in arbitrary::log_key(),
    ) {
        let range = LogKey::queue_range(queue);
        prop_assert_eq!(holds(&range, &key.encode()), key.queue == queue);
        let own = LogKey { queue, ..key };
        prop_assert!(holds(&range, &own.encode()));
    }

    #[test]
    fn a_retained_range_holds_that_queue(
        queue in arbitrary::log_queue(),
        key in arbitrary::retained_key(),
    ) {
        let range = RetainedKey::queue_range(queue);
        prop_assert_eq!(holds(&range, &key.encode()), key.queue == queue);
        let own = RetainedKey { queue, ..key };
        prop_assert!(holds(&range, &own.encode()));
    }

    #[test]
    fn a_range_of_a_group_holds_what_is_the_groups(
        group in arbitrary::number().prop_map(GroupId::new),
        other in arbitrary::queue(),
        shard in arbitrary::shard(),
        (lease, page, retry) in (
            arbitrary::lease_key(),
            arbitrary::mark_page_key(),
            arbitrary::retry_key(),
        ),
    ) {
        let own = SubscriptionQueue { group, ..other };
        for queue in [own, other] {
            let lease = LeaseKey { queue, ..lease };
            let page = MarkPageKey { queue, ..page };
            let progress = ProgressKey { queue };
            for shard in [queue.shard(), shard] {
                let is_own = queue.group == group && queue.shard() == shard;
                let range = LeaseKey::group_range(shard, group);
                prop_assert_eq!(holds(&range, &lease.encode()), is_own);
                let range = MarkPageKey::group_range(shard, group);
                prop_assert_eq!(holds(&range, &page.encode()), is_own);
                let range = ProgressKey::group_range(shard, group);
                prop_assert_eq!(holds(&range, &progress.encode()), is_own);
            }
            let is_own = queue.group == group;
            let retry = RetryKey { group: queue.group, ..retry };
            prop_assert_eq!(holds(&RetryKey::group_range(group), &retry.encode()), is_own);
            let subscription = MetaKey::Subscription(queue);
            let range = MetaKey::subscriptions_of(group);
            prop_assert_eq!(holds(&range, &subscription.encode()), is_own);
        }
    }

    #[test]
    fn a_body_range_holds_that_body(
        body in arbitrary::number().prop_map(BodyId::new),
        key in arbitrary::body_chunk_key(),
    ) {
        let range = BodyChunkKey::body_range(body);
        prop_assert_eq!(holds(&range, &key.encode()), key.body == body);
        let own = BodyChunkKey { body, ..key };
        prop_assert!(holds(&range, &own.encode()));
    }

    #[test]
    fn a_lease_range_holds_that_queue(
        queue in arbitrary::queue(),
        key in arbitrary::lease_key(),
    ) {
        let range = LeaseKey::queue_range(queue);
        prop_assert_eq!(holds(&range, &key.encode()), key.queue == queue);
        let own = LeaseKey { queue, ..key };
        prop_assert!(holds(&range, &own.encode()));
    }

    #[test]
    fn a_mark_page_range_holds_that_queue(
        queue in arbitrary::queue(),
        key in arbitrary::mark_page_key(),
    ) {
        let range = MarkPageKey::queue_range(queue);
        prop_assert_eq!(holds(&range, &key.encode()), key.queue == queue);
        let own = MarkPageKey { queue, ..key };
        prop_assert!(holds(&range, &own.encode()));
    }

    #[test]
    fn a_parked_range_holds_that_queue_or_that_message_group(
        queue in arbitrary::queue(),
        key in arbitrary::parked_key(),
        from in arbitrary::offset(),
    ) {
        let range = ParkedKey::queue_range(queue);
        prop_assert_eq!(holds(&range, &key.encode()), key.queue == queue);
        let own = ParkedKey { queue, ..key };
        prop_assert!(holds(&range, &own.encode()));
        let range = ParkedKey::range_from(queue, key.message_group, from);
        prop_assert_eq!(holds(&range, &own.encode()), key.offset >= from);
        let other = ParkedKey { message_group: !key.message_group, ..own };
        prop_assert!(!holds(&range, &other.encode()));
    }

    #[test]
    fn a_due_range_holds_that_shard(shard in arbitrary::shard(), key in arbitrary::due_key()) {
        let holding = key.queue.shard();
        prop_assert!(holds(&DueKey::shard_range(holding), &key.encode()));
        prop_assert_eq!(
            holds(&DueKey::shard_range(shard), &key.encode()),
            shard == holding
        );
    }

    #[test]
    fn a_due_start_comes_before_what_is_due_from_then_on(
        from in arbitrary::lease(),
        shard in arbitrary::shard(),
        key in arbitrary::due_key(),
    ) {
        let start = DueKey::start(key.queue.shard(), from);
        prop_assert_eq!(start <= key.encode(), from <= key.visible_at);
        let (first, end) = DueKey::shard_range(shard);
        let start = DueKey::start(shard, from);
        prop_assert!(first <= start && start < end, "a start lies in its shard");
    }

    #[test]
    fn a_retry_range_holds_the_entries_from_its_sequence_on(
        first in arbitrary::retry_key(),
        key in arbitrary::retry_key(),
    ) {
        let range = RetryKey::range_from(first.group, first.topic, first.sequence);
        let same = (key.group, key.topic) == (first.group, first.topic);
        prop_assert_eq!(
            holds(&range, &key.encode()),
            same && key.sequence >= first.sequence
        );
        prop_assert!(holds(&range, &first.encode()));
        let last = RetryKey { sequence: u64::MAX, ..first };
        prop_assert!(holds(&range, &last.encode()));
    }

    #[test]
    fn a_timer_range_holds_what_is_due_before_its_end(
        shard in arbitrary::shard(),
        until in arbitrary::wall(),
        key in arbitrary::timer_key(),
    ) {
        let holds_key = |key: &TimerKey| holds(&TimerKey::range_until(shard, until), &key.encode());
        prop_assert_eq!(holds_key(&key), key.shard == shard && key.due < until);
        let key = TimerKey { shard, ..key };
        prop_assert_eq!(holds_key(&key), key.due < until);
    }

    #[test]
    fn a_range_of_a_kind_holds_that_kind(key in any_key()) {
        for (code, range) in [
            (0x03, BodyPendingKey::range()),
            (0x0A, QuarantineKey::range()),
            (0x11, MetaKey::topics()),
            (0x13, MetaKey::groups()),
            (0x15, MetaKey::subscriptions()),
            (0x0B, RetainedKey::range()),
            (0x1D, MetaKey::deleted_topics()),
            (0x1E, MetaKey::deleted_groups()),
        ] {
            prop_assert_eq!(holds(&range, &key), key[0] == code);
        }
    }

    #[test]
    fn a_range_inside_a_kind_holds_no_other_kind(
        key in any_key(),
        queue in arbitrary::queue(),
        shard in arbitrary::shard(),
        id in arbitrary::number(),
        wall in arbitrary::wall(),
    ) {
        for (code, range) in [
            (0x01, LogKey::queue_range(queue.log_queue())),
            (0x02, BodyChunkKey::body_range(BodyId::new(id))),
            (0x04, LeaseKey::queue_range(queue)),
            (0x05, DueKey::shard_range(shard)),
            (0x07, MarkPageKey::queue_range(queue)),
            (0x08, RetryKey::range_from(queue.group, queue.topic, id)),
            (0x09, TimerKey::range_until(shard, wall)),
            (0x0B, RetainedKey::queue_range(queue.log_queue())),
            (0x0C, ParkedKey::queue_range(queue)),
        ] {
            prop_assert!(key[0] == code || !holds(&range, &key));
        }
    }
}

#[test]
fn the_last_queue_of_all_has_a_range() {
    let queue = SubscriptionQueue {
        group: GroupId::new(u64::MAX),
        topic: TopicId::new(u64::MAX),
        queue: QueueId::new(u32::MAX),
    };
    for offset in [0, u64::MAX].map(pop_model::Offset::new) {
        let key = LeaseKey { queue, offset };
        assert!(holds(&LeaseKey::queue_range(queue), &key.encode()));
        let queue = queue.log_queue();
        let key = LogKey { queue, offset };
        assert!(holds(&LogKey::queue_range(queue), &key.encode()));
    }
    let body = BodyId::new(u64::MAX);
    let key = BodyChunkKey {
        body,
        chunk: u32::MAX,
    };
    assert!(holds(&BodyChunkKey::body_range(body), &key.encode()));
}

#[test]
fn the_last_shard_ends_where_its_kind_does() {
    let last = ShardId::all().last().unwrap();
    assert_eq!(last.get(), 63);
    let queue = (0..)
        .map(|group| SubscriptionQueue {
            group: GroupId::new(group),
            topic: TopicId::new(1),
            queue: QueueId::new(0),
        })
        .find(|queue| queue.shard() == last)
        .unwrap();
    let key = DueKey {
        visible_at: LeaseTime::from_millis(u64::MAX),
        queue,
        offset: pop_model::Offset::new(u64::MAX),
    };
    assert!(holds(&DueKey::shard_range(last), &key.encode()));
    assert_eq!(&DueKey::shard_range(last).1[..], [0x05, 64]);
}

#[test]
fn the_end_of_a_range_may_be_used_as_a_key() {
    // A batch checks the ends of range deletes like keys.
    for prefix in [vec![], vec![0xFF], vec![0xFF; 3]] {
        let (start, end) = prefix_range(prefix);
        assert!(start < end);
        assert!(end.len() <= limits::KEY_BYTES_MAX);
    }
}

#[test]
fn a_timer_of_before_1970_is_due_before_one_of_1970() {
    let shard = ShardId::new(0).unwrap();
    let key = |millis| TimerKey {
        shard,
        due: WallTime::from_unix_millis(millis),
        sequence: 0,
    };
    let range = TimerKey::range_until(shard, WallTime::from_unix_millis(0));
    assert!(holds(&range, &key(-1).encode()));
    assert!(!holds(&range, &key(0).encode()));
}
