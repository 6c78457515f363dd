//! What every kind of key promises, whatever its fields.

use bytes::Bytes;
use pop_model::{MetaKey, StoredKey, SubscriptionQueue};
use proptest::{collection::vec, prelude::*};

use crate::arbitrary;

/// A field as it counts for the order of keys.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Field {
    Number(u64),
    Text(Vec<u8>),
}

fn numbers<const N: usize>(numbers: [u64; N]) -> Vec<Field> {
    numbers.map(Field::Number).into()
}

/// The fields of a metadata key, its sub-kind first.
fn meta_fields(key: &MetaKey) -> (u8, Vec<Field>) {
    let text = |text: &str| Field::Text(text.into());
    match key {
        MetaKey::Counter(name) => (0x10, vec![text(name)]),
        MetaKey::Topic(id) => (0x11, numbers([id.get()])),
        MetaKey::TopicByName(name) => (
            0x12,
            vec![text(name.namespace().as_str()), text(name.name())],
        ),
        MetaKey::Group(id) => (0x13, numbers([id.get()])),
        MetaKey::GroupByName(name) => (
            0x14,
            vec![text(name.namespace().as_str()), text(name.name())],
        ),
        MetaKey::Subscription(queue) => (
            0x15,
            numbers([
                queue.group.get(),
                queue.topic.get(),
                queue.queue.get().into(),
            ]),
        ),
        MetaKey::LogStart(queue) => (0x16, numbers([queue.topic.get(), queue.queue.get().into()])),
        MetaKey::HandleKeys => (0x18, vec![]),
        MetaKey::Incarnation => (0x19, vec![]),
        MetaKey::LeaseClockMark => (0x1A, vec![]),
        MetaKey::DueFloor(shard) => (0x1B, numbers([shard.get().into()])),
        MetaKey::LogEnd(queue) => (0x1C, numbers([queue.topic.get(), queue.queue.get().into()])),
        MetaKey::DeletedTopic(id) => (0x1D, numbers([id.get()])),
        MetaKey::DeletedGroup(id) => (0x1E, numbers([id.get()])),
        MetaKey::RetentionClock => (0x1F, vec![]),
    }
}

fn decodes_or_fails_cleanly<K: StoredKey>(bytes: Bytes) {
    if let Ok(key) = K::decode(bytes.clone()) {
        assert_eq!(key.encode(), bytes, "one key, one form");
    }
}

macro_rules! key_laws {
    ($kind:ident: $type:ident, |$key:ident| $fields:expr) => {
        mod $kind {
            use super::*;

            type Key = pop_model::$type;

            proptest! {
                #[test]
                fn round_trips(key in arbitrary::$kind()) {
                    prop_assert_eq!(Key::decode(key.encode()), Ok(key));
                }

                // Mutants: a number in little-endian order, a field left out, two fields
                // swapped, a signed number as it is.
                #[test]
                fn sorts_as_its_fields_do(
                    left in arbitrary::$kind(),
                    right in arbitrary::$kind(),
                ) {
                    let fields = |$key: &Key| $fields;
                    prop_assert_eq!(
                        left.encode().cmp(&right.encode()),
                        fields(&left).cmp(&fields(&right))
                    );
                }

                // Mutant: text without its end mark.
                #[test]
                fn is_no_prefix_of_another(
                    left in arbitrary::$kind(),
                    right in arbitrary::$kind(),
                ) {
                    prop_assume!(left != right);
                    prop_assert!(!left.encode().starts_with(&right.encode()));
                    prop_assert!(!right.encode().starts_with(&left.encode()));
                }

                #[test]
                fn is_refused_when_cut_or_followed(key in arbitrary::$kind()) {
                    let bytes = key.encode();
                    for len in 0..bytes.len() {
                        prop_assert!(Key::decode(bytes.slice(..len)).is_err());
                    }
                    let longer = [&bytes[..], &[0]].concat();
                    prop_assert!(Key::decode(longer.into()).is_err());
                }

                #[test]
                fn decodes_or_fails_cleanly_when_changed(
                    key in arbitrary::$kind(),
                    place in any::<prop::sample::Index>(),
                    byte in any::<u8>(),
                ) {
                    let mut bytes = key.encode().to_vec();
                    let place = place.index(bytes.len());
                    bytes[place] = byte;
                    decodes_or_fails_cleanly::<Key>(bytes.into());
                }

                #[test]
                fn decodes_or_fails_cleanly_from_any_bytes(bytes in vec(any::<u8>(), 0..64)) {
                    decodes_or_fails_cleanly::<Key>(bytes.into());
                }
            }
        }
    };
}

