//! What is left of the lanes, held against what they were promised.

use std::collections::HashMap;

use anyhow::{Context, Result};
use bytes::Bytes;
use pop_store::{Keyspace, Scan, Store, StoreExt};

use super::{LANES, LATEST, PREFIX, PREFIX_END, ROWS, Rows, latest_key, rows};
use crate::marks::{Mark, RawMark};

/// What is left of each lane, as the number of its last batch; what is not a state that
/// the lane ever had goes to `violations`.
pub(crate) async fn survivors(
    store: &dyn Store,
    violations: &mut Vec<String>,
) -> Result<HashMap<u64, u64>> {
    let mut found = Rows::new();
    for keyspace in ROWS.into_iter().chain(LATEST) {
        store
            .for_each_page(keyspace, Scan::range(PREFIX, PREFIX_END), |page| {
                let rows = page.into_iter().map(|it| ((keyspace, it.key), it.value));
                found.extend(rows);
                Ok::<_, pop_store::Error>(true)
            })
            .await
            .with_context(|| format!("{keyspace} can't be read"))?;
    }
    let mut numbers = HashMap::new();
    let mut expected = Rows::new();
    for lane in 0..LANES {
        let [first, second] = LATEST.map(|keyspace| latest(&found, keyspace, lane));
        if first != second {
            violations.push(format!(
                "lane {lane}: a batch is there in part: its last is {first} in one keyspace \
                 and {second} in another"
            ));
        }
        numbers.insert(lane, first);
        expected.extend(rows(lane, first));
    }
    compare(&found, &expected, violations);
    Ok(numbers)
}

fn latest(found: &Rows, keyspace: Keyspace, lane: u64) -> u64 {
    let value = found.get(&(keyspace, latest_key(lane)));
    let text = value.and_then(|it| std::str::from_utf8(it).ok());
    text.and_then(|it| it.parse().ok()).unwrap_or(0)
}

fn compare(found: &Rows, expected: &Rows, violations: &mut Vec<String>) {
    let name = |(keyspace, key): &(Keyspace, Bytes)| format!("{keyspace} {}", key.escape_ascii());
    for (key, value) in expected {
        match found.get(key) {
            Some(is) if is == value => {}
            Some(_) => violations.push(format!("{} has another value", name(key))),
            None => violations.push(format!("{} is gone", name(key))),
        }
    }
    for key in found.keys().filter(|key| !expected.contains_key(*key)) {
        violations.push(format!("{} is there again or in part", name(key)));
    }
}

/// Judges which batches survived by what was promised: all that were answered as synced,
/// and no batch without all that were answered before it began.
pub(crate) fn judge(marks: &[Mark], survivors: &HashMap<u64, u64>, violations: &mut Vec<String>) {
    let survives = |lane: u64, number: u64| survivors.get(&lane).is_some_and(|it| *it >= number);
    let mut begun: HashMap<u64, u64> = HashMap::new();
    // The last mark at which a surviving batch began: what was answered before is below it
    // in the order of commits.
    let mut newest = None;
    for (at, mark) in marks.iter().enumerate() {
        if let Mark::Raw(RawMark::Begin { lane, number }) = mark {
            begun.insert(*lane, *number);
            if survives(*lane, *number) {
                newest = Some((at, *lane, *number));
            }
        }
    }
    for (at, mark) in marks.iter().enumerate() {
        let Mark::Raw(RawMark::Done {
            lane,
            number,
            synced,
        }) = mark
        else {
            continue;
        };
        if survives(*lane, *number) {
            continue;
        }
        if *synced {
            violations.push(format!(
                "batch {number} of lane {lane} was synced and is lost"
            ));
        } else if let Some((newest_at, newest_lane, newest)) = newest
            && at < newest_at
        {
            violations.push(format!(
                "a hole: batch {number} of lane {lane} was answered before batch {newest} of \
                 lane {newest_lane} began, and that one alone survives"
            ));
        }
    }
    for (lane, number) in survivors {
        let begun = begun.get(lane).copied().unwrap_or(0);
        if *number > begun {
            violations.push(format!("batch {number} of lane {lane} was never begun"));
        }
    }
}

#[cfg(test)]
mod tests {
    use pop_store::{
        Durability, MemStore, WriteBatch,
        table::{KEYSPACES, LOG, META, RETRY},
    };

    use super::*;
    use crate::raw::{batch, row_key};

    const fn begin(lane: u64, number: u64) -> Mark {
        Mark::Raw(RawMark::Begin { lane, number })
    }

    const fn done(lane: u64, number: u64, synced: bool) -> Mark {
        Mark::Raw(RawMark::Done {
            lane,
            number,
            synced,
        })
    }

    #[track_caller]
    fn check(marks: &[Mark], survivors: &[(u64, u64)], expected: &str) {
        let mut violations = Vec::new();
        judge(marks, &survivors.iter().copied().collect(), &mut violations);
        match expected {
            "" => assert_eq!(violations, Vec::<String>::new()),
            expected => assert!(
                violations.iter().any(|it| it.contains(expected)),
                "{violations:?}"
            ),
        }
    }

    #[test]
    fn a_suffix_may_go_and_nothing_else() {
        let marks = [
            begin(0, 1),
            done(0, 1, false),
            begin(1, 1),
            begin(0, 2),
            done(0, 2, true),
            done(1, 1, false),
            begin(0, 3),
        ];
        check(&marks, &[(0, 2), (1, 1)], "");
        // Side by side with what survives: either order of the two is a commit order.
        check(&marks, &[(0, 2), (1, 0)], "");
        check(&marks, &[(0, 3), (1, 1)], "");
        check(
            &marks,
            &[(0, 1), (1, 1)],
            "batch 2 of lane 0 was synced and is lost",
        );
        check(&marks, &[(0, 3), (1, 0)], "a hole: batch 1 of lane 1");
        check(&marks, &[(0, 4), (1, 1)], "never begun");
    }

    /// Mutants: a row too many, one too few, one of a batch that is there in part.
    #[tokio::test]
    async fn a_state_that_no_lane_ever_had_is_seen() {
        let store = MemStore::new(&KEYSPACES);
        for number in 1..=40 {
            store
                .write(batch(0, number), Durability::Synced)
                .await
                .unwrap();
        }
        let mut violations = Vec::new();
        let left = survivors(&store, &mut violations).await.unwrap();
        assert_eq!((left.get(&0), violations.len()), (Some(&40), 0));
        let mut broken = WriteBatch::new();
        broken.delete(LOG, row_key(0, 30));
        broken.put(RETRY, row_key(0, 3), "back".into());
        broken.put(META, latest_key(0), "41".into());
        store.write(broken, Durability::Synced).await.unwrap();
        survivors(&store, &mut violations).await.unwrap();
        for expected in [
            "30 is gone",
            "03 is there again",
            "there in part",
            "41 is gone",
        ] {
            assert!(
                violations.iter().any(|it| it.contains(expected)),
                "{expected}: {violations:?}"
            );
        }
    }
}
