//! Names: RocketMQ's rules, and internal names that stand for exactly one thing.

use std::collections::HashMap;

use pop_model::{GroupName, NameError, Namespace, TopicName, TopicNameKind};
use proptest::prelude::*;

use crate::arbitrary;

fn plain() -> Namespace {
    Namespace::default()
}

fn topic(name: &str) -> Result<TopicName, NameError> {
    TopicName::user(&plain(), name)
}

fn group(name: &str) -> Result<GroupName, NameError> {
    GroupName::user(&plain(), name)
}

fn retry_kind(group: &GroupName, topic: &TopicName) -> TopicNameKind {
    TopicNameKind::Retry {
        group: group.clone(),
        topic: topic.clone(),
    }
}

#[test]
fn a_topic_name_has_1_to_127_bytes() {
    assert!(topic("t").is_ok());
    assert!(topic(&"t".repeat(127)).is_ok());
    assert_eq!(topic(""), Err(NameError::Empty { what: "topic" }));
    assert_eq!(
        topic(&"t".repeat(128)).unwrap_err().to_string(),
        "topic name has 128 bytes, at most 127 are allowed"
    );
}

#[test]
fn a_group_name_has_1_to_120_bytes() {
    assert!(group("g").is_ok());
    assert!(group(&"g".repeat(120)).is_ok());
    assert_eq!(
        group("").unwrap_err().to_string(),
        "group name is empty: give it at least one character"
    );
    assert_eq!(
        group(&"g".repeat(121)),
        Err(NameError::TooLong {
            what: "group",
            bytes: 121,
            bytes_max: 120
        })
    );
}

#[test]
fn a_namespace_has_0_to_127_bytes() {
    assert_eq!(Namespace::new(""), Ok(Namespace::default()));
    assert!(Namespace::new(&"n".repeat(127)).is_ok());
    assert!(Namespace::new(&"n".repeat(128)).is_err());
    assert!(Namespace::new("a/b").is_err());
}

#[test]
fn a_user_name_takes_rocketmq_s_characters_and_no_other() {
    for byte in 0..=0x7F_u8 {
        let character = char::from(byte);
        let allowed = character.is_ascii_alphanumeric() || "_-%|".contains(character);
        let name = format!("a{character}");
        assert_eq!(topic(&name).is_ok(), allowed, "{character:?}");
        assert_eq!(group(&name).is_ok(), allowed, "{character:?}");
    }
}

#[test]
fn a_character_that_is_refused_is_named_with_its_byte() {
    let refused = |name, character, at| {
        let what = "topic";
        assert_eq!(
            topic(name),
            Err(NameError::Character {
                what,
                character,
                at
            })
        );
    };
    refused("orders+eu", '+', 6);
    refused("\0", '\0', 0);
    refused("a\u{7F}", '\u{7F}', 1);
    refused("bücher", 'ü', 1);
    refused("%_|\u{1F980}", '\u{1F980}', 3);
    assert_eq!(
        topic("a b").unwrap_err().to_string(),
        "topic name has the character ' ' at byte 1: only a-z, A-Z, 0-9, '_', '-', '%' and '|' are allowed"
    );
}

#[test]
fn reserved_prefixes_are_refused_for_topics() {
    for prefix in ["%RETRY%", "%DLQ%", "rmq_sys_"] {
        let name = format!("{prefix}x");
        assert_eq!(
            topic(&name).unwrap_err().to_string(),
            format!(
                "topic name {name:?} is reserved: names that start with {prefix} belong to the broker"
            )
        );
        assert!(topic(prefix).is_err());
        assert!(topic(&format!("x{prefix}")).is_ok(), "only as a prefix");
    }
    assert!(topic("%RETRY").is_ok());
    assert!(topic("%retry%g").is_ok());
}

#[test]
fn an_internal_name_is_any_text_without_control_characters() {
    let internal = |name: &str| TopicName::internal(&plain(), name);
    assert!(internal("système/ü+x").is_ok());
    assert!(internal("").is_err());
    assert!(internal("a\n").is_err());
    assert!(internal("a\u{85}").is_err());
    assert!(internal(&"x".repeat(384)).is_ok());
    assert!(internal(&"x".repeat(385)).is_err());
    // Mutant: the place among characters, where the text says byte.
    assert_eq!(
        internal("ü\tb").unwrap_err().to_string(),
        "topic name has the control character '\\t' at byte 2: none is allowed"
    );
}

#[test]
fn a_client_may_read_the_topics_of_users_and_those_that_users_cause() {
    let readable = |name: &str| TopicName::readable(&plain(), name);
    assert_eq!(readable("orders"), topic("orders"));
    assert!(readable("%DLQ%g").is_ok());
    assert!(readable("%RETRY%g+orders").is_ok());
    assert!(readable("%RETRY%g_orders").is_ok());
    for refused in ["", "a+b", "rmq_sys_x", "%RETRY%\n", "ü"] {
        assert!(readable(refused).is_err(), "{refused:?}");
    }
    assert!(readable(&"t".repeat(128)).is_err());
}

