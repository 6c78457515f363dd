//! Field numbers, enum numbers and enum names.

use std::collections::BTreeMap;

use bytes::Bytes;
use pop_proto::v2;
use prost::Message;

/// The number of the only field in the encoding of `message`.
#[track_caller]
fn only_field(message: &impl Message) -> u64 {
    let encoded = message.encode_to_vec();
    let (number, rest) = first_field(&encoded);
    assert!(rest.is_empty(), "more than one field in {encoded:?}");
    number
}

/// The number of the first field, and what follows it.
fn first_field(encoded: &[u8]) -> (u64, &[u8]) {
    let mut rest = encoded;
    let key = prost::encoding::decode_varint(&mut rest).expect("a field starts with its key");
    match key & 7 {
        0 => {
            prost::encoding::decode_varint(&mut rest).expect("a varint follows");
        }
        2 => {
            let length = prost::encoding::decode_varint(&mut rest).expect("a length follows");
            let length = usize::try_from(length).expect("a length fits memory");
            rest = rest.split_at(length).1;
        }
        wire_type => panic!("wire type {wire_type} is not used by these messages"),
    }
    (key >> 3, rest)
}

#[test]
fn system_properties_keep_the_numbers_of_the_interface() {
    let none = v2::SystemProperties::default;
    let text = || Some("x".to_owned());
    let check = |properties: v2::SystemProperties, number| {
        assert_eq!(only_field(&properties), number, "{properties:?}");
    };
    check(
        v2::SystemProperties {
            tag: text(),
            ..none()
        },
        1,
    );
    check(
        v2::SystemProperties {
            keys: vec!["x".into()],
            ..none()
        },
        2,
    );
    check(
        v2::SystemProperties {
            message_id: "x".into(),
            ..none()
        },
        3,
    );
    check(
        v2::SystemProperties {
            body_encoding: 1,
            ..none()
        },
        5,
    );
    check(
        v2::SystemProperties {
            message_type: 1,
            ..none()
        },
        6,
    );
    check(
        v2::SystemProperties {
            born_host: "x".into(),
            ..none()
        },
        8,
    );
    check(
        v2::SystemProperties {
            receipt_handle: text(),
            ..none()
        },
        12,
    );
    check(
        v2::SystemProperties {
            queue_id: 1,
            ..none()
        },
        13,
    );
    check(
        v2::SystemProperties {
            queue_offset: Some(0),
            ..none()
        },
        14,
    );
    check(
        v2::SystemProperties {
            delivery_attempt: Some(1),
            ..none()
        },
        16,
    );
    check(
        v2::SystemProperties {
            message_group: text(),
            ..none()
        },
        17,
    );
    check(
        v2::SystemProperties {
            lite_topic: text(),
            ..none()
        },
        21,
    );
    check(
        v2::SystemProperties {
            priority: Some(0),
            ..none()
        },
        22,
    );
}

#[test]
fn a_message_keeps_the_numbers_of_the_interface() {
    let none = v2::Message::default;
    let check = |message: v2::Message, number| assert_eq!(only_field(&message), number);
    check(
        v2::Message {
            topic: Some(v2::Resource::default()),
            ..none()
        },
        1,
    );
    let properties = BTreeMap::from([("k".to_owned(), "v".to_owned())]);
    check(
        v2::Message {
            user_properties: properties,
            ..none()
        },
        2,
    );
    check(
        v2::Message {
            system_properties: Some(v2::SystemProperties::default()),
            ..none()
        },
        3,
    );
    check(
        v2::Message {
            body: Bytes::from_static(b"x"),
            ..none()
        },
        4,
    );
}

#[test]
fn requests_keep_the_numbers_of_the_interface() {
    let receive = v2::ReceiveMessageRequest::default;
    let attempt_id = Some("x".to_owned());
    assert_eq!(
        only_field(&v2::ReceiveMessageRequest {
            batch_size: 1,
            ..receive()
        }),
        4
    );
    assert_eq!(
        only_field(&v2::ReceiveMessageRequest {
            auto_renew: true,
            ..receive()
        }),
        6
    );
    assert_eq!(
        only_field(&v2::ReceiveMessageRequest {
            attempt_id,
            ..receive()
        }),
        8
    );

    let change = v2::ChangeInvisibleDurationRequest::default;
    let message_id = "x".to_owned();
    assert_eq!(
        only_field(&v2::ChangeInvisibleDurationRequest {
            message_id,
            ..change()
        }),
        5
    );
    let suspend = Some(false);
    assert_eq!(
        only_field(&v2::ChangeInvisibleDurationRequest {
            suspend,
            ..change()
        }),
        7
    );

    let heartbeat = v2::HeartbeatRequest {
        client_type: 3,
        ..Default::default()
    };
    assert_eq!(only_field(&heartbeat), 2);
}

#[test]
fn each_telemetry_command_has_its_own_number() {
    use v2::telemetry_command::Command;
    let commands = [
        Command::Settings(Default::default()),
        Command::ThreadStackTrace(Default::default()),
        Command::VerifyMessageResult(Default::default()),
        Command::RecoverOrphanedTransactionCommand(Default::default()),
        Command::PrintThreadStackTraceCommand(Default::default()),
        Command::VerifyMessageCommand(Default::default()),
        Command::ReconnectEndpointsCommand(Default::default()),
        Command::NotifyUnsubscribeLiteCommand(Default::default()),
    ];
    for (command, number) in commands.into_iter().zip(2..) {
        let command = v2::TelemetryCommand {
            command: Some(command),
            ..Default::default()
        };
        assert_eq!(only_field(&command), number, "{command:?}");
    }
}

#[test]
fn enums_keep_their_numbers_and_their_names() {
    let check = |code: v2::Code, number: i32, name: &str| {
        assert_eq!((code as i32, code.as_str_name()), (number, name));
    };
    check(v2::Code::Ok, 20_000, "OK");
    check(v2::Code::IllegalTopic, 40_002, "ILLEGAL_TOPIC");
    check(
        v2::Code::IllegalInvisibleTime,
        40_011,
        "ILLEGAL_INVISIBLE_TIME",
    );
    check(
        v2::Code::InvalidReceiptHandle,
        40_013,
        "INVALID_RECEIPT_HANDLE",
    );
    check(
        v2::Code::InvalidClientProperties,
        40_021,
        "INVALID_CLIENT_PROPERTIES",
    );
    check(v2::Code::MessageNotFound, 40_401, "MESSAGE_NOT_FOUND");
    check(
        v2::Code::MessageBodyTooLarge,
        41_301,
        "MESSAGE_BODY_TOO_LARGE",
    );
    check(v2::Code::TooManyRequests, 42_900, "TOO_MANY_REQUESTS");
    check(v2::Code::NotImplemented, 50_100, "NOT_IMPLEMENTED");

    let types = [
        (1, "NORMAL"),
        (2, "FIFO"),
        (3, "DELAY"),
        (4, "TRANSACTION"),
        (6, "PRIORITY"),
    ];
    for (number, name) in types {
        let message_type = v2::MessageType::try_from(number).expect("the number is in the table");
        assert_eq!(message_type.as_str_name(), name);
    }
    let address_scheme = v2::AddressScheme::from_str_name("IPv4").expect("the name is known");
    assert_eq!(address_scheme as i32, 1);
    assert_eq!(v2::offset_option::Policy::Max as i32, 2);
}
