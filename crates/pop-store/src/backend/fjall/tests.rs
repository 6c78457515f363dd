//! What fjall in particular does to a store.

use tempfile::TempDir;

use super::*;
use crate::{
    Durability::{Buffered, Synced},
    Keyspace, Store, WriteBatch,
};

const A: Keyspace = Keyspace::new("a");
const B: Keyspace = Keyspace::new("b");

fn open(folder: &TempDir) -> Result<FjallStore> {
    FjallStore::open(folder.path(), OpenOptions::new(&[A, B]))
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// Mutant: let a range delete name keys that the batch also puts. fjall gives both the same
/// sequence number, and which of them is read afterwards is chance.
#[tokio::test]
async fn a_range_delete_and_a_put_of_one_batch_leave_the_put() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder).unwrap();
    let mut batch = WriteBatch::new();
    for key in ["", "\0", "k1", "k2", "k3"] {
        batch.put(A, bytes(key), bytes("old"));
    }
    store.write(batch, Buffered).await.unwrap();
    let mut batch = WriteBatch::new();
    batch
        .delete_range(A, bytes(""), bytes("k3"))
        .delete_range(A, bytes("k1"), bytes("k2"))
        .put(A, bytes("k2"), bytes("new"))
        .put(B, bytes(""), bytes("empty"));
    store.write(batch, Synced).await.unwrap();
    store.close().await.unwrap();
    let store = open(&folder).unwrap();
    let entries = store.scan(A, Scan::all()).await.unwrap();
    let keys: Vec<_> = entries
        .iter()
        .map(|it| (&it.key[..], &it.value[..]))
        .collect();
    assert_eq!(keys, [(&b"k2"[..], &b"new"[..]), (b"k3", b"old")]);
    assert_eq!(store.get(B, b"").await.unwrap(), Some(bytes("empty")));
}
