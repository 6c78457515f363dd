//! Each row alone and against the others.

use pop_store::MemStore;

use super::*;
use crate::space::{KEYSPACES, snapshot_ref};

pub(crate) fn seal(id: u128, epoch: u64, handover: Option<Receipt>) -> (Seal, SpaceMeta) {
    let mut meta = SpaceMeta::copy("memory", 0);
    meta.handover = handover.map(Receipt::digest);
    let at = snapshot_ref(SnapshotId(id), Epoch(epoch), &meta);
    (Seal::of(&at, kv_restore::Digest::default()), meta)
}

fn mark() -> Retired {
    Retired {
        to: "elsewhere".into(),
        at_unix_ms: 1_700_000_000_000,
        epoch: 4,
        snapshot: SnapshotId(7),
        receipt: [5; 16],
    }
}

// Mutants: a mark is read before what was installed over it; what was installed is served
// without being adopted; a handover is adopted like a copy.
#[test]
fn what_was_installed_last_decides() {
    let none = Owner::default();
    assert_eq!(decide(none, None, None), Standing::Own(none));
    let retired = decide(none, Some(mark()), None);
    assert_eq!(retired.admit(), Err(NotOwner::from(&mark())));
    for marked in [None, Some(mark())] {
        let copy = decide(none, marked.clone(), Some(seal(7, 3, None)));
        let adopt = Owner {
            epoch: 3,
            adopted: Some(SnapshotId(7)),
        };
        let admission = copy.admit().unwrap();
        assert_eq!((admission.epoch, admission.adopt), (3, Some(adopt)));
        let handed = decide(none, marked, Some(seal(7, 3, Some(Receipt([1; 16])))));
        let snapshot = SnapshotId(7);
        assert_eq!(handed.admit(), Err(NotOwner::Awaiting { snapshot }));
    }
    let adopted = Owner {
        epoch: 3,
        adopted: Some(SnapshotId(7)),
    };
    let own = decide(adopted, None, Some(seal(7, 3, Some(Receipt([1; 16])))));
    assert_eq!(own, Standing::Own(adopted));
    let gone = decide(adopted, Some(mark()), Some(seal(7, 3, None)));
    assert_eq!(gone, Standing::Retired(Box::new(mark()), Epoch(3)));
    // What is there is not what the owner of epoch 4 has.
    assert_eq!((gone.epoch(), gone.content_epoch()), (Epoch(4), Epoch(3)));
}

