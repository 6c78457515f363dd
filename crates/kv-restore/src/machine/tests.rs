//! The machines, event by event. What many events in any order do is the simulator's.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use pop_store::Entry;

use super::{Options, Receiver, Sender, Stop, receiver, sender};
use crate::{
    AbortCode, Damage, Digest, Epoch, ErrorKind, Failure, Phase, Position, Resume, SessionId,
    SnapshotId, SnapshotRef, StreamId, digest,
    frame::{Body, Frame, Part, Row, rows::RowsWriter},
};

mod receiving;
mod sending;

const SESSION: SessionId = SessionId(7);
const STREAM: StreamId = StreamId {
    session: SESSION,
    attempt: 0,
};

fn at() -> SnapshotRef {
    SnapshotRef::new("space", SnapshotId(1), &["a", "b"]).at(Epoch(1), 10)
}

fn second(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn row(keyspace: u16, key: &str) -> Row {
    let entry = Entry {
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: Bytes::from_static(b"value"),
    };
    Row { keyspace, entry }
}

fn frame(body: Body) -> Frame {
    Frame {
        stream: STREAM,
        body,
    }
}

fn ack(next: u64, credit: u64) -> Body {
    Body::Ack {
        next,
        credit,
        limited: false,
    }
}

/// A source that sends whatever a test wants.
struct Script {
    seq: u64,
    totals: Digest,
}

impl Script {
    fn new() -> Self {
        Self {
            seq: 0,
            totals: Digest::default(),
        }
    }

    fn chunk(&mut self, rows: &[Row]) -> Body {
        let seeds = [digest::seed("a"), digest::seed("b")];
        let mut writer = RowsWriter::new(0, None);
        for part in Part::of(rows) {
            let seed = seeds.get(usize::from(part.keyspace)).copied();
            writer.add(&part, seed.unwrap_or(0), &mut self.totals);
        }
        let rows = writer.finish();
        let (seq, crc) = (self.seq, crc32c::crc32c(&rows));
        self.seq += 1;
        Body::Chunk { seq, rows, crc }
    }

    fn end(&self) -> Body {
        Body::End {
            seq: self.seq,
            totals: self.totals,
        }
    }
}
