//! Every byte on disk, pinned: what this program writes is what `fixtures/v1` holds, and
//! what they hold is what it reads.
//!
//! A fixture is a file of `name: hex` lines. After a deliberate change of the format,
//! `POP_BLESS=1 cargo test -p pop-model golden` writes them anew; the diff then shows
//! what changed.

use std::{env, fmt::Debug, fs, path::PathBuf};

use bytes::Bytes;
use data_encoding::HEXLOWER;
use pop_model::*;

use crate::samples::{self, last_queue, queue};

fn path(kind: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/v1/{kind}.hex"))
}

fn write(kind: &str, lines: &[(String, Bytes)]) {
    let lines: String = lines
        .iter()
        .map(|(name, bytes)| format!("{name}: {}\n", HEXLOWER.encode(bytes)))
        .collect();
    fs::create_dir_all(path(kind).parent().unwrap()).unwrap();
    fs::write(path(kind), lines).unwrap();
}

fn read(kind: &str) -> Vec<(String, Bytes)> {
    let path = path(kind);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| {
        panic!(
            "fixture {} can't be read ({error}): restore it from version control, or, for a new kind, write it with POP_BLESS=1",
            path.display()
        )
    });
    text.lines()
        .map(|line| {
            let (name, hex) = line.split_once(": ").expect("a line is `name: hex`");
            let bytes = HEXLOWER.decode(hex.as_bytes()).expect("lower case hex");
            (name.to_owned(), bytes.into())
        })
        .collect()
}

fn check<N: Into<String>, T: Debug + PartialEq>(
    kind: &str,
    samples: impl IntoIterator<Item = (N, T)>,
    encode: impl Fn(&T) -> Bytes,
    decode: impl Fn(Bytes) -> Result<T, CodecError>,
) {
    let samples = samples
        .into_iter()
        .map(|(name, sample)| (name.into(), sample));
    let samples: Vec<(String, T)> = samples.collect();
    let encoded: Vec<_> = samples
        .iter()
        .map(|(name, sample)| (name.clone(), encode(sample)))
        .collect();
    if env::var_os("POP_BLESS").is_some_and(|bless| bless == "1") {
        write(kind, &encoded);
    }
    let golden = read(kind);
    assert_eq!(
        golden.iter().map(|(name, _)| name).collect::<Vec<_>>(),
        samples.iter().map(|(name, _)| name).collect::<Vec<_>>(),
        "{kind}: the fixture holds other samples than the test"
    );
    for ((name, sample), ((_, encoded), (_, golden))) in
        samples.into_iter().zip(encoded.into_iter().zip(golden))
    {
        assert_eq!(
            HEXLOWER.encode(&encoded),
            HEXLOWER.encode(&golden),
            "{kind} {name} is written differently: the format changed"
        );
        assert_eq!(
            decode(golden),
            Ok(sample),
            "{kind} {name} is read differently: data that is stored reads as something else"
        );
    }
}

fn keys<N: Into<String>, K: StoredKey + Debug + PartialEq>(
    kind: &str,
    samples: impl IntoIterator<Item = (N, K)>,
) {
    check(kind, samples, K::encode, K::decode);
}

fn values<N: Into<String>, V: StoredValue + Debug + PartialEq>(
    kind: &str,
    samples: impl IntoIterator<Item = (N, V)>,
) {
    check(kind, samples, V::encode, V::decode);
}

// Mutants, for all of them: two fields swapped, a field left out, another order of bytes,
// another key code, version or checksum.

#[test]
fn log_keys_keep_their_bytes() {
    let key = |queue: SubscriptionQueue, offset| LogKey {
        queue: queue.log_queue(),
        offset: Offset::new(offset),
    };
    keys(
        "log_key",
        [
            ("some", key(queue(), 41)),
            ("last", key(last_queue(), u64::MAX)),
        ],
    );
}

#[test]
fn body_keys_keep_their_bytes() {
    let body = BodyId::new(77);
    keys(
        "body_chunk_key",
        [
            ("first", BodyChunkKey { body, chunk: 0 }),
            (
                "last",
                BodyChunkKey {
                    body,
                    chunk: u32::MAX,
                },
            ),
        ],
    );
    keys("body_pending_key", [("some", BodyPendingKey { body })]);
}

#[test]
fn lease_keys_keep_their_bytes() {
    let key = |queue, offset| LeaseKey {
        queue,
        offset: Offset::new(offset),
    };
    keys(
        "lease_key",
        [
            ("some", key(queue(), 41)),
            ("last", key(last_queue(), u64::MAX)),
        ],
    );
}

#[test]
fn due_keys_keep_their_bytes() {
    let key = |visible_at, queue, offset| DueKey {
        visible_at: LeaseTime::from_millis(visible_at),
        queue,
        offset: Offset::new(offset),
    };
    keys(
        "due_key",
        [
            ("some", key(1_700_000_030_000, queue(), 41)),
            ("last", key(u64::MAX, last_queue(), u64::MAX)),
        ],
    );
}

