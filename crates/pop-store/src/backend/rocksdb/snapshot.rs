//! A snapshot on a thread of its own.
//!
//! RocksDB's snapshot borrows the database. The thread owns a share of the database and
//! lends it to the snapshot on its own stack, so nothing here is `unsafe`; reads come to it
//! as messages. It ends, and lets go of the database, before the drop of its handle returns.
//!
//! Snapshots are read in pages, one behind the other: a page goes on with the iterator of the
//! page before, which stands where it begins.

use std::{
    fmt,
    sync::{
        Arc,
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use bytes::Bytes;
use rocksdb::DBRawIteratorWithThreadMode;

use super::{
    Database, NAME, family,
    page::{Page, Spent},
    read_options,
};
use crate::{
    Direction, Entry, Error, ErrorKind, Result, Rows, Scan,
    backend::{
        engine::{EngineSnapshot, Space},
        rocksdb::error,
    },
    run_in_background,
};

// A scan of a chunk reads about this much; without it each block is a call.
const READAHEAD_BYTES: usize = 1 << 20;

// An iterator keeps the files that it reads, also those that compaction has replaced: a
// reader that comes to a stop must not.
const WALK_IDLE_MAX: Duration = Duration::from_secs(1);

type Cursor<'a> = DBRawIteratorWithThreadMode<'a, Database>;
type View<'a> = rocksdb::SnapshotWithThreadMode<'a, Database>;

enum Request {
    Get(Space, Bytes, Sender<Result<Option<Bytes>>>),
    Scan(Space, Scan, Sender<Result<Rows>>),
}

/// The handle of the thread.
pub(super) struct RocksSnapshot {
    // `None` only while it is dropped.
    requests: Option<Sender<Request>>,
    thread: Option<JoinHandle<()>>,
}

impl RocksSnapshot {
    /// Takes the snapshot; it is taken when this returns.
    pub(super) fn take(database: &Arc<Database>) -> Result<Self> {
        let database = Arc::clone(database);
        let (requests, inbox) = mpsc::channel();
        let (taken, is_taken) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("store-snapshot".to_owned())
            .spawn(move || {
                run_in_background();
                let snapshot = database.snapshot();
                // The taker waits for this.
                let _ = taken.send(());
                serve(&database, &snapshot, &inbox);
            })
            .map_err(|error| {
                Error::new(ErrorKind::Unavailable, NAME, "snapshot")
                    .with_detail("the snapshot's thread could not be started")
                    .with_source(error)
            })?;
        is_taken.recv().map_err(|_| gone())?;
        Ok(Self {
            requests: Some(requests),
            thread: Some(thread),
        })
    }

    fn ask<T>(&self, request: impl FnOnce(Sender<Result<T>>) -> Request) -> Result<T> {
        let (answer, waiter) = mpsc::channel();
        let requests = self.requests.as_ref().ok_or_else(gone)?;
        requests.send(request(answer)).map_err(|_| gone())?;
        waiter.recv().map_err(|_| gone())?
    }
}

fn serve(database: &Database, snapshot: &View<'_>, inbox: &Receiver<Request>) {
    let mut walk = None;
    loop {
        let request = match walk {
            None => inbox.recv().map_err(RecvTimeoutError::from),
            Some(_) => inbox.recv_timeout(WALK_IDLE_MAX),
        };
        // A reader that went away wants no answer.
        match request {
            Ok(Request::Get(space, key, answer)) => {
                let _ = answer.send(get(database, snapshot, &space, &key));
            }
            Ok(Request::Scan(space, scan, answer)) => {
                let page = read_range(database, snapshot, &space, &scan, &mut walk);
                let _ = answer.send(page);
            }
            Err(RecvTimeoutError::Timeout) => walk = None,
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn get(
    database: &Database,
    snapshot: &View<'_>,
    space: &Space,
    key: &[u8],
) -> Result<Option<Bytes>> {
    let value = snapshot.get_pinned_cf(&family(database, space)?, key);
    let value = value.map_err(error::read_failed)?;
    Ok(value.map(|it| Bytes::copy_from_slice(&it)))
}

/// Reads a page. A forward one leaves its iterator in `walk`, for the page behind it.
fn read_range<'a>(
    database: &'a Database,
    snapshot: &'a View<'_>,
    space: &Space,
    scan: &Scan,
    walk: &mut Option<Walk<'a>>,
) -> Result<Rows> {
    let earlier = walk.take().filter(|it| it.goes_on(space, scan));
    let (mut cursor, before) = match earlier {
        Some(earlier) => (earlier.cursor, Some(earlier.page)),
        None => (begin(database, snapshot, space, scan)?, None),
    };
    let mut page = Page::new(scan, before);
    while !page.is_full() {
        let Some((key, value)) = cursor.item() else {
            break;
        };
        page.add(key, value);
        match scan.direction {
            Direction::Forward => cursor.next(),
            Direction::Backward => cursor.prev(),
        }
    }
    cursor.status().map_err(error::read_failed)?;
    let rows = page.finish();
    *walk = (rows.last())
        .filter(|_| scan.direction == Direction::Forward && cursor.valid())
        .map(|(last, _)| Walk {
            space: space.clone(),
            end: scan.end.clone(),
            last: Bytes::copy_from_slice(last),
            page: Spent::of(&rows),
            cursor,
        });
    Ok(rows)
}

fn begin<'a>(
    database: &'a Database,
    snapshot: &'a View<'_>,
    space: &Space,
    scan: &Scan,
) -> Result<Cursor<'a>> {
    let (mut options, _) = read_options(scan);
    // Whoever reads a snapshot reads it once and in order: what others want stays cached.
    options.fill_cache(false);
    options.set_readahead_size(READAHEAD_BYTES);
    let mut cursor = snapshot.raw_iterator_cf_opt(&family(database, space)?, options);
    match scan.direction {
        Direction::Forward => cursor.seek_to_first(),
        Direction::Backward => cursor.seek_to_last(),
    }
    Ok(cursor)
}

/// An iterator behind the last row of a page.
struct Walk<'a> {
    space: Space,
    end: Option<Bytes>,
    last: Bytes,
    page: Spent,
    cursor: Cursor<'a>,
}

impl Walk<'_> {
    /// Whether `scan` begins right behind the last row, and ends where the page before would
    /// have.
    fn goes_on(&self, space: &Space, scan: &Scan) -> bool {
        scan.direction == Direction::Forward
            && *space == self.space
            && scan.end == self.end
            && scan.start.strip_suffix(&[0]) == Some(self.last.as_ref())
    }
}

fn gone() -> Error {
    Error::new(ErrorKind::Poisoned, NAME, "snapshot")
        .with_detail("the snapshot's thread ended: take another snapshot")
}

impl fmt::Debug for RocksSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RocksSnapshot").finish_non_exhaustive()
    }
}

impl Drop for RocksSnapshot {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // Its panic was told to whoever waited for it.
            let _ = thread.join();
        }
    }
}

impl EngineSnapshot for RocksSnapshot {
    fn get(&self, space: &Space, key: &[u8]) -> Result<Option<Bytes>> {
        self.ask(|answer| Request::Get(space.clone(), Bytes::copy_from_slice(key), answer))
    }

    fn scan(&self, space: &Space, scan: &Scan) -> Result<Vec<Entry>> {
        Ok(self.rows(space, scan)?.entries().collect())
    }

    fn rows(&self, space: &Space, scan: &Scan) -> Result<Rows> {
        self.ask(|answer| Request::Scan(space.clone(), scan.clone(), answer))
    }
}