#[test]
fn a_retired_folder_says_where_since_when_and_how_to_undo() {
    let text = NotOwner::from(&mark()).to_string();
    for part in [
        "elsewhere",
        "2023-11-14T22:13:20Z",
        "handover undo",
        "handover finish",
        "05050505",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

async fn new_store_with(seal: &(Seal, SpaceMeta)) -> Arc<dyn Store> {
    let store = MemStore::new(&KEYSPACES);
    store_with(&store, seal).await;
    Arc::new(store)
}

/// Fills a store, as a session does.
pub(crate) async fn store_with(store: &MemStore, seal: &(Seal, SpaceMeta)) {
    let from = MemStore::new(&KEYSPACES);
    let to: Arc<dyn Store> = Arc::new(store.clone());
    let options = kv_restore::Options::default();
    let dumper = kv_restore::Dumper::new(
        options,
        kv_restore::Admission::default(),
        kv_restore::Limiter::none(),
    );
    let at = snapshot_ref(seal.0.snapshot, seal.0.epoch, &seal.1);
    let snapshot = from.snapshot().await.unwrap();
    let _offer = dumper.offer(at.clone(), &from, snapshot).unwrap();
    let source = kv_restore::PeerId::new("source");
    let transport = kv_restore::transport::LocalTransport::new(kv_restore::PeerId::new("target"));
    transport.add(source.clone(), dumper);
    let restorer = kv_restore::Restorer::new(
        Target::new(Arc::clone(&to)).with_seals(SEALS),
        Arc::new(transport),
        kv_restore::RestorerOptions::new(kv_restore::Admission::new(1), Arc::new(|| 3)),
        tokio::runtime::Handle::current(),
    );
    let session = restorer.restore(at, &[source]).unwrap();
    session.outcome().await.unwrap();
}

// Catches: any receipt is taken, the second time too; the epoch stays that of before; what was
// finished before its command was killed is an error.
#[tokio::test]
async fn what_was_handed_over_begins_with_its_receipt_alone() {
    let receipt = Receipt([9; 16]);
    let store = new_store_with(&seal(7, 3, Some(receipt))).await;
    let wrong = finish(&store, Some(Receipt([8; 16]))).await.unwrap_err();
    assert!(wrong.to_string().contains("not the receipt"), "{wrong}");
    assert!(standing(&store).await.unwrap().admit().is_err());
    assert_eq!(finish(&store, Some(receipt)).await.unwrap(), Step::Done);
    for receipt in [Some(receipt), None] {
        let again = finish(&store, receipt).await.unwrap();
        assert_eq!(again, Step::DoneBefore);
    }
    let wrong = finish(&store, Some(Receipt([8; 16]))).await.unwrap_err();
    assert!(wrong.to_string().contains("not the receipt"), "{wrong}");
    let admission = standing(&store).await.unwrap().admit().unwrap();
    assert_eq!((admission.epoch, admission.adopt), (3, None));
}

// Mutant: undo goes back to the epoch of before, and what the other owner has is not newer.
#[tokio::test]
async fn a_folder_that_is_taken_back_is_ahead_of_the_one_that_had_it() {
    let store: Arc<dyn Store> = Arc::new(MemStore::new(&KEYSPACES));
    let error = undo(&store).await.unwrap_err();
    assert!(error.to_string().contains("not handed over"), "{error}");
    retire(store.as_ref(), &mark()).await.unwrap();
    assert!(standing(&store).await.unwrap().admit().is_err());
    assert_eq!(undo(&store).await.unwrap(), (5, Step::Done));
    let admission = standing(&store).await.unwrap().admit().unwrap();
    assert_eq!(admission.epoch, 5);
    assert_eq!(undo(&store).await.unwrap(), (5, Step::DoneBefore));
    // The next handover is taken back by itself.
    let next = Retired { epoch: 6, ..mark() };
    retire(store.as_ref(), &next).await.unwrap();
    assert_eq!(undo(&store).await.unwrap(), (7, Step::Done));
    assert_eq!(undo(&store).await.unwrap(), (7, Step::DoneBefore));
}

// Catches: a folder that has its own data, or a copy, for the owner of what was handed over;
// an undo that is remembered of a content that was replaced.
#[tokio::test]
async fn a_copy_was_neither_finished_nor_taken_back() {
    let store = new_store_with(&seal(7, 3, None)).await;
    let not_undone = async || {
        let error = undo(&store).await.unwrap_err();
        assert!(error.to_string().contains("not handed over"), "{error}");
        let error = finish(&store, None).await.unwrap_err();
        assert!(
            error.to_string().contains("waits for no receipt"),
            "{error}"
        );
    };
    not_undone().await;
    retire(store.as_ref(), &mark()).await.unwrap();
    let owner = standing(&store).await.unwrap().admit().unwrap().adopt;
    let adopt = async || {
        let mut batch = WriteBatch::new();
        put_owner(&mut batch, &owner.unwrap());
        store.write(batch, Durability::Synced).await.unwrap();
    };
    adopt().await;
    not_undone().await;
    let handed = Retired { epoch: 2, ..mark() };
    retire(store.as_ref(), &handed).await.unwrap();
    let error = finish(&store, None).await.unwrap_err();
    assert!(
        error.to_string().contains("handed over to elsewhere"),
        "{error}"
    );
    assert_eq!(undo(&store).await.unwrap(), (3, Step::Done));
    assert_eq!(undo(&store).await.unwrap(), (3, Step::DoneBefore));
    // As after another copy of the same epoch.
    adopt().await;
    not_undone().await;
}
