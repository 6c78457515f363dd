//! Receipt handles: one delivery, one handle, and nobody else makes one.

use std::collections::BTreeSet;

use pop_model::{
    DeliveryIdentity, Generation, GroupId, HandleError, HandleKey, HandleKeyring, HandleKeys,
    Incarnation, Offset, QueueId, SubscriptionEpoch, TopicId,
};
use proptest::prelude::*;

use crate::arbitrary;

const HANDLE_CHARACTERS: usize = 88;

fn keyring(id: u8, secret: [u8; 16]) -> HandleKeyring {
    HandleKeyring::new(HandleKeys {
        current: HandleKey { id, secret },
        previous: None,
    })
}

fn ours() -> HandleKeyring {
    keyring(1, *b"a secret of ours")
}

/// The identity with one field changed, once for each field.
fn neighbours(it: DeliveryIdentity, change: u32) -> Vec<DeliveryIdentity> {
    let wide = u64::from(change);
    let mut all = vec![it; 7];
    all[0].queue.group = GroupId::new(it.queue.group.get() ^ wide);
    all[1].queue.topic = TopicId::new(it.queue.topic.get() ^ wide);
    all[2].queue.queue = QueueId::new(it.queue.queue.get() ^ change);
    all[3].epoch = SubscriptionEpoch::new(it.epoch.get() ^ wide);
    all[4].offset = Offset::new(it.offset.get() ^ wide);
    all[5].incarnation = Incarnation::new(it.incarnation.get() ^ wide);
    all[6].generation = Generation::new(it.generation.get() ^ change);
    all
}

proptest! {
    #[test]
    fn a_handle_opens_to_its_identity(identity in arbitrary::identity()) {
        let handle = ours().seal(&identity);
        prop_assert_eq!(ours().open(handle.as_str()), Ok(identity));
    }

    // P3. Mutant: a field is left out of the handle.
    #[test]
    fn identities_that_differ_in_any_one_field_never_share_a_handle(
        identity in arbitrary::identity(),
        change in 1..=u32::MAX,
    ) {
        let mut handles = BTreeSet::from([String::from(ours().seal(&identity))]);
        for (field, neighbour) in neighbours(identity, change).into_iter().enumerate() {
            prop_assert!(handles.insert(ours().seal(&neighbour).into()), "field {}", field);
        }
    }

    // BR-D03: every handle of a delivery is as good as the first.
    #[test]
    fn a_delivery_has_one_handle(identity in arbitrary::identity()) {
        prop_assert_eq!(ours().seal(&identity), ours().seal(&identity));
    }

    #[test]
    fn handles_have_one_length_and_characters_that_travel(identity in arbitrary::identity()) {
        let handle = String::from(ours().seal(&identity));
        prop_assert_eq!(handle.len(), HANDLE_CHARACTERS);
        prop_assert!(handle.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)));
    }

    // P3. Mutant: the signature is not compared, or only its first bytes are.
    #[test]
    fn a_handle_with_any_character_changed_is_refused(
        identity in arbitrary::identity(),
        place in 0..HANDLE_CHARACTERS,
        character in "[a-zA-Z0-9_-]",
    ) {
        let handle = String::from(ours().seal(&identity));
        let mut changed = handle.clone();
        changed.replace_range(place..=place, &character);
        prop_assume!(changed != handle);
        prop_assert!(ours().open(&changed).is_err());
    }

    #[test]
    fn a_handle_of_another_secret_is_forged(
        identity in arbitrary::identity(),
        secret in any::<[u8; 16]>(),
    ) {
        prop_assume!(secret != *b"a secret of ours");
        let handle = keyring(1, secret).seal(&identity);
        prop_assert_eq!(ours().open(handle.as_str()), Err(HandleError::Forged));
    }

    #[test]
    fn a_handle_of_another_key_is_told_from_a_forged_one(identity in arbitrary::identity()) {
        let handle = keyring(2, [0; 16]).seal(&identity);
        prop_assert_eq!(ours().open(handle.as_str()), Err(HandleError::UnknownKey(2)));
    }

    #[test]
    fn any_text_is_refused(text in "\\PC{0,100}", like in "[a-zA-Z0-9_-]{88}") {
        prop_assert!(ours().open(&text).is_err());
        prop_assert!(ours().open(&like).is_err());
    }
}

#[test]
fn errors_say_what_the_client_can_do() {
    for (error, text) in [
        (
            HandleError::Malformed,
            "the receipt handle is malformed: hand it back exactly as it was received",
        ),
        (
            HandleError::Version(9),
            "the receipt handle has version 9, which this broker does not know",
        ),
        (
            HandleError::UnknownKey(7),
            "the receipt handle was signed with key 7, which this broker does not have: it is from another broker, or too old",
        ),
        (
            HandleError::Forged,
            "the receipt handle is not one that this broker made",
        ),
    ] {
        assert_eq!(error.to_string(), text);
    }
}

#[test]
fn a_secret_is_not_printed() {
    let key = HandleKey {
        id: 3,
        secret: *b"never in any log",
    };
    let printed = format!("{:?} {:?}", key, keyring(3, key.secret));
    assert!(
        !printed.contains("110") && !printed.contains("never"),
        "{printed}"
    );
}
