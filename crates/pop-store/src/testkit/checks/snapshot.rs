//! Snapshots: one moment over all keyspaces, or a refusal that says so.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;

use super::{
    A, B, C, Kit, Meanwhile, StoreFactory, bytes, commit, entry, puts, refused, scan_snapshot,
};
use crate::{
    Direction, Entry, ErrorKind, Keyspace, Scan, Snapshot, SnapshotSupport, Store, WriteBatch,
    testkit::Random,
};

/// A snapshot shows what was answered before it and nothing that came after.
// Catches: a snapshot that reads the live content, for gets, scans or range deletes.
pub async fn a_snapshot_stays_as_it_was<F: StoreFactory>(kit: &Kit<F>) {
    let store = kit.open().await;
    if refuses(&store).await {
        return;
    }
    commit(&store, puts([(A, "a", "1"), (A, "b", "1"), (B, "c", "1")])).await;
    let first = store.snapshot().await.expect("a snapshot is taken");
    let mut batch = puts([(A, "a", "2"), (A, "new", "2"), (C, "new", "2")]);
    batch
        .delete(A, bytes("b"))
        .delete_range(B, bytes("a"), bytes("z"));
    commit(&store, batch).await;
    let second = store.snapshot().await.expect("a second one beside it");
    commit(&store, puts([(A, "a", "3")])).await;

    for _ in 0..2 {
        assert_eq!(
            scan_snapshot(&*first, A).await,
            [entry("a", "1"), entry("b", "1")]
        );
        assert_eq!(scan_snapshot(&*first, B).await, [entry("c", "1")]);
        assert_eq!(scan_snapshot(&*first, C).await, []);
        assert_eq!(
            scan_snapshot(&*second, A).await,
            [entry("a", "2"), entry("new", "2")]
        );
    }
    let value = first.get(A, b"a").await.expect("a key is read");
    assert_eq!(value, Some(bytes("1")));
    let value = first.get(A, b"new").await.expect("a key is read");
    assert_eq!(value, None);
    let range = Scan::range(bytes("a"), bytes("b\0"))
        .backward()
        .with_entries_max(1);
    let top = first.scan(A, range).await.expect("a range is read");
    assert_eq!(top, [entry("b", "1")], "limits and bounds as in the store");
}

/// While batches write one number to three keyspaces, every snapshot has it in all three.
// Catches: a snapshot taken keyspace by keyspace, or in the middle of a batch.
pub async fn a_snapshot_shows_one_moment_over_all_keyspaces<F: StoreFactory>(kit: &Kit<F>) {
    let store = Arc::new(kit.open().await);
    if refuses(&*store).await {
        return;
    }
    let write = |n: u64| {
        let mut batch = WriteBatch::new();
        for keyspace in [A, B, C] {
            batch.put(keyspace, bytes("n"), bytes(n.to_be_bytes()));
        }
        batch
    };
    commit(&*store, write(0)).await;
    let writer = Meanwhile::write(&store, write);
    let mut newest = bytes(0_u64.to_be_bytes());
    for _ in 0..60 {
        let snapshot = store.snapshot().await.expect("a snapshot is taken");
        let mut numbers = Vec::new();
        for keyspace in [A, B, C] {
            let number = snapshot.get(keyspace, b"n").await.expect("a key is read");
            numbers.extend(number);
        }
        assert_eq!(numbers.len(), 3, "no keyspace is empty");
        assert!(
            numbers.windows(2).all(|pair| pair[0] == pair[1]),
            "one moment in all keyspaces: {numbers:?}"
        );
        assert!(numbers[0] >= newest, "snapshots don't go back");
        newest = numbers.swap_remove(0);
        writer.progress().await;
    }
    writer.stop().await;
}

