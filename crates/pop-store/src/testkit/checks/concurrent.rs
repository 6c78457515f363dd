//! Many callers at once: one order, no lost update, nothing that hangs on a caller.

use std::{
    collections::BTreeMap,
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use tokio::task::JoinSet;

use super::{A, B, C, Kit, StoreFactory, all, bytes, commit, entry, get, get_text, scan};
use crate::{Durability, ErrorKind, Scan, Store, WriteBatch, testkit::Random};

/// What takes longer hangs. Short where this crate shows that the checks can fail.
const HANG: Duration = Duration::from_millis(if cfg!(test) { 500 } else { 20_000 });

/// Of 64 writers that require the same value, one wins each round, and only its rows stay.
// Catches: preconditions looked at outside the commit, or against the content before the
// group alone; losers that leave something; losers that are told they won.
pub async fn of_many_compare_and_sets_exactly_one_wins<F: StoreFactory>(kit: &Kit<F>) {
    const WRITERS: u32 = 64;
    let store = Arc::new(kit.open().await);
    let mut owner = None;
    let mut won = Vec::new();
    for round in 0..8_u32 {
        let mut writers = JoinSet::new();
        for writer in 0..WRITERS {
            let mut batch = WriteBatch::new();
            match &owner {
                Some(owner) => batch.require(A, bytes("owner"), bytes(owner)),
                None => batch.require_absent(A, bytes("owner")),
            };
            let me = format!("{round}:{writer}");
            batch
                .put(A, bytes("owner"), bytes(&me))
                .put(B, bytes(&me), bytes("won"));
            let store = Arc::clone(&store);
            writers.spawn(async move { (me, store.write(batch, Durability::Buffered).await) });
        }
        let mut winners = Vec::new();
        while let Some(answer) = writers.join_next().await {
            match answer.expect("a writer ends") {
                (me, Ok(())) => winners.push(me),
                (_, Err(error)) => {
                    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
                    assert_eq!(error.conflict(), Some((A, &bytes("owner"))));
                }
            }
        }
        assert_eq!(winners.len(), 1, "one of round {round} wins: {winners:?}");
        won.extend(winners.clone());
        owner = winners.pop();
        assert_eq!(get_text(&*store, A, "owner").await, owner);
    }
    won.sort();
    let expected: Vec<_> = won.iter().map(|me| entry(me, "won")).collect();
    assert_eq!(all(&*store, B).await, expected, "only winners leave rows");
}

/// Transfers between accounts, each a read and a conditional write, lose and make nothing.
// Catches: lost updates, a batch half seen by a scan, preconditions on one key of several.
pub async fn transfers_between_accounts_keep_the_sum<F: StoreFactory>(kit: &Kit<F>) {
    const ACCOUNTS: u64 = 6;
    const SUM: u64 = ACCOUNTS * 100;
    let store = Arc::new(kit.open().await);
    let mut batch = WriteBatch::new();
    for account in 0..ACCOUNTS {
        batch.put(A, account_key(account), amount(100));
    }
    commit(&*store, batch).await;

    let mut clerks = JoinSet::new();
    for clerk in 0..8 {
        let store = Arc::clone(&store);
        clerks.spawn(async move {
            let mut random = Random::new(clerk);
            for _ in 0..25 {
                let from = random.below(ACCOUNTS);
                let to = (from + 1 + random.below(ACCOUNTS - 1)) % ACCOUNTS;
                while !transfer(&*store, from, to, random.below(20)).await {
                    tokio::task::yield_now().await;
                }
            }
        });
    }
    loop {
        let accounts = scan(&*store, A, Scan::all()).await;
        let sum: u64 = accounts.iter().map(|it| read_amount(&it.value)).sum();
        assert_eq!(sum, SUM, "a scan sees transfers whole");
        match clerks.try_join_next() {
            Some(ended) => ended.expect("a clerk ends"),
            None if clerks.is_empty() => break,
            None => tokio::task::yield_now().await,
        }
    }
}

fn account_key(account: u64) -> bytes::Bytes {
    bytes(account.to_be_bytes())
}

fn amount(amount: u64) -> bytes::Bytes {
    bytes(amount.to_be_bytes())
}

fn read_amount(raw: &[u8]) -> u64 {
    u64::from_be_bytes(raw.try_into().expect("an amount has 8 bytes"))
}

/// Moves up to `sum` once, or answers that somebody else was faster.
async fn transfer<S: Store>(store: &S, from: u64, to: u64, sum: u64) -> bool {
    let keys = [account_key(from), account_key(to)];
    let held = store.multi_get(A, &keys).await.expect("accounts are read");
    let [Some(rich), Some(poor)] = &held[..] else {
        panic!("an account is missing: {held:?}");
    };
    let sum = sum.min(read_amount(rich));
    let [from, to] = keys;
    let mut batch = WriteBatch::new();
    batch
        .require(A, from.clone(), rich.clone())
        .require(A, to.clone(), poor.clone())
        .put(A, from, amount(read_amount(rich) - sum))
        .put(A, to, amount(read_amount(poor) + sum));
    match store.write(batch, Durability::Buffered).await {
        Ok(()) => true,
        Err(error) if error.kind() == ErrorKind::Conflict => false,
        Err(error) => panic!("a transfer is committed or in conflict: {error}"),
    }
}

/// What was answered is there at once and stays; a key that many write never goes back.
// Catches: a write of a group that gets lost, an answer before the write is visible,
// groups applied out of order.
pub async fn every_answered_write_is_there_and_no_key_goes_back<F: StoreFactory>(kit: &Kit<F>) {
    const WRITERS: u64 = 16;
    const WRITES: u64 = 25;
    let store = Arc::new(kit.open().await);
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let store = Arc::clone(&store);
        writers.spawn(async move {
            for n in 1..=WRITES {
                let mine = bytes([writer.to_be_bytes(), n.to_be_bytes()].concat());
                let mut batch = WriteBatch::new();
                batch
                    .put(A, bytes("shared"), mine.clone())
                    .put(B, mine.clone(), bytes(""))
                    .put(C, mine.clone(), bytes(""));
                let durability = if n % 10 == 0 {
                    Durability::Synced
                } else {
                    Durability::Buffered
                };
                let answer = store.write(batch, durability).await;
                answer.expect("the write is committed");
                assert!(
                    get(&*store, B, &mine).await.is_some(),
                    "an answered write is seen by the next read"
                );
            }
        });
    }
    let mut seen = BTreeMap::new();
    loop {
        if let Some(value) = get(&*store, A, "shared").await {
            let (writer, n) = value.split_at(8);
            let (writer, n) = (read_amount(writer), read_amount(n));
            let before = seen.insert(writer, n).unwrap_or(0);
            assert!(
                before <= n,
                "writer {writer} went from {before} back to {n}"
            );
        }
        match writers.try_join_next() {
            Some(ended) => ended.expect("a writer ends"),
            None if writers.is_empty() => break,
            None => tokio::task::yield_now().await,
        }
    }
    let last = get(&*store, A, "shared").await.expect("somebody was last");
    let (_, n) = last.split_at(8);
    assert_eq!(read_amount(n), WRITES, "the last write is a writer's last");
    for keyspace in [B, C] {
        let count = all(&*store, keyspace).await.len();
        assert_eq!(count as u64, WRITERS * WRITES, "rows of {keyspace}");
    }
}

