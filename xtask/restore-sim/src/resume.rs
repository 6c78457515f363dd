//! What no schedule shows about a resumed start, because the totals at the end find it, too,
//! only later.

use std::time::Duration;

use bytes::Bytes;
use kv_restore::{
    Damage, Digest, ErrorKind, Options, Position, Resume, SessionId, SnapshotId, SnapshotRef,
    StreamId,
    frame::{Body, Frame},
    machine::{
        Sender,
        sender::{Action, Counted, Event, Request},
    },
};
use pop_store::{Entry, Keyspace};

/// A receiver has a row which the source does not have: that must refuse before it reads on.
/// What is wrong if it does not.
#[must_use]
pub fn on_other_rows() -> Option<String> {
    let key = Bytes::from_static(b"key");
    let mut totals = Digest::default();
    let value = Bytes::new();
    totals.add(
        Keyspace::new("a"),
        &Entry {
            key: key.clone(),
            value,
        },
    );
    let body = Body::Pull {
        at: Box::new(SnapshotRef::new("space", SnapshotId(1), &["a"])),
        resume: Some(Resume {
            after: Position { keyspace: 0, key },
            totals,
        }),
        credit: 1,
        chunk_bytes: 1,
    };
    let stream = StreamId {
        session: SessionId(1),
        attempt: 0,
    };
    let Some(request) = Request::of(Frame { stream, body }) else {
        return Some("a question is no question".to_owned());
    };
    let mut sender = Sender::new(request, Options::default());
    sender.handle(Duration::ZERO, Event::Start);
    let nothing = Counted {
        totals: Digest::default(),
        all: true,
    };
    let actions = sender.handle(Duration::ZERO, Event::Opened(Ok(Some(nothing))));
    let refused = actions.iter().any(|it| {
        matches!(it, Action::Finish(Err(failure)) if failure.kind == ErrorKind::Corrupt(Damage::Resume))
    });
    (!refused).then(|| "S72: a source goes on behind rows that it does not have".to_owned())
}
