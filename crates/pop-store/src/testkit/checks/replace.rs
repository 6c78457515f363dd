//! Staged replace: nothing shows before publish, everything at once with it.

use std::sync::Arc;

use super::{
    A, B, C, Kit, StoreFactory, all, bytes, commit, entries, entry, get_text, puts, refused,
};
use crate::{Entry, ErrorKind, Keyspace, Staging, Store, WriteBatch};

/// Until publish, readers and writers have the old content; with it, exactly the new.
// Catches: loading into the live content, old rows that shine through the new ones.
pub async fn loaded_content_shows_only_when_published<F: StoreFactory>(kit: &Kit<F>) {
    let store = kit.open().await;
    if refuses(&store).await {
        return;
    }
    commit(&store, puts([(A, "old", "1"), (A, "both", "1")])).await;
    let mut staging = begin(&store, &[A]).await;
    load(&mut staging, A, vec![entry("both", "2")]).await;
    load(&mut staging, A, vec![entry("new", "2")]).await;
    assert_eq!(
        all(&store, A).await,
        [entry("both", "1"), entry("old", "1")]
    );
    // Writers go on meanwhile, on the old content.
    let mut batch = puts([(A, "meanwhile", "1")]);
    batch.require(A, bytes("both"), bytes("1"));
    commit(&store, batch).await;

    publish(staging).await;
    assert_eq!(
        all(&store, A).await,
        [entry("both", "2"), entry("new", "2")]
    );
    // The new content is content like any other.
    let mut batch = puts([(A, "after", "3")]);
    batch
        .require(A, bytes("new"), bytes("2"))
        .require_absent(A, bytes("old"))
        .delete(A, bytes("both"));
    commit(&store, batch).await;
    assert_eq!(
        all(&store, A).await,
        [entry("after", "3"), entry("new", "2")]
    );
}

/// Keyspaces that are not staged stay; a staged one into which nothing was loaded empties.
// Catches: a switch of everything, a keyspace that keeps its old content.
pub async fn a_publish_switches_its_keyspaces_and_no_other<F: StoreFactory>(kit: &Kit<F>) {
    let store = kit.open().await;
    if refuses(&store).await {
        return;
    }
    commit(&store, puts([(A, "k", "1"), (B, "k", "1"), (C, "k", "1")])).await;
    let mut staging = begin(&store, &[A, B]).await;
    load(&mut staging, A, vec![entry("k", "2")]).await;
    commit(&store, puts([(C, "meanwhile", "1")])).await;
    publish(staging).await;
    assert_eq!(all(&store, A).await, [entry("k", "2")]);
    assert_eq!(all(&store, B).await, []);
    assert_eq!(
        all(&store, C).await,
        [entry("k", "1"), entry("meanwhile", "1")]
    );
    for n in ["3", "4", "5"] {
        let mut staging = begin(&store, &[B, C]).await;
        load(&mut staging, C, vec![entry("k", n)]).await;
        publish(staging).await;
        assert_eq!(all(&store, C).await, [entry("k", n)]);
        assert_eq!(all(&store, A).await, [entry("k", "2")]);
    }
}

/// Who has seen the new content in one keyspace sees it in the others from then on.
// Catches: a switch keyspace by keyspace.
pub async fn a_publish_switches_all_its_keyspaces_at_once<F: StoreFactory>(kit: &Kit<F>) {
    const GENERATIONS: u32 = 12;
    let store = Arc::new(kit.open().await);
    if refuses(&*store).await {
        return;
    }
    commit(
        &*store,
        puts([A, B, C].map(|keyspace| (keyspace, "n", "00"))),
    )
    .await;
    let publisher = tokio::spawn({
        let store = Arc::clone(&store);
        async move {
            for n in 1..=GENERATIONS {
                let mut staging = begin(&*store, &[A, B, C]).await;
                for keyspace in [A, B, C] {
                    load(&mut staging, keyspace, vec![entry("n", format!("{n:02}"))]).await;
                }
                publish(staging).await;
            }
        }
    });
    let orders = [[A, B, C], [C, B, A], [B, C, A], [C, A, B]];
    for order in orders.iter().cycle() {
        let ends = publisher.is_finished();
        let mut newest = None;
        for keyspace in order {
            let seen = get_text(&*store, *keyspace, "n").await;
            assert!(seen.is_some(), "no moment without content");
            assert!(seen >= newest, "{seen:?} in {keyspace} after {newest:?}");
            newest = seen;
        }
        if ends {
            assert_eq!(newest, Some(format!("{GENERATIONS:02}")));
            break;
        }
        tokio::task::yield_now().await;
    }
    publisher.await.expect("the publisher ends");
}