#[test]
fn progress_keys_keep_their_bytes() {
    keys(
        "progress_key",
        [
            ("some", ProgressKey { queue: queue() }),
            (
                "last",
                ProgressKey {
                    queue: last_queue(),
                },
            ),
        ],
    );
}

#[test]
fn mark_page_keys_keep_their_bytes() {
    keys(
        "mark_page_key",
        [
            (
                "some",
                MarkPageKey {
                    queue: queue(),
                    page: 1,
                },
            ),
            (
                "last",
                MarkPageKey {
                    queue: last_queue(),
                    page: u64::MAX / 4_096,
                },
            ),
        ],
    );
}

#[test]
fn parked_keys_keep_their_bytes() {
    let key = |queue, message_group, offset| ParkedKey {
        queue,
        message_group,
        offset: Offset::new(offset),
    };
    keys(
        "parked_key",
        [
            ("some", key(queue(), 0x96C2_0860_CD93_A249, 5)),
            ("last", key(last_queue(), u64::MAX, u64::MAX)),
        ],
    );
}

#[test]
fn retry_keys_keep_their_bytes() {
    let key = |group, topic, sequence| RetryKey {
        group: GroupId::new(group),
        topic: TopicId::new(topic),
        sequence,
    };
    keys(
        "retry_key",
        [
            ("some", key(7, 9, 1)),
            ("last", key(u64::MAX, u64::MAX, u64::MAX)),
        ],
    );
}

#[test]
fn timer_keys_keep_their_bytes() {
    let key = |shard, due, sequence| TimerKey {
        shard: ShardId::new(shard).unwrap(),
        due: WallTime::from_unix_millis(due),
        sequence,
    };
    keys(
        "timer_key",
        [
            ("some", key(5, 1_700_000_060_000, 3)),
            ("before_1970", key(0, -1, 0)),
            ("last", key(63, i64::MAX, u64::MAX)),
        ],
    );
}

#[test]
fn quarantine_keys_keep_their_bytes() {
    keys(
        "quarantine_key",
        [
            ("some", QuarantineKey { sequence: 1 }),
            ("last", QuarantineKey { sequence: u64::MAX }),
        ],
    );
}

#[test]
fn retained_keys_keep_their_bytes() {
    let key = |queue: SubscriptionQueue, offset| RetainedKey {
        queue: queue.log_queue(),
        offset: Offset::new(offset),
    };
    keys(
        "retained_key",
        [
            ("some", key(queue(), 41)),
            ("last", key(last_queue(), u64::MAX)),
        ],
    );
}

#[test]
fn metadata_keys_keep_their_bytes() {
    keys("meta_key", samples::meta_keys());
}

#[test]
fn checkpoints_keep_their_bytes() {
    values("checkpoint", samples::checkpoints());
}

#[test]
fn retry_entries_keep_their_bytes() {
    values("retry_entry", samples::retry_entries());
}

#[test]
fn retained_messages_keep_their_bytes() {
    values("retained", samples::retained());
}

#[test]
fn messages_keep_their_bytes() {
    values("message", samples::messages());
}

#[test]
fn progress_keeps_its_bytes() {
    let value = |committed, epoch| Progress {
        committed: Offset::new(committed),
        epoch: SubscriptionEpoch::new(epoch),
    };
    values("progress", [("start", value(0, 0)), ("some", value(41, 2))]);
}

#[test]
fn pages_of_marks_keep_their_bytes() {
    values("mark_page", samples::mark_pages());
}

#[test]
fn handle_keys_keep_their_bytes() {
    values("handle_keys", samples::handle_keys());
}

#[test]
fn metadata_records_keep_their_bytes() {
    values("topic_record", samples::topic_records());
    values("group_record", samples::group_records());
    let subscription = SubscriptionRecord {
        start: Offset::new(40),
        epoch: SubscriptionEpoch::new(2),
    };
    values("subscription_record", [("some", subscription)]);
}

#[test]
fn quarantine_records_keep_their_bytes() {
    values("quarantine_record", samples::quarantine_records());
}

#[test]
fn receipt_handles_keep_their_text() {
    let [(_, one), (_, two)] = samples::handle_keys().try_into().unwrap();
    // Clients hold handles across an upgrade of the broker, so their form is pinned too.
    for (fixture, keys) in [("handle_first_key", one), ("handle_second_key", two)] {
        let keyring = HandleKeyring::new(keys);
        check(
            fixture,
            [
                ("some", samples::identity()),
                ("last", samples::last_identity()),
            ],
            |identity| String::from(keyring.seal(identity)).into(),
            |text| {
                let text = str::from_utf8(&text).expect("a handle is text");
                Ok(keyring.open(text).expect("a handle of this key"))
            },
        );
    }
}
