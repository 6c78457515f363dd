//! Sizes that the design counts on.

use pop_model::{
    GroupId, LeaseTime, LogQueue, Offset, QueueId, RetryEntry, RetryKey, StoredKey, StoredValue,
    SubscriptionEpoch, TopicId, limits,
};
use proptest::prelude::*;

use crate::arbitrary;

#[test]
fn a_retry_entry_takes_at_most_160_bytes_with_its_key() {
    let key = RetryKey {
        group: GroupId::new(u64::MAX),
        topic: TopicId::new(u64::MAX),
        sequence: u64::MAX,
    };
    let entry = RetryEntry {
        source: LogQueue {
            topic: TopicId::new(u64::MAX),
            queue: QueueId::new(u32::MAX),
        },
        offset: Offset::new(u64::MAX),
        epoch: SubscriptionEpoch::new(u64::MAX),
        delivery_attempt: u32::MAX,
        first_popped_at: LeaseTime::from_millis(u64::MAX),
    };
    let bytes = key.encode().len() + entry.encode().len();
    assert_eq!(bytes, 70);
    assert!(bytes <= 160);
}

proptest! {
    #[test]
    fn a_key_that_holds_a_name_fits(topic in arbitrary::any_topic(), group in arbitrary::group()) {
        for key in [
            pop_model::MetaKey::TopicByName(topic.clone()),
            pop_model::MetaKey::GroupByName(group.clone()),
            pop_model::MetaKey::TopicByName(pop_model::TopicName::retry(&group, &topic)),
        ] {
            prop_assert!(key.encode().len() <= limits::KEY_BYTES_MAX);
        }
    }
}

#[test]
fn a_page_with_few_marks_is_small() {
    let mut page = pop_model::MarkPage::default();
    assert_eq!(page.encode().len(), 13);
    page.set(4_095);
    assert_eq!(page.encode().len(), 21);
    (0..4_096).for_each(|place| page.set(place));
    assert_eq!(page.encode().len(), 525);
}