/// Content that was aborted or dropped shows neither at once nor in the next staging.
// Catches: a staging area that is used again without being emptied.
pub async fn what_was_not_published_leaves_nothing<F: StoreFactory>(kit: &Kit<F>) {
    let store = kit.open().await;
    if refuses(&store).await {
        return;
    }
    commit(&store, puts([(A, "old", "1")])).await;
    let mut staging = begin(&store, &[A, B]).await;
    load(&mut staging, A, entries(["aborted"])).await;
    staging.abort().await.expect("the staging is thrown away");
    assert_eq!(all(&store, A).await, [entry("old", "1")]);
    let mut staging = begin(&store, &[A, B]).await;
    load(&mut staging, A, entries(["new"])).await;
    publish(staging).await;
    assert_eq!(all(&store, A).await, entries(["new"]));

    let mut staging = begin(&store, &[A, B]).await;
    load(&mut staging, B, entries(["dropped"])).await;
    drop(staging);
    assert_eq!(all(&store, B).await, []);
    let mut staging = begin(&store, &[A, B]).await;
    load(&mut staging, A, entries(["newer"])).await;
    publish(staging).await;
    assert_eq!(all(&store, A).await, entries(["newer"]));
    assert_eq!(all(&store, B).await, []);
}

/// One staging at a time: another is refused, and possible again once the first is over.
// Catches: two stagings that mix, a slot that is never given back.
pub async fn a_second_staging_is_refused_while_one_is_open<F: StoreFactory>(kit: &Kit<F>) {
    let store = kit.open().await;
    if refuses(&store).await {
        return;
    }
    let staging = begin(&store, &[A]).await;
    refused(store.begin_replace(&[B]).await, ErrorKind::Unavailable);
    refused(store.begin_replace(&[A]).await, ErrorKind::Unavailable);
    staging.abort().await.expect("the staging is thrown away");
    let staging = begin(&store, &[B]).await;
    refused(store.begin_replace(&[A]).await, ErrorKind::Unavailable);
    publish(staging).await;
    drop(begin(&store, &[A]).await);
    begin(&store, &[A]).await;
}

/// A key that is loaded twice, in one call or in two, has its later value.
// Catches: sorted files that refuse or turn round a repeated key.
pub async fn the_later_load_of_a_key_wins<F: StoreFactory>(kit: &Kit<F>) {
    let store = kit.open().await;
    if refuses(&store).await {
        return;
    }
    let mut staging = begin(&store, &[A]).await;
    let unsorted = vec![entry("b", "1"), entry("a", "1"), entry("b", "2")];
    load(&mut staging, A, unsorted).await;
    load(&mut staging, A, vec![entry("a", "2"), entry("", "2")]).await;
    load(&mut staging, A, Vec::new()).await;
    publish(staging).await;
    assert_eq!(
        all(&store, A).await,
        [entry("", "2"), entry("a", "2"), entry("b", "2")]
    );
}

