//! Keys, values and keyspaces: what goes in comes out, in the order of unsigned bytes.

use super::{A, B, C, Kit, StoreFactory, all, bytes, commit, entry, get, get_text, puts};
use crate::{Durability, Scan, Store, WriteBatch};

/// Scans give keys in the order of their bytes, whatever the bytes are.
// Catches: signed bytes, text collation, length before content, a lost 0x00.
pub async fn keys_sort_as_unsigned_bytes<F: StoreFactory>(kit: &Kit<F>) {
    let store = kit.open().await;
    let mut keys: Vec<Vec<u8>> = [
        &b""[..],
        &[0x00],
        &[0x00, 0x00],
        &[0x00, 0xFF],
        &[0x01],
        b"A",
        b"a",
        b"a\0",
        b"a\0b",
        b"aa",
        b"b",
        &[0x7F],
        &[0x7F, 0xFF],
        &[0x80],
        &[0xFF],
        &[0xFF, 0x00],
        &[0xFF, 0xFF],
        "ß".as_bytes(),
        "é".as_bytes(),
        "日本".as_bytes(),
        "🦀".as_bytes(),
    ]
    .map(<[u8]>::to_vec)
    .into();
    keys.push([b"a".repeat(1_023), vec![0x00]].concat());
    keys.push([b"a".repeat(1_023), vec![0xFF]].concat());
    let mut batch = WriteBatch::new();
    // Written in an order that is neither way sorted.
    for key in keys.iter().skip(7).chain(keys.iter().take(7)) {
        batch.put(A, bytes(key), bytes(key));
    }
    commit(&store, batch).await;

    keys.sort();
    let expected: Vec<_> = keys.iter().map(|key| entry(key, key)).collect();
    assert_eq!(all(&store, A).await, expected, "forward");
    let mut backward = super::scan(&store, A, Scan::all().backward()).await;
    backward.reverse();
    assert_eq!(backward, expected, "backward");
    for key in &keys {
        assert_eq!(get(&store, A, key).await, Some(bytes(key)), "{key:?}");
    }
}

/// An empty key is a key and an empty value a value.
// Catches: "empty means missing", in a key and in a value.
pub async fn an_empty_key_and_an_empty_value_are_kept<F: StoreFactory>(kit: &Kit<F>) {
    let store = kit.open().await;
    commit(&store, puts([(A, "", "first"), (A, "k", "")])).await;
    assert_eq!(get_text(&store, A, "").await.as_deref(), Some("first"));
    assert_eq!(get_text(&store, A, "k").await.as_deref(), Some(""));
    assert_eq!(all(&store, A).await, [entry("", "first"), entry("k", "")]);

    commit(&store, puts([(A, "", "")])).await;
    assert_eq!(get_text(&store, A, "").await.as_deref(), Some(""));

    let mut batch = WriteBatch::new();
    batch.delete(A, bytes("")).delete(A, bytes("k"));
    commit(&store, batch).await;
    assert_eq!(get(&store, A, "").await, None);
    assert_eq!(all(&store, A).await, []);
}

/// A key of the longest length is kept whole, beside one that differs in its last byte.
// Catches: keys cut to a shorter length, or a prefix byte that does not fit any more.
pub async fn the_longest_key_is_kept<F: StoreFactory>(kit: &Kit<F>) {
    let store = kit.open().await;
    let long = "k".repeat(WriteBatch::KEY_BYTES_MAX);
    let mut other = long.clone();
    other.replace_range(other.len() - 1.., "l");
    commit(&store, puts([(A, &long, "1"), (A, &other, "2")])).await;
    assert_eq!(get_text(&store, A, &long).await.as_deref(), Some("1"));
    assert_eq!(get_text(&store, A, &other).await.as_deref(), Some("2"));
    assert_eq!(
        all(&store, A).await,
        [entry(&long, "1"), entry(&other, "2")]
    );
}

/// A value that fills a whole batch comes back byte for byte, also through a scan.
// Catches: values cut at an engine's page, and chunks put together wrongly.
pub async fn the_largest_value_is_kept<F: StoreFactory>(kit: &Kit<F>) {
    let store = kit.open().await;
    let mut value = vec![0; WriteBatch::BYTES_MAX - 1];
    super::super::Random::new(1).fill(&mut value);
    let value = bytes(value);
    let mut batch = WriteBatch::new();
    batch.put(A, bytes("k"), value.clone());
    store
        .write(batch, Durability::Synced)
        .await
        .expect("a batch at the limit is committed");
    assert!(
        get(&store, A, "k").await.as_ref() == Some(&value),
        "get gives the value that was put"
    );
    let scanned = all(&store, A).await;
    assert!(
        matches!(&scanned[..], [only] if only.key == "k" && only.value == value),
        "scan gives the value that was put"
    );
}

/// One key may live in several keyspaces, each with a value and a life of its own.
// Catches: one tree for all without a prefix, or a prefix that runs into the key.
pub async fn keyspaces_do_not_see_each_other<F: StoreFactory>(kit: &Kit<F>) {
    let store = kit.open().await;
    commit(
        &store,
        puts([(A, "k", "a"), (B, "k", "b"), (C, "k", "c"), (A, "_2k", "a")]),
    )
    .await;
    assert_eq!(get_text(&store, B, "k").await.as_deref(), Some("b"));
    assert_eq!(
        all(&store, A).await,
        [entry("_2k", "a"), entry("k", "a")],
        "a keyspace ends where its name ends"
    );

    let mut batch = WriteBatch::new();
    batch
        .delete(A, bytes("k"))
        .delete_range(B, bytes(""), bytes([0xFF; 8]));
    commit(&store, batch).await;
    assert_eq!(all(&store, A).await, [entry("_2k", "a")]);
    assert_eq!(all(&store, B).await, []);
    assert_eq!(all(&store, C).await, [entry("k", "c")]);
}

/// `multi_get` answers key by key, missing and repeated ones too.
// Catches: answers in key order, missing ones left out, repeated ones merged.
pub async fn several_keys_are_answered_in_the_order_asked<F: StoreFactory>(kit: &Kit<F>) {
    let store = kit.open().await;
    commit(&store, puts([(A, "a", "1"), (A, "b", "2"), (B, "x", "9")])).await;
    let asked = ["b", "x", "a", "b", ""].map(bytes);
    let answer = store.multi_get(A, &asked).await.expect("the keys are read");
    let expected = [
        Some(bytes("2")),
        None,
        Some(bytes("1")),
        Some(bytes("2")),
        None,
    ];
    assert_eq!(answer, expected);
    let none = store.multi_get(A, &[]).await.expect("no key is read");
    assert_eq!(none, []);
}