#[test]
fn the_longest_retry_and_dead_letter_names_are_readable() {
    let namespace = Namespace::new(&"n".repeat(127)).unwrap();
    let longest = group(&"g".repeat(120)).unwrap();
    let foreign = GroupName::user(&namespace, longest.name()).unwrap();
    let topic = topic(&"t".repeat(127)).unwrap();
    for name in [
        // Mutant: the limit of user names is tested before the prefix.
        TopicName::retry(&longest, &topic),
        TopicName::retry(&foreign, &topic),
        TopicName::retry(&longest, &TopicName::dead_letter(&longest)),
        TopicName::dead_letter(&longest),
    ] {
        assert_eq!(
            TopicName::readable(name.namespace(), name.name()),
            Ok(name.clone())
        );
    }
}

#[test]
fn names_that_the_ancestor_took_for_one_are_apart() {
    // `%RETRY%a_b_c` there is both group a_b with topic c and group a with topic b_c.
    let pairs = [
        ("a_b", "c"),
        ("a", "b_c"),
        ("a|b", "c"),
        ("%RETRY%a", "b_c"),
    ];
    let mut seen = HashMap::new();
    for (group_name, topic_name) in pairs {
        let (group, topic) = (group(group_name).unwrap(), topic(topic_name).unwrap());
        let retry = TopicName::retry(&group, &topic);
        assert_eq!(retry.name(), format!("%RETRY%{group_name}+{topic_name}"));
        assert_eq!(retry.kind(), retry_kind(&group, &topic));
        assert_eq!(seen.insert(retry, (group_name, topic_name)), None);
    }
}

#[test]
fn a_group_of_another_namespace_than_its_topic_keeps_its_own_retries() {
    let tenant = Namespace::new("tenant").unwrap();
    let topic = topic("orders").unwrap();
    let own = group("g").unwrap();
    let foreign = GroupName::user(&tenant, "g").unwrap();
    let back = TopicName::user(&tenant, "orders").unwrap();
    for (group, topic, text) in [
        (&own, &topic, "%RETRY%g+orders"),
        (&foreign, &topic, "%RETRY%tenant/g+orders"),
        (&own, &back, "%RETRY%/g+orders"),
        (&foreign, &back, "%RETRY%g+orders"),
    ] {
        let retry = TopicName::retry(group, topic);
        assert_eq!(retry.name(), text);
        assert_eq!(retry.namespace(), topic.namespace());
        assert_eq!(retry.kind(), retry_kind(group, topic));
    }
}

#[test]
fn a_name_that_no_pair_gives_is_not_a_retry_name() {
    for name in [
        "%RETRY%",
        "%RETRY%+",
        "%RETRY%g",
        "%RETRY%g+",
        "%RETRY%+t",
        "%RETRY%g_t",
        "%RETRY%ü+t",
        "%RETRY%/g+t",
        "%RETRY%a/b/g+t",
        "%DLQ%",
        "%DLQ%a+b",
        "rmq_sys_x",
        "ü",
    ] {
        let name = TopicName::internal(&plain(), name).unwrap();
        // Mutant: an empty topic, or a namespace that goes without saying, is accepted.
        assert_eq!(name.kind(), TopicNameKind::Internal, "{name}");
    }
}

#[test]
fn a_name_is_shown_with_its_namespace() {
    let tenant = Namespace::new("tenant").unwrap();
    let topic = TopicName::user(&tenant, "orders").unwrap();
    assert_eq!(topic.to_string(), "tenant/orders");
    assert_eq!(group("g").unwrap().to_string(), "g");
}

proptest! {
    // BR-L01. Mutant: '_' or '|' as the separator, or the group's namespace left out.
    #[test]
    fn retry_names_are_one_to_one_and_can_be_read_back(
        group in arbitrary::group(),
        topic in arbitrary::user_topic(),
    ) {
        let retry = TopicName::retry(&group, &topic);
        prop_assert_eq!(retry.kind(), retry_kind(&group, &topic));
        let read = TopicName::readable(retry.namespace(), retry.name());
        prop_assert_eq!(read, Ok(retry));
    }

    #[test]
    fn retries_of_any_topic_that_exists_can_be_read_back(
        group in arbitrary::group(),
        topic in arbitrary::any_topic(),
    ) {
        prop_assert_eq!(TopicName::retry(&group, &topic).kind(), retry_kind(&group, &topic));
    }

    #[test]
    fn a_text_that_reads_as_a_retry_name_is_the_name_of_that_pair(
        namespace in arbitrary::namespace(),
        text in "(%RETRY%|%DLQ%)[a%/+]{0,9}",
    ) {
        let name = TopicName::internal(&namespace, &text).unwrap();
        match name.kind() {
            TopicNameKind::Retry { group, topic } => {
                prop_assert_eq!(TopicName::retry(&group, &topic), name);
            }
            TopicNameKind::DeadLetter { group } => {
                prop_assert_eq!(TopicName::dead_letter(&group), name);
            }
            kind => prop_assert_eq!(kind, TopicNameKind::Internal),
        }
    }

    #[test]
    fn dead_letter_names_are_one_to_one_and_can_be_read_back(group in arbitrary::group()) {
        let name = TopicName::dead_letter(&group);
        prop_assert_eq!(name.kind(), TopicNameKind::DeadLetter { group });
        let read = TopicName::readable(name.namespace(), name.name());
        prop_assert_eq!(read, Ok(name));
    }

    #[test]
    fn a_user_s_topic_is_one(topic in arbitrary::user_topic()) {
        prop_assert_eq!(topic.kind(), TopicNameKind::User);
        let read = TopicName::readable(topic.namespace(), topic.name());
        prop_assert_eq!(read, Ok(topic));
    }
}