/// A load of some megabytes is published whole, also where its keys go back in the middle.
// Catches: sorted files that end at the first key that goes back, rows held in memory until
// the files began and forgotten then, an empty keyspace without a file, a load that comes in
// after a later one.
pub async fn a_large_load_in_any_order_is_published_whole<F: StoreFactory>(kit: &Kit<F>) {
    const ROWS: u32 = 120;
    const STEP: usize = 20;
    let store = kit.open().await;
    if refuses(&store).await {
        return;
    }
    commit(
        &store,
        puts([(A, "old", "1"), (B, "old", "1"), (C, "old", "1")]),
    )
    .await;
    let row = |key: u32, value: u8| entry(key.to_be_bytes(), vec![value; 32 << 10]);
    let mut expected: Vec<_> = (0..ROWS).map(|key| row(2 * key, 1)).collect();
    let mut staging = begin(&store, &[A, B, C]).await;
    load(&mut staging, B, entries(["few"])).await;
    for (step, rows) in expected.chunks(STEP).enumerate() {
        match step % 3 {
            0 => load(&mut staging, A, rows.to_vec()).await,
            _ => load_rows(&mut staging, A, rows.to_vec()).await,
        }
    }
    load(&mut staging, B, entries(["more"])).await;
    // Over a row that is there, between two that are, and on.
    let late = [row(2, 2), row(3, 2), row(2 * ROWS, 2)];
    load_rows(&mut staging, A, vec![row(2, 4), late[2].clone()]).await;
    load_rows(&mut staging, A, vec![late[0].clone()]).await;
    load(&mut staging, A, vec![late[1].clone()]).await;
    load_rows(&mut staging, A, vec![row(2 * ROWS + 1, 3)]).await;
    publish(staging).await;

    expected[1] = late[0].clone();
    expected.insert(2, late[1].clone());
    expected.extend([late[2].clone(), row(2 * ROWS + 1, 3)]);
    let found = all(&store, A).await;
    let keys = |rows: &[Entry]| rows.iter().map(|it| it.key.clone()).collect::<Vec<_>>();
    assert_eq!(keys(&found), keys(&expected));
    assert!(
        found == expected,
        "the values are those that were loaded last"
    );
    assert_eq!(all(&store, B).await, entries(["few", "more"]));
    assert_eq!(all(&store, C).await, []);
}

/// A keyspace that is not staged, and entries above a batch's limits, are invalid.
// Catches: a load into the live keyspace, a load that no later write could repeat.
pub async fn a_wrong_load_is_refused<F: StoreFactory>(kit: &Kit<F>) {
    let store = kit.open().await;
    if refuses(&store).await {
        return;
    }
    let mut staging = begin(&store, &[A]).await;
    let long_key = vec![b'k'; WriteBatch::KEY_BYTES_MAX + 1];
    let too_big = vec![0; WriteBatch::BYTES_MAX + 1];
    let too_many = (0..=WriteBatch::KEYS_MAX).map(|n| entry(n.to_be_bytes(), ""));
    let wrong = [
        (B, vec![entry("k", "")]),
        (A, vec![entry(long_key, "")]),
        (A, vec![entry("k", too_big)]),
        (A, too_many.collect()),
    ];
    for (keyspace, entries) in wrong {
        refused(staging.load(keyspace, entries).await, ErrorKind::Invalid);
    }
    load(&mut staging, A, entries(["right"])).await;
    publish(staging).await;
    assert_eq!(all(&store, A).await, entries(["right"]));
    assert_eq!(all(&store, B).await, []);
    let long_key = vec![b'k'; WriteBatch::KEY_BYTES_MAX + 1];
    let too_big = vec![0; WriteBatch::BYTES_MAX + 1];
    for (keyspace, row) in [
        (B, entry("k", "")),
        (A, entry(long_key, "")),
        (A, entry("k", too_big)),
    ] {
        let mut staging = begin(&store, &[A]).await;
        let loaded = staging.load_rows(keyspace, vec![row].into()).await;
        refused(loaded, ErrorKind::Invalid);
        staging.abort().await.expect("it is thrown away");
    }
}

pub(super) async fn begin<S: Store>(store: &S, keyspaces: &[Keyspace]) -> Box<dyn Staging> {
    let staging = store.begin_replace(keyspaces).await;
    staging.expect("a staging is opened")
}

async fn load_rows(staging: &mut Box<dyn Staging>, keyspace: Keyspace, rows: Vec<Entry>) {
    let loaded = staging.load_rows(keyspace, rows.into()).await;
    loaded.expect("rows are loaded");
}

pub(super) async fn load(staging: &mut Box<dyn Staging>, keyspace: Keyspace, rows: Vec<Entry>) {
    let loaded = staging.load(keyspace, rows).await;
    loaded.expect("entries are loaded");
}

pub(super) async fn publish(staging: Box<dyn Staging>) {
    staging.publish().await.expect("the content is published");
}

/// Checks the refusal where the capabilities state one.
pub(super) async fn refuses<S: Store>(store: &S) -> bool {
    let replace = store.capabilities().replace;
    if !replace {
        refused(store.begin_replace(&[A]).await, ErrorKind::Unsupported);
        commit(store, puts([(A, "goes on", "")])).await;
    }
    !replace
}