/// Dropping a write's future loses its answer, never a part of the write.
// Catches: a batch split where its caller went away, a committer that ends with a waiter.
pub async fn a_dropped_write_happens_as_a_whole_or_not_at_all<F: StoreFactory>(kit: &Kit<F>) {
    let store = kit.open().await;
    for n in 0..100_u64 {
        let mut batch = WriteBatch::new();
        for keyspace in [A, B, C] {
            batch.put(keyspace, bytes(n.to_be_bytes()), bytes("x"));
        }
        let durability = if n % 4 == 0 {
            Durability::Synced
        } else {
            Durability::Buffered
        };
        let mut write = pin!(store.write(batch, durability));
        poll_once(write.as_mut()).await;
    }
    commit(&store, WriteBatch::new()).await;
    // Some of them may still be under way, and a store never stops in the middle of one.
    let whole = async {
        loop {
            let in_a = all(&store, A).await;
            if in_a == all(&store, B).await && in_a == all(&store, C).await {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    let settled = tokio::time::timeout(HANG, whole).await;
    assert!(settled.is_ok(), "a dropped write was split");
}

/// A caller that polls its write once and never again does not stop the others.
// Catches: a lock or a transaction held across the caller's await.
pub async fn a_caller_that_stops_polling_holds_up_nobody<F: StoreFactory>(kit: &Kit<F>) {
    let store = kit.open().await;
    let mut sleepers = Vec::new();
    for n in 0..8_u64 {
        let mut batch = WriteBatch::new();
        batch.put(A, bytes("k"), bytes(n.to_be_bytes()));
        let mut write = store.write(batch, Durability::Synced);
        poll_once(write.as_mut()).await;
        sleepers.push(write);
    }
    let others = async {
        let mut batch = WriteBatch::new();
        batch.put(A, bytes("k"), bytes("awake"));
        let answer = store.write(batch, Durability::Synced).await;
        answer.expect("the write is committed");
        get(&store, A, "k").await
    };
    let seen = tokio::time::timeout(HANG, others).await;
    assert!(
        matches!(seen, Ok(Some(_))),
        "a write waits for a caller that does not poll"
    );
    drop(sleepers);
}

async fn poll_once(mut future: std::pin::Pin<&mut (impl Future + ?Sized)>) {
    poll_fn(|context| {
        let _ = future.as_mut().poll(context);
        Poll::Ready(())
    })
    .await;
}
