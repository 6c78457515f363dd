//! Scans: bounds, directions, limits, and that one scan shows one moment.

use std::sync::Arc;

use super::{
    A, Kit, Meanwhile, StoreFactory, all, bytes, commit, commit_keys, entries, entry, puts, scan,
};
use crate::{Scan, WriteBatch};

/// `start..end` has its start and not its end, forward and backward alike.
// Catches: an end bound that is included, a start bound that is left out, a backward
// scan that begins at the wrong side, bounds that must be existing keys.
pub async fn a_scan_is_half_open_and_ordered_both_ways<F: StoreFactory>(kit: &Kit<F>) {
    let store = kit.open().await;
    commit_keys(&store, A, ["a", "b", "b\0", "c", "d"]).await;
    let cases: [(&str, &str, Vec<_>); 6] = [
        ("b", "d", entries(["b", "b\0", "c"])),
        ("b", "b\0", entries(["b"])),
        ("b\0", "c\0", entries(["b\0", "c"])),
        ("", "a", vec![]),
        ("aa", "cc", entries(["b", "b\0", "c"])),
        ("e", "z", vec![]),
    ];
    for (start, end, expected) in cases {
        let range = Scan::range(bytes(start), bytes(end));
        let forward = scan(&store, A, range.clone()).await;
        assert_eq!(forward, expected, "{start:?}..{end:?} forward");
        let mut backward = scan(&store, A, range.backward()).await;
        backward.reverse();
        assert_eq!(backward, expected, "{start:?}..{end:?} backward");
    }
}

/// Without an end, a range reaches the last key, whatever its bytes.
// Catches: "no end" written as some high key, with keys still above it.
pub async fn a_scan_without_an_end_reaches_the_last_key<F: StoreFactory>(kit: &Kit<F>) {
    let store = kit.open().await;
    let high = vec![0xFF; WriteBatch::KEY_BYTES_MAX];
    let mut batch = puts([(A, "a", ""), (A, "b", "")]);
    batch.put(A, bytes(&high), bytes(""));
    commit(&store, batch).await;
    let expected = [entry("b", ""), entry(&high, "")];
    assert_eq!(scan(&store, A, Scan::from(bytes("b"))).await, expected);
    let mut backward = scan(&store, A, Scan::from(bytes("b")).backward()).await;
    backward.reverse();
    assert_eq!(backward, expected);
}

/// A range without room for a key has no entries and is no error.
// Catches: an engine's panic on a range turned round, a limit of zero read as none.
pub async fn an_empty_range_has_no_entries<F: StoreFactory>(kit: &Kit<F>) {
    let store = kit.open().await;
    commit_keys(&store, A, ["", "a", "b", "c"]).await;
    let ranges = [
        Scan::range(bytes("c"), bytes("a")),
        Scan::range(bytes("b"), bytes("b")),
        Scan::range(bytes(""), bytes("")),
        Scan::all().with_entries_max(0),
    ];
    for range in ranges {
        assert_eq!(scan(&store, A, range.clone()).await, [], "{range:?}");
        assert_eq!(scan(&store, A, range.backward()).await, []);
    }
}

/// A limited scan gives the entries nearest to where it begins.
// Catches: an off-by-one limit, a backward scan that turns the lowest entries round.
pub async fn a_scan_stops_at_its_entry_limit<F: StoreFactory>(kit: &Kit<F>) {
    let store = kit.open().await;
    commit_keys(&store, A, ["a", "b", "c", "d"]).await;
    let two = Scan::all().with_entries_max(2);
    assert_eq!(scan(&store, A, two.clone()).await, entries(["a", "b"]));
    assert_eq!(scan(&store, A, two.backward()).await, entries(["d", "c"]));
    let more = Scan::all().with_entries_max(9);
    assert_eq!(scan(&store, A, more).await, entries(["a", "b", "c", "d"]));
}

/// A scan stops with the entry that reaches its byte limit; the first entry always fits.
// Catches: a limit that hides a big entry for ever, keys that are not counted.
pub async fn a_scan_stops_at_its_byte_limit_but_gives_one_entry<F: StoreFactory>(kit: &Kit<F>) {
    let store = kit.open().await;
    commit_keys(&store, A, ["aaaa", "bbbb", "cccc", "dddd"]).await;
    // Each entry has 8 bytes: 16 is reached with the second, 17 with the third.
    let cases = [(0, 1), (1, 1), (8, 1), (9, 2), (16, 2), (17, 3), (99, 4)];
    for (bytes_max, count) in cases {
        let limited = Scan::all().with_bytes_max(bytes_max);
        let forward = scan(&store, A, limited.clone()).await;
        let expected = &entries(["aaaa", "bbbb", "cccc", "dddd"])[..count];
        assert_eq!(forward, expected, "{bytes_max} bytes forward");
        let backward = scan(&store, A, limited.backward()).await;
        let expected = &entries(["dddd", "cccc", "bbbb", "aaaa"])[..count];
        assert_eq!(backward, expected, "{bytes_max} bytes backward");
    }
}

/// A range longer than a page comes whole, in pages of any size, both ways.
// Catches: a cursor that skips or repeats a key, rows lost where an engine flushes.
pub async fn pages_of_a_long_range_have_no_gap_and_no_repeat<F: StoreFactory>(kit: &Kit<F>) {
    const ROWS: u64 = 3_000;
    let store = kit.open().await;
    for first in (0..ROWS).step_by(500) {
        let mut batch = WriteBatch::new();
        for n in first..first + 500 {
            batch.put(A, bytes(n.to_be_bytes()), bytes(n.to_be_bytes()));
        }
        commit(&store, batch).await;
    }
    let expected: Vec<_> = (0..ROWS)
        .map(|n| entry(n.to_be_bytes(), n.to_be_bytes()))
        .collect();
    assert!(all(&store, A).await == expected, "forward in default pages");

    let mut rest = Scan::all().backward().with_entries_max(700);
    let mut backward = Vec::new();
    loop {
        let page = scan(&store, A, rest.clone()).await;
        let Some(last) = page.last() else { break };
        rest.end = Some(last.key.clone());
        backward.extend(page);
    }
    backward.reverse();
    assert!(backward == expected, "backward in pages of 700");
}

/// While a row moves between two keys in single batches, a scan sees it exactly once.
// Catches: an iterator that walks while writers write, a batch applied key by key.
pub async fn a_scan_shows_one_moment<F: StoreFactory>(kit: &Kit<F>) {
    let store = Arc::new(kit.open().await);
    // Rows between the two places make the walk long enough to be overtaken.
    for chunk in 0..4 {
        let mut between = WriteBatch::new();
        for n in 0..250 {
            between.put(A, bytes(format!("m{chunk}{n:03}")), bytes(""));
        }
        commit(&*store, between).await;
    }
    commit(&*store, puts([(A, "a", "moving")])).await;

    let mover = Meanwhile::write(&store, |n| {
        let (from, to) = if n % 2 == 1 { ("a", "z") } else { ("z", "a") };
        let mut batch = puts([(A, to, "moving")]);
        batch
            .require(A, bytes(from), bytes("moving"))
            .delete(A, bytes(from));
        batch
    });
    for _ in 0..60 {
        for range in [Scan::all(), Scan::all().backward()] {
            let found = scan(&*store, A, range).await;
            let places = found.iter().filter(|it| it.value == "moving").count();
            assert_eq!(places, 1, "a row that moves is in one place at a time");
            assert_eq!(found.len(), 1_001, "rows that stay are always there");
        }
        mover.progress().await;
    }
    mover.stop().await;
}
