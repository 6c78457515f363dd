//! Any frame comes back as it went, and any other bytes are refused.

use bytes::{Bytes, BytesMut};
use pop_store::{Entry, Estimate};
use proptest::{collection::vec, option, prelude::*};

use super::{
    AbortCode, BODY_BYTES_MAX, Body, Frame, FrameError, Part, Row, decode, encode,
    rows::{RowsReader, RowsWriter, chunk_bytes, parts as taken_apart},
};
use crate::{Digest, Epoch, Position, Resume, SessionId, SnapshotId, SnapshotRef, StreamId};

fn some_bytes(max: usize) -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..=max).prop_map(Bytes::from)
}

fn digests() -> impl Strategy<Value = Digest> {
    any::<(u128, u64, u64)>().prop_map(|(sum, rows, bytes)| Digest { sum, rows, bytes })
}

fn snapshots() -> impl Strategy<Value = SnapshotRef> {
    let ids = (any::<u128>(), any::<u64>(), any::<u64>());
    (ids, 1..5_usize, option::of(digests()), some_bytes(20)).prop_map(
        |((id, epoch, applied), keyspaces, totals, meta)| SnapshotRef {
            space: "space".to_owned(),
            id: SnapshotId(id),
            epoch: Epoch(epoch),
            applied,
            keyspaces: (0..keyspaces).map(|n| format!("k{n}")).collect(),
            totals,
            meta,
        },
    )
}

fn estimates() -> impl Strategy<Value = Estimate> {
    any::<(u64, Option<u64>)>().prop_map(|(rows, bytes)| Estimate { rows, bytes })
}

fn bodies() -> impl Strategy<Value = Body> {
    let resume =
        (any::<u16>(), some_bytes(9), digests()).prop_map(|(keyspace, key, totals)| Resume {
            after: Position { keyspace, key },
            totals,
        });
    prop_oneof![
        (snapshots(), option::of(resume), any::<u64>(), any::<u32>()).prop_map(
            |(at, resume, credit, chunk_bytes)| Body::Pull {
                at: Box::new(at),
                resume,
                credit,
                chunk_bytes
            }
        ),
        (option::of(digests()), option::of(estimates()))
            .prop_map(|(totals, about)| Body::Offer { totals, about }),
        (any::<u64>(), some_bytes(40), any::<u32>()).prop_map(|(seq, rows, crc)| Body::Chunk {
            seq,
            rows,
            crc
        }),
        (any::<u64>(), digests()).prop_map(|(seq, totals)| Body::End { seq, totals }),
        any::<(u64, u64, bool)>().prop_map(|(next, credit, limited)| Body::Ack {
            next,
            credit,
            limited,
        }),
        any::<bool>().prop_map(|limited| Body::Alive { limited }),
        (any::<u8>(), ".{0,20}").prop_map(|(code, text)| Body::Abort {
            code: AbortCode::of(code),
            text
        }),
        any::<u128>().prop_map(|id| Body::Installed {
            snapshot: SnapshotId(id)
        }),
    ]
}

fn frames() -> impl Strategy<Value = Frame> {
    (any::<u128>(), any::<u32>(), bodies()).prop_map(|(session, attempt, body)| Frame {
        stream: StreamId {
            session: SessionId(session),
            attempt,
        },
        body,
    })
}

fn encoded(frame: &Frame) -> BytesMut {
    let mut bytes = BytesMut::new();
    encode(frame, &mut bytes).expect("it is small enough");
    bytes
}

