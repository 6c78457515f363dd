//! Reading one value, with its key named when it can't be decoded.

use bytes::Bytes;
use pop_model::{CodecError, StoredValue};

use crate::{Error, ErrorKind, Keyspace, Result, Store};

/// The value at `key`.
///
/// # Errors
///
/// The store's, or [`ErrorKind::Corrupt`] naming the key.
pub async fn get_value<V: StoredValue>(
    store: &dyn Store,
    keyspace: Keyspace,
    key: &Bytes,
) -> Result<Option<V>> {
    let Some(value) = store.get(keyspace, key).await? else {
        return Ok(None);
    };
    V::decode(value)
        .map(Some)
        .map_err(|error| corrupt(store, keyspace, key, error))
}

/// A row that can't be decoded, and why.
#[derive(Clone, Debug)]
pub struct Undecodable {
    /// Its key.
    pub key: Bytes,
    /// What lies there.
    pub value: Bytes,
    /// What is wrong with it.
    pub error: CodecError,
}

impl Undecodable {
    /// The error for whoever can't go on without the row.
    pub(super) fn corrupt(self, store: &dyn Store, keyspace: Keyspace) -> Error {
        corrupt(store, keyspace, &self.key, self.error)
    }
}

/// The error for a row that can't be decoded.
pub(super) fn corrupt(
    store: &dyn Store,
    keyspace: Keyspace,
    key: &[u8],
    error: CodecError,
) -> Error {
    Error::new(ErrorKind::Corrupt, store.name(), "decode")
        .with_detail(format!(
            "keyspace {keyspace}, key {}: {error}",
            key.escape_ascii()
        ))
        .with_source(error)
}
