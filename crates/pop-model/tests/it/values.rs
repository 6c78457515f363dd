//! What every kind of value promises, whatever its fields.

use bytes::Bytes;
use pop_model::{CodecError, MarkPage, Offset, Progress, StoredValue, SubscriptionEpoch};
use proptest::{collection::vec, prelude::*};

use crate::{allocation::largest_allocation, arbitrary};

/// An envelope around any payload, with a checksum that is right: what a forger or a
/// program with a fault would write.
fn envelope<V: StoredValue>(payload: &[u8]) -> Bytes {
    let mut bytes = vec![V::VERSION];
    bytes.extend(payload);
    let checksum = crc32c::crc32c(&bytes);
    bytes.extend(checksum.to_be_bytes());
    bytes.into()
}

fn payload(bytes: &Bytes) -> &[u8] {
    &bytes[1..bytes.len() - 4]
}

/// Decodes bytes of which only the envelope is known to be good.
fn decodes_or_fails_cleanly<V: StoredValue>(bytes: Bytes) {
    let (decoded, largest) = largest_allocation(|| V::decode(bytes.clone()));
    // A list of texts takes 48 bytes in memory for 8 bytes of input, and a vector doubles.
    assert!(
        largest <= 4_096 + 16 * bytes.len(),
        "{largest} bytes allocated for {}",
        bytes.len()
    );
    if let Ok(value) = decoded {
        assert_eq!(value.encode(), bytes, "one value, one form");
    }
}

macro_rules! value_laws {
    ($($kind:ident: $type:ident,)*) => {
        $(mod $kind {
            use super::*;

            type Value = pop_model::$type;

            proptest! {
                #[test]
                fn round_trips(value in arbitrary::$kind()) {
                    prop_assert_eq!(Value::decode(value.encode()), Ok(value));
                }

                // Mutant: the checksum is not compared, or leaves out the version.
                #[test]
                fn is_refused_with_any_byte_changed(
                    value in arbitrary::$kind(),
                    change in 1..=u8::MAX,
                ) {
                    let bytes = value.encode().to_vec();
                    for place in 0..bytes.len() {
                        let mut changed = bytes.clone();
                        changed[place] ^= change;
                        prop_assert!(Value::decode(changed.into()).is_err(), "byte {}", place);
                    }
                }

                #[test]
                fn is_refused_when_cut_or_followed(value in arbitrary::$kind()) {
                    let bytes = value.encode();
                    for len in 0..bytes.len() {
                        prop_assert!(Value::decode(bytes.slice(..len)).is_err());
                    }
                    let longer = [payload(&bytes), &[0]].concat();
                    decodes_or_fails_cleanly::<Value>(envelope::<Value>(&longer));
                }

                #[test]
                fn decodes_or_fails_cleanly_when_forged(
                    value in arbitrary::$kind(),
                    place in any::<prop::sample::Index>(),
                    forged in vec(prop_oneof![Just(0xFF), Just(0), any::<u8>()], 1..9),
                    end in any::<prop::sample::Index>(),
                ) {
                    let bytes = value.encode();
                    let mut payload = payload(&bytes).to_vec();
                    let place = place.index(payload.len());
                    for (byte, forged) in payload[place..].iter_mut().zip(forged) {
                        *byte = forged;
                    }
                    decodes_or_fails_cleanly::<Value>(envelope::<Value>(&payload));
                    payload.truncate(end.index(payload.len() + 1));
                    decodes_or_fails_cleanly::<Value>(envelope::<Value>(&payload));
                }

                #[test]
                fn decodes_or_fails_cleanly_from_any_bytes(bytes in vec(any::<u8>(), 0..96)) {
                    decodes_or_fails_cleanly::<Value>(bytes.clone().into());
                    decodes_or_fails_cleanly::<Value>(envelope::<Value>(&bytes));
                }
            }
        })*
    };
}

value_laws!(
    checkpoint: Checkpoint,
    retry_entry: RetryEntry,
    message: Message,
    progress: Progress,
    mark_page: MarkPage,
    handle_keys: HandleKeys,
    topic_record: TopicRecord,
    group_record: GroupRecord,
    subscription_record: SubscriptionRecord,
    retained: Retained,
    quarantine_record: QuarantineRecord,
);

#[test]
fn a_forged_count_allocates_nothing_ahead() {
    // A customized back-off that claims 2^32 - 1 delays and holds none. Mutant:
    // `Vec::with_capacity(count)`.
    let mut payload = vec![0; 8];
    for name in ["", "g"] {
        payload.extend((name.len() as u32).to_be_bytes());
        payload.extend(name.bytes());
    }
    payload.extend(17_u32.to_be_bytes());
    payload.push(0);
    payload.extend(u32::MAX.to_be_bytes());
    decodes_or_fails_cleanly::<pop_model::GroupRecord>(envelope::<pop_model::GroupRecord>(
        &payload,
    ));

    // A message with as many keys, and one whose id is as long.
    let mut payload = vec![0, 0, 0, 1, b'm', 0, 0];
    payload.extend([0xFF; 4]);
    decodes_or_fails_cleanly::<pop_model::Message>(envelope::<pop_model::Message>(&payload));
    decodes_or_fails_cleanly::<pop_model::Message>(envelope::<pop_model::Message>(&[0xFF; 4]));
}

