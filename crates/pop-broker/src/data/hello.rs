//! What is said on the data port before rows flow: messages of a length and JSON.
//!
//! The first bytes name protocol and version, so that whatever else comes to the port is
//! recognized by them and read no further.

use std::{io, time::Duration};

use kv_restore::{Digest, Epoch, SnapshotId, SnapshotRef};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The version that is spoken, and the only one.
pub(super) const VERSION: u32 = 1;
const MAGIC: [u8; 4] = *b"POPD";

/// What a peer begins with. Not `Debug`: it holds a secret.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Hello {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) token: Option<String>,
    pub(super) ask: Ask,
}

/// What it wants.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) enum Ask {
    /// A snapshot of now, held by this connection; or that one, if it is still kept.
    Snapshot {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wanted: Option<String>,
    },
    /// Rows: from here on it is a channel of `kv-restore`.
    Fetch,
    /// The same as a snapshot, and nothing is served here any more.
    Handover {
        /// Where the data goes, for people.
        to: String,
    },
    /// What proves that this broker gave that snapshot away for good.
    Receipt { snapshot: String },
}

/// What the holder of a snapshot goes on to say.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) enum Say {
    /// It is there.
    Alive,
    /// Of a handover: all is here and verified, let go of it.
    Retire { totals: String },
    /// The snapshot is not needed any more.
    Done,
}

/// What it is answered.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) enum Reply {
    /// To [`Ask::Fetch`].
    Ready,
    /// To [`Ask::Snapshot`] and [`Ask::Handover`].
    Snapshot(Reference),
    /// To [`Say::Retire`] and [`Ask::Receipt`].
    Receipt(String),
    /// To anything.
    Refused { why: Why, text: String },
}

/// Why something is refused, for a program.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Why {
    /// The token is missing or wrong.
    Token,
    /// Another version of the port.
    Version,
    /// Too much is going on; later it may work.
    Busy,
    /// It can't be here.
    Impossible,
    /// That handover was begun and taken back: this side serves, and goes on from there.
    TakenBack,
    /// This side failed.
    Failed,
}

/// A snapshot as it is named on the port.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Reference {
    space: String,
    id: String,
    epoch: u64,
    applied: u64,
    keyspaces: Vec<String>,
    meta: String,
}

impl Reference {
    pub(super) fn of(at: &SnapshotRef) -> Self {
        Self {
            space: at.space.clone(),
            id: at.id.to_string(),
            epoch: at.epoch.0,
            applied: at.applied,
            keyspaces: at.keyspaces.clone(),
            meta: data_encoding::HEXLOWER.encode(&at.meta),
        }
    }

    /// The snapshot, if all of it can be read.
    pub(super) fn read(self) -> Option<SnapshotRef> {
        let keyspaces: Vec<_> = self.keyspaces.iter().map(String::as_str).collect();
        let meta = data_encoding::HEXLOWER.decode(self.meta.as_bytes()).ok()?;
        let at = SnapshotRef::new(&self.space, snapshot_id(&self.id)?, &keyspaces);
        Some(
            at.at(Epoch(self.epoch), self.applied)
                .with_meta(meta.into()),
        )
    }
}

/// Reads the name of a snapshot.
pub(super) fn snapshot_id(text: &str) -> Option<SnapshotId> {
    u128::from_str_radix(text, 16).ok().map(SnapshotId)
}

/// How totals are said when both sides have to mean the same.
pub(super) fn totals(digest: &Digest) -> String {
    digest.to_string()
}

/// What begins a connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Opening {
    /// This version.
    Ours,
    /// Another one.
    Version(u32),
    /// Something else altogether.
    Nonsense,
    /// The end of it, before anything was said.
    Nothing,
}