proptest! {
    // Mutants: two fields change places in one of the directions; a field is left out.
    #[test]
    fn a_frame_comes_back_as_it_went_however_it_is_cut(frame in frames(), cut in any::<prop::sample::Index>()) {
        let whole = encoded(&frame);
        let cut = cut.index(whole.len());
        let mut arrived = BytesMut::from(&whole[..cut]);
        prop_assert_eq!(decode(&mut arrived), Ok(None));
        arrived.extend_from_slice(&whole[cut..]);
        arrived.extend_from_slice(&whole);
        for _ in 0..2 {
            prop_assert_eq!(decode(&mut arrived), Ok(Some(frame.clone())));
        }
        prop_assert!(arrived.is_empty());
    }

    // Mutants: the checksum leaves the head out, or the body.
    #[test]
    fn a_flipped_bit_is_never_read_as_a_frame(frame in frames(), bit in any::<prop::sample::Index>()) {
        let mut bytes = encoded(&frame);
        let bit = bit.index(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        // A longer length waits for bytes that never come; everything else is refused.
        prop_assert!(!matches!(decode(&mut bytes), Ok(Some(_))));
    }

    #[test]
    fn any_bytes_are_refused_or_waited_for_in_bounded_memory(mut bytes in vec(any::<u8>(), 0..200), genuine in any::<bool>()) {
        if genuine {
            let head = bytes.len().min(3);
            bytes[..head].copy_from_slice(&b"KR\x01"[..head]);
        }
        let mut bytes = BytesMut::from(&bytes[..]);
        let _ = decode(&mut bytes);
        prop_assert!(bytes.capacity() <= 2 * BODY_BYTES_MAX);
    }

    #[test]
    fn any_bytes_are_rows_or_refused(bytes in some_bytes(200)) {
        if let Ok(mut reader) = RowsReader::new(&bytes) {
            while let Ok(Some(_)) = reader.next() {}
        }
    }

    // Mutant: a row is hashed without its lengths, or with other bytes than at the sender.
    #[test]
    fn rows_come_back_and_add_up_to_the_same(rows in vec((0..3_u16, some_bytes(9), some_bytes(30)), 0..20)) {
        let rows: Vec<_> = rows
            .into_iter()
            .map(|(keyspace, key, value)| Row { keyspace, entry: Entry { key, value } })
            .collect();
        let (mut sent, mut alone) = (Digest::default(), Digest::default());
        let mut writer = RowsWriter::new(0, None);
        let parts = Part::of(&rows);
        for part in &parts {
            writer.add(part, 7, &mut sent);
        }
        for row in &rows {
            alone.add_to(7, &row.entry);
        }
        let chunk = writer.finish();
        prop_assert_eq!(chunk.len(), chunk_bytes(&parts));
        let mut reader = RowsReader::new(&chunk).expect("rows");
        let mut received = Digest::default();
        while let Some(row) = reader.next().expect("a row") {
            received.add_encoded(7, row.encoded, row.key.len() + row.value.len());
        }
        let apart = taken_apart(&chunk).expect("rows");
        prop_assert_eq!(apart.len(), parts.len());
        prop_assert_eq!(apart.iter().flat_map(Part::rows).collect::<Vec<_>>(), rows);
        prop_assert_eq!(sent, alone);
        prop_assert_eq!(sent, received);
    }

    #[test]
    fn a_reference_comes_back_and_a_damaged_one_is_refused(at in snapshots(), bit in any::<prop::sample::Index>()) {
        let mut bytes = at.to_bytes().to_vec();
        prop_assert_eq!(SnapshotRef::from_bytes(&bytes), Ok(at));
        let bit = bit.index(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(SnapshotRef::from_bytes(&bytes).is_err());
    }
}

fn a_frame() -> BytesMut {
    encoded(&Frame {
        stream: StreamId {
            session: SessionId(7),
            attempt: 0,
        },
        body: Body::Alive { limited: false },
    })
}

#[track_caller]
fn check_refused(at: usize, byte: u8, expected: FrameError) {
    let mut bytes = a_frame();
    bytes[at] = byte;
    assert_eq!(decode(&mut bytes), Err(expected));
}

#[test]
fn another_protocol_another_version_and_an_oversize_frame_are_refused_by_the_head_alone() {
    check_refused(0, b'G', FrameError::Magic);
    check_refused(2, 2, FrameError::Version(2));
    let mut bytes = a_frame();
    bytes[24..28].copy_from_slice(&u32::MAX.to_be_bytes());
    let capacity = bytes.capacity();
    assert_eq!(decode(&mut bytes), Err(FrameError::TooBig(u32::MAX)));
    assert_eq!(bytes.capacity(), capacity);
    // The version is seen before the rest of the head has come.
    assert_eq!(
        decode(&mut BytesMut::from(&b"KR\x02"[..])),
        Err(FrameError::Version(2))
    );
    assert_eq!(decode(&mut BytesMut::from(&b"KR\x01"[..])), Ok(None));
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of version 1, which other machines speak: a change of them is another version.
#[test]
fn frames_rows_and_digests_keep_their_bytes() {
    let at = SnapshotRef::new("space", SnapshotId(1), &["a"]).at(Epoch(2), 3);
    let mut totals = Digest::default();
    let mut writer = RowsWriter::new(0, None);
    let entry = Entry {
        key: Bytes::from_static(b"key"),
        value: Bytes::from_static(b"value"),
    };
    let row = Row { keyspace: 0, entry };
    for part in Part::of(&[row]) {
        writer.add(&part, crate::digest::seed("a"), &mut totals);
    }
    let rows = writer.finish();
    let crc = crc32c::crc32c(&rows);
    let bodies = [
        Body::Pull {
            at: Box::new(at),
            resume: None,
            credit: 9,
            chunk_bytes: 8,
        },
        Body::Chunk { seq: 0, rows, crc },
        Body::End { seq: 1, totals },
        Body::Abort {
            code: AbortCode::SourceGone,
            text: "gone".into(),
        },
        Body::Offer {
            totals: None,
            about: None,
        },
        Body::Offer {
            totals: None,
            about: Some(Estimate {
                rows: 300,
                bytes: Some(70_000),
            }),
        },
        Body::Ack {
            next: 2,
            credit: 9,
            limited: true,
        },
        Body::Alive { limited: true },
        Body::Installed {
            snapshot: SnapshotId(1),
        },
    ];
    let golden = [
        "4b520101000000000000000000000000000000070000000100000042dac1279f000000057370616365000000000000000000000000000000010000000000000002000000000000000300010000000161000000000000000000000000000900000008",
        "4b520103000000000000000000000000000000070000000100000022a8198fbf000000000000000094e45dd800000001000000000003000000056b657976616c7565",
        "4b5201040000000000000000000000000000000700000001000000286ab8a031000000000000000120cbee5f670402b33625a23633b6699600000000000000010000000000000008",
        "4b520107000000000000000000000000000000070000000100000009ac63319c0400000004676f6e65",
        "4b520102000000000000000000000000000000070000000100000001088149c600",
        "4b52010200000000000000000000000000000007000000010000001281b5390800000000000000012c010000000000011170",
        "4b520105000000000000000000000000000000070000000100000011ca051c3b0000000000000002000000000000000901",
        "4b5201060000000000000000000000000000000700000001000000014c50daf901",
        "4b5201080000000000000000000000000000000700000001000000104420646d00000000000000000000000000000001",
    ];
    assert_eq!(bodies.len(), golden.len());
    for (body, golden) in bodies.into_iter().zip(golden) {
        let frame = Frame {
            stream: StreamId {
                session: SessionId(7),
                attempt: 1,
            },
            body,
        };
        assert_eq!(hex(&encoded(&frame)), golden);
    }
}

// Catches: an answer to an abort, which its sender would answer in turn, and so on.
#[test]
fn whoever_speaks_of_an_unknown_session_is_told_unless_that_is_over() {
    let stream = StreamId {
        session: SessionId(3),
        attempt: 2,
    };
    let said = |body| Frame { stream, body }.unknown();
    let told = said(Body::Alive { limited: true }).expect("it lives");
    assert_eq!(told.stream, stream);
    let unknown = AbortCode::UnknownSession;
    assert!(matches!(&told.body, Body::Abort { code, .. } if *code == unknown));
    assert_eq!(told.unknown(), None);
}

#[test]
fn a_count_of_rows_that_can_not_be_there_is_refused_at_once() {
    let refused = RowsReader::new(&[0xff; 40]);
    assert_eq!(
        refused.err(),
        Some(FrameError::Invalid("more rows than bytes"))
    );
}

#[test]
fn a_body_above_the_limit_is_not_sent() {
    let frame = Frame {
        stream: StreamId {
            session: SessionId(7),
            attempt: 0,
        },
        body: Body::Chunk {
            seq: 0,
            rows: vec![0; BODY_BYTES_MAX].into(),
            crc: 0,
        },
    };
    let mut bytes = BytesMut::new();
    assert!(matches!(
        encode(&frame, &mut bytes),
        Err(FrameError::TooBig(_))
    ));
    assert!(bytes.is_empty());
}