/// Snapshots that are read in pages, slowly, while batches put, delete and delete ranges,
/// each show the content of their own moment to the last page, whichever of them go first.
// Catches: what was written between two reads of one page, when a snapshot is put together
// from several; a range delete, a new key or a second write that it does not know of; a
// snapshot that ends with another.
pub async fn pages_of_a_snapshot_under_heavy_writes_are_of_its_moment<F: StoreFactory>(
    kit: &Kit<F>,
) {
    let store = Arc::new(kit.open().await);
    if refuses(&*store).await {
        return;
    }
    let mut history = History::default();
    for batch in fill() {
        history.apply(&batch);
        commit(&*store, batch).await;
    }
    commit(&*store, churn(0)).await;
    let writer = Meanwhile::write(&store, churn);
    let mut views = Vec::new();
    for _ in 0..3 {
        writer.progress().await;
        let snapshot = store.snapshot().await.expect("a snapshot is taken");
        let batches = snapshot.get(C, b"n").await.expect("a key is read");
        let batches = batches.expect("every batch writes it");
        history.advance(u64::from_be_bytes((*batches).try_into().expect("a number")));
        views.push((snapshot, history.content.clone()));
    }
    for (keyspace, backward) in [(A, false), (B, true)] {
        let mut walks: Vec<_> = (views.iter())
            .map(|(snapshot, _)| Walk::new(Arc::clone(snapshot), keyspace, backward))
            .collect();
        while walks.iter().any(|it| !it.is_over) {
            for walk in &mut walks {
                writer.progress().await;
                walk.read_page().await;
            }
        }
        for (walk, (_, content)) in walks.into_iter().zip(&views) {
            let expected = rows(content, keyspace, backward);
            let wrong = walk
                .read
                .iter()
                .zip(&expected)
                .find(|(it, expected)| it != expected);
            assert_eq!(wrong, None, "{keyspace}: not of its moment");
            assert_eq!(walk.read.len(), expected.len(), "{keyspace}");
        }
        // The others go on without it.
        drop(views.remove(1));
    }
    for (snapshot, content) in &views {
        for key in (0..KEYS).step_by(50) {
            let key = bytes(key.to_be_bytes());
            let value = snapshot.get(B, &key).await.expect("a key is read");
            assert_eq!(value.as_ref(), content.get(&(B, key)));
        }
    }
    writer.stop().await;
}

/// A page has what was asked for, whatever page of the snapshot was read before it.
// Catches: a page that goes on where the one before ended, when it is of another keyspace,
// begins elsewhere, or ends elsewhere.
pub async fn a_page_does_not_depend_on_the_page_before<F: StoreFactory>(kit: &Kit<F>) {
    let store = kit.open().await;
    if refuses(&store).await {
        return;
    }
    let mut batch = WriteBatch::new();
    for number in 0..100 {
        for keyspace in [A, B] {
            let value = format!("{number} of {keyspace}");
            batch.put(keyspace, bytes(format!("{number:02}")), bytes(value));
        }
    }
    // Right behind the last row of the page.
    batch.put(A, bytes("49\0"), bytes("close"));
    commit(&store, batch).await;
    let snapshot = store.snapshot().await.expect("a snapshot is taken");
    let behind = |start: &'static str| Scan::from(bytes(start)).with_entries_max(3);
    let until = |end: &'static str| Scan::range(bytes("49\0"), bytes(end)).with_entries_max(3);
    let pages = [
        (A, behind("49\0"), ["49\0", "50", "51"].as_slice()),
        (A, behind("49"), &["49", "49\0", "50"]),
        (A, behind("50\0"), &["51", "52", "53"]),
        (A, behind("20\0"), &["21", "22", "23"]),
        (B, behind("49\0"), &["50", "51", "52"]),
        (A, until("51"), &["49\0", "50"]),
        (A, until("49\0"), &[]),
        (A, behind("49\0").backward(), &["99", "98", "97"]),
    ];
    for (keyspace, page, expected) in pages {
        let before = Scan::all().with_entries_max(50);
        let before = snapshot.scan(A, before).await.expect("a page is read");
        assert_eq!(before.last().map(|it| &*it.key), Some(&b"49"[..]));
        let found = snapshot.scan(keyspace, page.clone()).await;
        let found = found.expect("a page is read");
        let keys: Vec<_> = found.iter().map(|it| &*it.key).collect();
        let expected: Vec<_> = expected.iter().map(|it| it.as_bytes()).collect();
        assert_eq!(keys, expected, "{keyspace}: {page:?}");
        let own =
            |it: &Entry| it.value == "close" || it.value.ends_with(keyspace.name().as_bytes());
        assert!(found.iter().all(own), "{keyspace}: {page:?}");
    }
}

// So many that to the last page there are some that are written for the first time since
// the snapshot.
const KEYS: u16 = 5_000;
const PAGE: usize = 150;

/// The batches that write every key once.
fn fill() -> impl Iterator<Item = WriteBatch> {
    let keys: Vec<_> = (0..KEYS).collect();
    let parts = keys.chunks(WriteBatch::KEYS_MAX / 2).map(|keys| {
        let mut batch = WriteBatch::new();
        for keyspace in [A, B] {
            for key in keys {
                batch.put(keyspace, bytes(key.to_be_bytes()), bytes("first"));
            }
        }
        batch
    });
    parts.collect::<Vec<_>>().into_iter()
}

