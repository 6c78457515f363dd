//! What is written at all, and what is read from a peer that knows less or more.

use pop_proto::v2;
use prost::Message;

#[test]
fn an_optional_zero_is_on_the_wire_and_a_plain_zero_is_not() {
    let zero = v2::SystemProperties {
        queue_id: 0,
        queue_offset: Some(0),
        ..v2::SystemProperties::default()
    };
    let encoded = zero.encode_to_vec();
    assert_eq!(encoded, [14 << 3, 0]);
    let read = v2::SystemProperties::decode(encoded.as_slice()).expect("it was just encoded");
    assert_eq!(read.queue_offset, Some(0));
}

#[test]
fn repeated_enums_are_read_packed_and_one_by_one() {
    let packed = [5 << 3 | 2, 2, 1, 2];
    let one_by_one = [5 << 3, 1, 5 << 3, 2];
    let read = |bytes: &[u8]| v2::MessageQueue::decode(bytes).expect("both forms are valid");
    assert_eq!(read(&packed).accept_message_types, [1, 2]);
    assert_eq!(read(&one_by_one).accept_message_types, [1, 2]);
    assert_eq!(read(&packed).encode_to_vec(), packed);
}

#[test]
fn a_field_of_a_newer_peer_is_skipped() {
    // Field 15 of `Resource` doesn't exist.
    let encoded = [2 << 3 | 2, 1, b't', 15 << 3, 7];
    let resource = v2::Resource::decode(encoded.as_slice()).expect("unknown fields are skipped");
    assert_eq!(resource.name, "t");
}

#[test]
fn equal_messages_encode_to_equal_bytes() {
    // Mutant: without `btree_map` in build.rs, the order of the properties is random.
    let encode = |names: &[&str]| {
        let user_properties = names
            .iter()
            .map(|&name| (name.into(), name.into()))
            .collect();
        v2::Message {
            user_properties,
            ..v2::Message::default()
        }
        .encode_to_vec()
    };
    assert_eq!(encode(&["a", "b", "c", "d"]), encode(&["d", "c", "b", "a"]));
}