/// Reads what begins a connection: as many bytes as agree, so that a peer that speaks
/// something else is not waited for.
pub(super) async fn opening(read: &mut (impl AsyncRead + Unpin)) -> io::Result<Opening> {
    for (at, expected) in MAGIC.into_iter().enumerate() {
        match read.read_u8().await {
            Ok(said) if said == expected => {}
            Ok(_) => return Ok(Opening::Nonsense),
            Err(_) if at == 0 => return Ok(Opening::Nothing),
            Err(error) => return Err(error),
        }
    }
    Ok(match read.read_u32().await? {
        VERSION => Opening::Ours,
        other => Opening::Version(other),
    })
}

/// The first bytes of a connection.
pub(super) fn opening_bytes() -> [u8; 8] {
    let mut bytes = [0; 8];
    let (magic, version) = bytes.split_at_mut(4);
    magic.copy_from_slice(&MAGIC);
    version.copy_from_slice(&VERSION.to_be_bytes());
    bytes
}

/// Reads a message of at most so many bytes.
pub(super) async fn read<T: DeserializeOwned>(
    stream: &mut (impl AsyncRead + Unpin),
    bytes_max: u32,
) -> io::Result<T> {
    let length = stream.read_u32().await?;
    if length > bytes_max {
        return Err(invalid(format!("a message of {length} bytes")));
    }
    // Grows as bytes come: a length alone takes no memory.
    let mut bytes = Vec::new();
    let mut limited = stream.take(length.into());
    limited.read_to_end(&mut bytes).await?;
    if u32::try_from(bytes.len()) != Ok(length) {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    serde_json::from_slice(&bytes).map_err(|error| invalid(error.to_string()))
}

/// Writes a message.
pub(super) async fn write<T: Serialize>(
    stream: &mut (impl AsyncWrite + Unpin),
    message: &T,
) -> io::Result<()> {
    let json = serde_json::to_vec(message).map_err(|error| invalid(error.to_string()))?;
    let length = u32::try_from(json.len()).map_err(|_| invalid("too long".into()))?;
    let mut bytes = Vec::with_capacity(json.len() + 4);
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(&json);
    stream.write_all(&bytes).await?;
    stream.flush().await
}

/// Ends what takes too long.
pub(super) async fn within<T>(
    limit: Duration,
    work: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    match tokio::time::timeout(limit, work).await {
        Ok(outcome) => outcome,
        Err(_) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("nothing within {limit:?}"),
        )),
    }
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_reference_comes_back_as_it_was_sent() {
        let at = SnapshotRef::new("broker", SnapshotId(7), &["meta", "log"]);
        let at = at.at(Epoch(3), 9).with_meta("meta".into());
        let mut bytes = Vec::new();
        write(&mut bytes, &Reply::Snapshot(Reference::of(&at)))
            .await
            .unwrap();
        let Reply::Snapshot(read) = read(&mut bytes.as_slice(), 4_096).await.unwrap() else {
            panic!("another reply");
        };
        assert_eq!(read.read(), Some(at));
    }

    // Mutant: the length is believed, and 4 GiB are waited for or allocated.
    #[tokio::test]
    async fn nonsense_is_recognized_by_its_first_bytes() {
        for (bytes, expected) in [
            (&b"POPD\0\0\0\x01"[..], Opening::Ours),
            (b"POPD\0\0\0\x07", Opening::Version(7)),
            (b"G", Opening::Nonsense),
            (b"POPX", Opening::Nonsense),
            (b"\x16\x03\x01", Opening::Nonsense),
            (b"", Opening::Nothing),
        ] {
            assert_eq!(opening(&mut &*bytes).await.unwrap(), expected);
        }
        assert!(opening(&mut &b"POP"[..]).await.is_err());
        let long = [&[0xff; 4][..], b"{}"].concat();
        assert!(read::<Say>(&mut long.as_slice(), 4_096).await.is_err());
        let cut = [&[0, 0, 0, 9][..], b"\"alive"].concat();
        assert!(read::<Say>(&mut cut.as_slice(), 4_096).await.is_err());
    }

    #[test]
    fn the_opening_keeps_its_bytes() {
        assert_eq!(&opening_bytes(), b"POPD\0\0\0\x01");
    }
}
