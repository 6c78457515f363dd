//! The journal's bytes: a record a write, each with its length and checksum.

use bytes::{Buf, BufMut, Bytes};
use pop_store::{Error, ErrorKind, Keyspace, Result, WriteBatch, merge::Group};

/// One group: length and checksum of the body, then its operations in order.
pub(crate) fn record(group: &Group) -> Vec<u8> {
    let mut body = Vec::new();
    for (keyspace, start, end) in group.range_deletes() {
        put_fields(&mut body, b'r', [keyspace.name().as_bytes(), start, end]);
    }
    for (keyspace, key, value) in group.operations() {
        let (kind, value) = value.map_or((b'd', &[][..]), |value| (b'p', value));
        put_fields(&mut body, kind, [keyspace.name().as_bytes(), key, value]);
    }
    let len = u32::try_from(body.len()).expect("a batch has at most 1 MiB");
    let mut record = Vec::with_capacity(8 + body.len());
    record.put_u32(len);
    record.put_u32(crc32c::crc32c(&body));
    record.extend(body);
    record
}

fn put_fields(body: &mut Vec<u8>, kind: u8, fields: [&[u8]; 3]) {
    body.put_u8(kind);
    for field in fields {
        body.put_u32(u32::try_from(field.len()).expect("a batch has at most 1 MiB"));
        body.put_slice(field);
    }
}

/// Takes the next whole record off `rest`; none if it ends before a whole one.
pub(crate) fn next_record(rest: &mut Bytes, keyspaces: &[Keyspace]) -> Result<Option<WriteBatch>> {
    let mut ahead = rest.clone();
    let (Ok(len), Ok(checksum)) = (ahead.try_get_u32(), ahead.try_get_u32()) else {
        return Ok(None);
    };
    if ahead.len() < len as usize {
        return Ok(None);
    }
    let body = ahead.split_to(len as usize);
    if crc32c::crc32c(&body) != checksum {
        // A torn record is the last one. Any other was whole once and is damaged now.
        return if ahead.is_empty() {
            Ok(None)
        } else {
            Err(corrupt())
        };
    }
    *rest = ahead;
    read_batch(body, keyspaces).ok_or_else(corrupt).map(Some)
}

fn read_batch(mut body: Bytes, keyspaces: &[Keyspace]) -> Option<WriteBatch> {
    let mut batch = WriteBatch::new();
    while let Ok(kind) = body.try_get_u8() {
        let mut field = || {
            let len = body.try_get_u32().ok()? as usize;
            (len <= body.len()).then(|| body.split_to(len))
        };
        let [name, key, value] = [field()?, field()?, field()?];
        let keyspace = *keyspaces.iter().find(|it| it.name().as_bytes() == name)?;
        match kind {
            b'r' => batch.delete_range(keyspace, key, value),
            b'd' => batch.delete(keyspace, key),
            b'p' => batch.put(keyspace, key, value),
            _ => return None,
        };
    }
    Some(batch)
}

fn corrupt() -> Error {
    Error::new(ErrorKind::Corrupt, super::NAME, "open")
        .with_detail("a record of the journal is damaged: restore it from a backup")
}