/// A subscription queue in a key: its shard leads.
fn sharded(queue: SubscriptionQueue) -> (u8, SubscriptionQueue) {
    (queue.shard().get(), queue)
}

key_laws!(log_key: LogKey, |key| (key.queue, key.offset));
key_laws!(body_chunk_key: BodyChunkKey, |key| (key.body, key.chunk));
key_laws!(body_pending_key: BodyPendingKey, |key| key.body);
key_laws!(lease_key: LeaseKey, |key| (sharded(key.queue), key.offset));
key_laws!(due_key: DueKey, |key| (
    key.queue.shard(),
    key.visible_at,
    key.queue,
    key.offset,
));
key_laws!(progress_key: ProgressKey, |key| sharded(key.queue));
key_laws!(mark_page_key: MarkPageKey, |key| (sharded(key.queue), key.page));
key_laws!(parked_key: ParkedKey, |key| (sharded(key.queue), key.message_group, key.offset));
key_laws!(retry_key: RetryKey, |key| (key.group, key.topic, key.sequence));
key_laws!(timer_key: TimerKey, |key| (key.shard, key.due, key.sequence));
key_laws!(quarantine_key: QuarantineKey, |key| key.sequence);
key_laws!(retained_key: RetainedKey, |key| (key.queue, key.offset));
key_laws!(meta_key: MetaKey, |key| meta_fields(key));

macro_rules! rust_order {
    ($($kind:ident),*) => {
        $(proptest! {
            // A map in memory and a keyspace must agree, or a model lies about the store.
            #[test]
            fn $kind(left in arbitrary::$kind(), right in arbitrary::$kind()) {
                prop_assert_eq!(left.cmp(&right), left.encode().cmp(&right.encode()));
                prop_assert_eq!(left == right, left.cmp(&right).is_eq());
            }
        })*
    };
}

mod sorts_in_memory_as_in_the_store {
    use super::*;

    rust_order!(
        log_key,
        body_chunk_key,
        body_pending_key,
        lease_key,
        due_key,
        progress_key,
        mark_page_key,
        retry_key,
        timer_key,
        quarantine_key,
        retained_key
    );
}

#[test]
fn a_key_of_another_shard_than_its_queue_is_refused() {
    let key = pop_model::ProgressKey {
        queue: SubscriptionQueue {
            group: pop_model::GroupId::new(1),
            topic: pop_model::TopicId::new(2),
            queue: pop_model::QueueId::new(3),
        },
    };
    let mut bytes = key.encode().to_vec();
    for shard in 0..=u8::MAX {
        bytes[1] = shard;
        // Mutant: the shard is read and not compared; the key is then found by nobody.
        assert_eq!(
            pop_model::ProgressKey::decode(bytes.clone().into()).is_ok(),
            shard == key.queue.shard().get()
        );
    }
}

#[test]
fn a_key_of_another_kind_is_named() {
    let key = MetaKey::HandleKeys.encode();
    let error = pop_model::LogKey::decode(key).unwrap_err();
    assert_eq!(
        error.to_string(),
        "log key: key code 0x18 is another kind of key"
    );
}

#[test]
fn text_in_a_key_has_one_form() {
    let key = |text: &[u8]| MetaKey::decode([&[0x10], text].concat().into());
    assert_eq!(key(b"a\0\xFFb\0\0"), Ok(MetaKey::Counter("a\0b".into())));
    // Mutant: whatever follows 0x00 stands for it; two keys are then one counter.
    for text in [&b"a\0\x01b\0\0"[..], b"a\0\xFE\0\0", b"\xFF\0\0"] {
        assert!(key(text).is_err(), "{text:?}");
    }
}