#[test]
fn an_unknown_version_is_refused_by_name() {
    let progress = Progress {
        committed: Offset::new(1),
        epoch: SubscriptionEpoch::new(0),
    };
    let mut bytes = progress.encode().to_vec();
    bytes[0] = 2;
    let version = Progress::decode(bytes.into()).unwrap_err();
    assert_eq!(
        version,
        CodecError::Version {
            what: "progress",
            version: 2
        }
    );
    assert_eq!(
        version.to_string(),
        "progress: version 2 is not known to this program: run one that is as new as the data"
    );
}

#[test]
fn a_page_of_marks_holds_every_place_and_only_those_set() {
    let mut page = MarkPage::default();
    for place in 0..4_096 {
        assert!(!page.get(place));
        page.set(place);
        assert!(page.get(place));
        assert_eq!(page.count(), u32::from(place) + 1);
    }
}

#[test]
fn a_page_of_marks_has_one_form() {
    // A mask that promises a word, and a word without marks: the empty page again.
    // Mutant: it is accepted, and pages can't be compared by their bytes.
    let mask = [0, 0, 0, 0, 0, 0, 0, 1];
    assert_eq!(
        MarkPage::decode(envelope::<MarkPage>(&[mask, [0; 8]].concat())),
        Err(CodecError::Field {
            what: "page of settled marks",
            field: "mask"
        })
    );
}

/// The settled places of a page, as anybody would write them down.
type Naive = std::collections::BTreeSet<u16>;

fn page_of(places: &Naive) -> MarkPage {
    let mut page = MarkPage::default();
    places.iter().for_each(|place| page.set(*place));
    page
}

proptest! {
    #[test]
    fn a_page_of_marks_is_a_set_of_places(
        changes in vec((0..4_096_u16, any::<bool>()), 0..64),
        whole_words in vec(0..64_u16, 0..8),
        ask in vec(0..4_096_u16, 1..32),
        number in 0..1_000_u64,
    ) {
        // Mutants, each seen to fail here: `first_open_from` that looks at one word only,
        // or counts the places below in the words that follow; `end` from the first word
        // with a mark; `clear` that clears the whole word.
        let mut naive: Naive = whole_words.iter().flat_map(|word| word * 64..word * 64 + 64).collect();
        let mut page = page_of(&naive);
        for (place, settles) in changes {
            if settles {
                page.set(place);
                naive.insert(place);
            } else {
                page.clear(place);
                naive.remove(&place);
            }
        }
        prop_assert_eq!(page.count() as usize, naive.len());
        let end = naive.last().map_or(0, |last| u64::from(*last) + 1);
        prop_assert_eq!(page.end(number), Offset::new(number * 4_096 + end));
        for place in ask.into_iter().chain([0, 63, 64, 4_095]) {
            prop_assert_eq!(page.get(place), naive.contains(&place));
            let open = (place..4_096).find(|place| !naive.contains(place));
            prop_assert_eq!(page.first_open_from(place), open);
        }
    }
}

#[test]
fn a_full_page_has_no_open_place_and_ends_where_the_next_one_begins() {
    let page = page_of(&(0..4_096).collect());
    for place in [0, 1, 63, 64, 4_095] {
        assert_eq!(page.first_open_from(place), None);
    }
    assert_eq!(page.end(3), Offset::new(4 * 4_096));
    assert_eq!(MarkPage::default().end(3), Offset::new(3 * 4_096));
    // A place outside the page is not open on it, and the last page ends where numbers do.
    assert_eq!(MarkPage::default().first_open_from(4_096), None);
    assert_eq!(page.end(u64::MAX / 4_096), Offset::new(u64::MAX));
}

#[test]
fn the_hash_of_a_message_group_is_the_one_that_is_stored() {
    // SipHash-2-4 under a zero key, computed apart from this program. Mutants: another
    // key, SipHash-1-3, a length in front of the name.
    for (group, hash) in [
        ("", 0x1E92_4B9D_7377_00D7),
        ("a", 0x96C2_0860_CD93_A249),
        ("customer-17", 0xC809_4970_2237_1D46),
        ("журнал/事件", 0xFFA9_DD42_1283_73B1),
        (&"x".repeat(64), 0x23B3_3514_54A0_F29C),
    ] {
        assert_eq!(pop_model::message_group_hash(group), hash, "{group:?}");
    }
}

#[test]
fn an_offset_is_found_on_its_page() {
    for (offset, page, place) in [
        (0, 0, 0),
        (4_095, 0, 4_095),
        (4_096, 1, 0),
        (u64::MAX, u64::MAX / 4_096, 4_095),
    ] {
        assert_eq!(MarkPage::locate(Offset::new(offset)), (page, place));
    }
}

#[test]
#[should_panic(expected = "place 4096 is not on a page of 4096")]
fn a_mark_outside_the_page_is_not_lost_in_silence() {
    // Mutant: `set` ignores it; the acknowledgement is then forgotten.
    MarkPage::default().set(4_096);
}