/// The `n`th of the batches that change everything, over and over.
fn churn(n: u64) -> WriteBatch {
    let mut random = Random::new(n);
    let mut batch = WriteBatch::new();
    batch.put(C, bytes("n"), bytes(n.to_be_bytes()));
    let key = |number: u64| bytes(u16::try_from(number).expect("a key").to_be_bytes());
    for keyspace in [A, B] {
        if random.chance(1, 8) {
            let start = random.below(u64::from(KEYS));
            batch.delete_range(keyspace, key(start), key(start + 20));
        }
        for _ in 0..2 {
            batch.delete(keyspace, key(random.below(u64::from(KEYS))));
        }
        for _ in 0..8 {
            let length = if random.chance(1, 32) { 5_000 } else { 8 };
            let mut value = vec![0; length];
            random.fill(&mut value);
            batch.put(keyspace, key(random.below(u64::from(KEYS))), bytes(value));
        }
    }
    batch
}

type Content = BTreeMap<(Keyspace, Bytes), Bytes>;

/// What the store holds after a number of batches.
#[derive(Default)]
struct History {
    batches: u64,
    content: Content,
}

impl History {
    fn advance(&mut self, last: u64) {
        for n in self.batches..=last {
            self.apply(&churn(n));
        }
        self.batches = last + 1;
    }

    fn apply(&mut self, batch: &WriteBatch) {
        for range in &batch.range_deletes {
            self.content.retain(|(keyspace, key), _| {
                *keyspace != range.keyspace || *key < range.start || *key >= range.end
            });
        }
        for place in &batch.deletes {
            self.content.remove(place);
        }
        for (keyspace, key, value) in &batch.puts {
            self.content.insert((*keyspace, key.clone()), value.clone());
        }
    }
}

fn rows(content: &Content, keyspace: Keyspace, backward: bool) -> Vec<Entry> {
    let rows = content.iter().filter(|(place, _)| place.0 == keyspace);
    let mut rows: Vec<_> = rows.map(|(place, value)| entry(&place.1, value)).collect();
    if backward {
        rows.reverse();
    }
    rows
}

/// One keyspace of a snapshot, read page by page.
struct Walk {
    snapshot: Arc<dyn Snapshot>,
    keyspace: Keyspace,
    rest: Scan,
    read: Vec<Entry>,
    is_over: bool,
}

impl Walk {
    fn new(snapshot: Arc<dyn Snapshot>, keyspace: Keyspace, backward: bool) -> Self {
        let rest = Scan::all().with_entries_max(PAGE);
        Self {
            snapshot,
            keyspace,
            rest: if backward { rest.backward() } else { rest },
            read: Vec::new(),
            is_over: false,
        }
    }

    async fn read_page(&mut self) {
        let page = self.snapshot.scan(self.keyspace, self.rest.clone()).await;
        let page = page.expect("a page is read");
        match page.last() {
            None => self.is_over = true,
            Some(last) if self.rest.direction == Direction::Backward => {
                self.rest.end = Some(last.key.clone());
            }
            Some(last) => self.rest.start = [&last.key[..], &[0]].concat().into(),
        }
        self.read.extend(page);
    }
}

/// What is said about a keyspace is of that keyspace, and not far from it.
// Catches: an estimate of all keyspaces, or of a part.
pub async fn an_estimate_is_absent_or_about_right<F: StoreFactory>(kit: &Kit<F>) {
    let store = kit.open().await;
    if refuses(&store).await {
        return;
    }
    for tens in 0..20 {
        let mut batch = WriteBatch::new();
        for ones in 0..100 {
            let key = format!("{:08}", tens * 100 + ones);
            batch.put(A, bytes(key), bytes(vec![b'x'; 1_992]));
        }
        commit(&store, batch).await;
    }
    commit(&store, puts([(B, "a", "1"), (B, "b", "2")])).await;
    let snapshot = store.snapshot().await.expect("a snapshot is taken");
    let estimate = snapshot.estimate(A).await.expect("it is said or not");
    let Some(estimate) = estimate else {
        return;
    };
    assert!((1_000..4_000).contains(&estimate.rows), "{estimate:?}");
    if let Some(bytes) = estimate.bytes {
        assert!((2_000_000..8_000_000).contains(&bytes), "{estimate:?}");
    }
    for (keyspace, rows_max) in [(B, 4), (C, 0)] {
        let estimate = snapshot.estimate(keyspace).await.expect("it is said");
        let rows = estimate.map_or(0, |it| it.rows);
        assert!(rows <= rows_max, "{keyspace:?}: {rows}");
    }
}

/// Checks the refusal where the capabilities state one.
async fn refuses<S: Store>(store: &S) -> bool {
    let none = store.capabilities().snapshot == SnapshotSupport::None;
    if none {
        refused(store.snapshot().await, ErrorKind::Unsupported);
        commit(store, puts([(A, "goes on", "")])).await;
    }
    none
}
