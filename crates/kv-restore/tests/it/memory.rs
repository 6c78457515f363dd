//! What a session keeps in memory is what it gave credit for, also where rows are tiny and
//! each takes more as a row than as bytes.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    sync::Arc,
    time::Duration,
};

use bytes::{BufMut, Bytes, BytesMut};
use kv_restore::{
    Digest, Options, SessionId, SnapshotId, SnapshotRef, StreamId,
    frame::{Body, Frame, Part, Row},
    machine::{
        Receiver, Sender,
        receiver::{self, Opening},
        sender::{self, Counted, Request},
    },
};
use pop_store::Entry;

thread_local! {
    static LIVE: Cell<i64> = const { Cell::new(0) };
}

struct Watched;

#[global_allocator]
static WATCHED: Watched = Watched;

fn count(bytes: usize, sign: i64) {
    let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
    // A thread that ends frees what is its own after this.
    let _ = LIVE.try_with(|live| live.set(live.get() + sign * bytes));
}

#[expect(unsafe_code, reason = "an allocator can't be written without it")]
// SAFETY: every call goes to the system's allocator with the arguments as they came.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(layout.size(), -1);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Bytes that this thread has allocated and not freed.
fn live() -> i64 {
    LIVE.with(Cell::get)
}

const STREAM: StreamId = StreamId {
    session: SessionId(7),
    attempt: 0,
};
const WINDOW: u64 = 1 << 20;
const CHUNK_BYTES: u32 = 128 << 10;
const NOW: Duration = Duration::from_secs(100);

fn at() -> SnapshotRef {
    SnapshotRef::new("space", SnapshotId(1), &["rows"])
}

fn options() -> Options {
    Options::default()
        .with_window_bytes(WINDOW)
        .with_chunk_bytes(CHUNK_BYTES)
}

/// Rows of four bytes of key and none of value, from this number on.
fn tiny(from: u32, count: u32) -> Vec<Row> {
    let key = |number: u32| Bytes::copy_from_slice(&number.to_be_bytes());
    let row = |number| Row {
        keyspace: 0,
        entry: Entry {
            key: key(number),
            value: Bytes::new(),
        },
    };
    (from..from + count).map(row).collect()
}

/// As they are on the wire: 14 bytes each.
fn chunk(seq: u64, rows: &[Row]) -> Body {
    let mut bytes = BytesMut::with_capacity(4 + rows.len() * 14);
    bytes.put_u32(u32::try_from(rows.len()).unwrap());
    for row in rows {
        bytes.put_u16(row.keyspace);
        bytes.put_u32(4);
        bytes.put_u32(0);
        bytes.put_slice(&row.entry.key);
    }
    let rows = bytes.freeze();
    let crc = crc32c::crc32c(&rows);
    Body::Chunk { seq, rows, crc }
}

// Catches: rows that are taken apart before they are loaded, which takes six times the window.
#[test]
fn a_receiver_that_is_slow_keeps_tiny_rows_within_its_window() {
    let mut core = Receiver::new(Arc::new(at()), STREAM.session, 1, options());
    let mut on = |event| core.handle(NOW, event);
    on(receiver::Event::Start);
    on(receiver::Event::Opened(Ok(Opening::Fresh)));
    on(receiver::Event::Connected(0, Ok(())));
    let before = live();
    let rows = CHUNK_BYTES / 14;
    let mut taken = 0;
    for seq in 0.. {
        let from = u32::try_from(seq).unwrap() * rows;
        let body = chunk(seq, &tiny(from, rows));
        let stream = STREAM;
        let actions = on(receiver::Event::Received(Frame { stream, body }));
        // Nothing is let through by the rate limit.
        for action in actions {
            match action {
                receiver::Action::Send(Frame {
                    body: Body::Ack { credit, .. },
                    ..
                }) => taken = credit,
                receiver::Action::Charge(_) => {}
                other => panic!("{other:?}"),
            }
        }
        if (seq + 2) * u64::from(CHUNK_BYTES) > taken {
            break;
        }
    }
    let kept = live() - before;
    let window = i64::try_from(WINDOW).unwrap();
    assert!(kept > window * 3 / 4, "the window is full: {kept}");
    assert!(
        kept < window * 5 / 4,
        "{kept} bytes for a window of {window}"
    );
}

// Catches: room for a whole chunk that is kept for a chunk of few bytes; no bound on chunks
// that have next to none.
#[test]
fn a_sender_whose_receiver_acknowledges_nothing_keeps_tiny_rows_within_its_window() {
    // As many rows as a scan gives, far fewer bytes than a chunk may have; and one row a chunk.
    for (chunk_bytes, rows, window, at_most) in [
        (CHUNK_BYTES, 500, 1 << 20, 5 << 18),
        (1, 1, 8 << 20, 1 << 20),
    ] {
        let pull = Body::Pull {
            at: Box::new(at()),
            resume: None,
            credit: u64::MAX,
            chunk_bytes,
        };
        let request = Request::of(Frame {
            stream: STREAM,
            body: pull,
        });
        let options = options().with_window_bytes(window);
        let mut core = Sender::new(request.unwrap(), options);
        let before = live();
        let mut from = 0;
        let mut events = vec![
            sender::Event::Opened(Ok(Some(Counted {
                totals: Digest::default(),
                all: true,
            }))),
            sender::Event::Start,
        ];
        while let Some(event) = events.pop() {
            for action in core.handle(NOW, event) {
                match action {
                    sender::Action::Read(_) => {
                        events.push(sender::Event::Read(Ok(Part::of(&tiny(from, rows)))));
                        from += rows;
                    }
                    sender::Action::Charge(_) => events.push(sender::Event::Charged),
                    sender::Action::Open | sender::Action::Send(_) => {}
                    other => panic!("{other:?}"),
                }
            }
        }
        let kept = live() - before;
        assert!(kept < at_most, "{kept} bytes in chunks of {rows} rows");
        assert!(core.pending_bytes() > 0);
    }
}
