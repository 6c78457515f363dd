//! A number that is stored alone.

use bytes::BufMut;
use pop_model::{CodecError, MetaKey, StoredKey, StoredValue, codec::reader::Reader};

use super::{META, get_value};
use crate::{Result, Store};

/// What counters, ids behind names, marks and floors are stored as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number(pub(super) u64);

impl StoredValue for Number {
    const WHAT: &'static str = "number";

    fn write(&self, out: &mut Vec<u8>) {
        out.put_u64(self.0);
    }

    fn read(reader: &mut Reader) -> Result<Self, CodecError> {
        reader.u64().map(Self)
    }

    fn size_hint(&self) -> usize {
        8
    }
}

/// The number at `key`.
pub(super) async fn number(store: &dyn Store, key: &MetaKey) -> Result<Option<u64>> {
    let number: Option<Number> = get_value(store, META, &key.encode()).await?;
    Ok(number.map(|number| number.0))
}
