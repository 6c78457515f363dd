#![doc = include_str!("../README.md")]
//!
//! # What lives here
//!
//! Generated types and nothing else: no validation, no conversion, no default.
//! What a broker makes of a request belongs to the broker; what may stand in a name or a
//! receipt handle belongs to `pop-model`.

/// Package `apache.rocketmq.v2`: messages, enums, server trait and client.
///
/// - The interface is written down in `proto/`; its field numbers are facts that the
///   clients of every language were compiled with.
/// - [`messaging_service_server::MessagingService`](v2::messaging_service_server::MessagingService)
///   is what a broker implements,
///   [`messaging_service_client::MessagingServiceClient`](v2::messaging_service_client::MessagingServiceClient)
///   is what a client calls.
/// - A message field is an `Option`, because its presence is on the wire. A scalar is an
///   `Option` only where the interface says `optional`.
/// - An enum field is an `i32`, because a newer client may send a number that is not known
///   here: `Code::try_from(status.code)` tells.
/// - Bodies are [`bytes::Bytes`], properties are a sorted map: equal messages encode to
///   equal bytes.
#[expect(
    missing_docs,
    unused_qualifications,
    clippy::allow_attributes_without_reason,
    clippy::large_enum_variant,
    reason = "generated: the wording is the generator's, the shape is the interface's"
)]
pub mod v2 {
    tonic::include_proto!("apache.rocketmq.v2");
}
