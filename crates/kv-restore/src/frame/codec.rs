//! Frames as bytes: a head of fixed size, then a body whose size the head bounds.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::{
    AbortCode, BODY_BYTES_MAX, Body, Frame, FrameError, VERSION,
    wire::{Reader, put_bytes, put_digest, put_estimate, put_option},
};
use crate::{Epoch, Position, Resume, SessionId, SnapshotId, SnapshotRef, StreamId};

const MAGIC: [u8; 2] = *b"KR";
// Magic, version, kind, session, attempt, length; then the checksum of all but itself.
const SUMMED_BYTES: usize = 2 + 1 + 1 + 16 + 4 + 4;
const HEAD_BYTES: usize = SUMMED_BYTES + 4;
const TEXT_BYTES_MAX: usize = 1_024;

mod kind {
    pub(super) const PULL: u8 = 1;
    pub(super) const OFFER: u8 = 2;
    pub(super) const CHUNK: u8 = 3;
    pub(super) const END: u8 = 4;
    pub(super) const ACK: u8 = 5;
    pub(super) const ALIVE: u8 = 6;
    pub(super) const ABORT: u8 = 7;
    pub(super) const INSTALLED: u8 = 8;
}

/// Appends a frame to `into`.
///
/// # Errors
///
/// [`FrameError::TooBig`] for a body that no reader would take; nothing is appended.
pub fn encode(frame: &Frame, into: &mut BytesMut) -> Result<(), FrameError> {
    let rows = encode_all_but_rows(frame, into)?;
    into.put_slice(&rows);
    Ok(())
}

/// Appends a frame but for the rows that end it, which are given back: they need not be
/// copied.
pub(crate) fn encode_all_but_rows(frame: &Frame, into: &mut BytesMut) -> Result<Bytes, FrameError> {
    let start = into.len();
    into.put_slice(&MAGIC);
    into.put_u8(VERSION);
    into.put_u8(kind_of(&frame.body));
    into.put_u128(frame.stream.session.0);
    into.put_u32(frame.stream.attempt);
    into.put_u64(0);
    put_body(into, &frame.body);
    let rows = match &frame.body {
        Body::Chunk { rows, .. } => rows.clone(),
        _ => Bytes::new(),
    };
    let length = into.len() - start - HEAD_BYTES + rows.len();
    if length > BODY_BYTES_MAX {
        into.truncate(start);
        return Err(FrameError::TooBig(
            u32::try_from(length).unwrap_or(u32::MAX),
        ));
    }
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    overwrite(into, start + SUMMED_BYTES - 4, length);
    let sum = checksum(into.get(start..).unwrap_or_default());
    let sum = crc32c::crc32c_append(sum, &rows);
    overwrite(into, start + SUMMED_BYTES, sum);
    Ok(rows)
}

fn overwrite(into: &mut BytesMut, at: usize, number: u32) {
    if let Some(place) = into.get_mut(at..at + 4) {
        place.copy_from_slice(&number.to_be_bytes());
    }
}

fn checksum(frame: &[u8]) -> u32 {
    let head = frame.get(..SUMMED_BYTES).unwrap_or_default();
    let body = frame.get(HEAD_BYTES..).unwrap_or_default();
    crc32c::crc32c_append(crc32c::crc32c(head), body)
}

/// Takes the first frame off `from`, if all of it is there.
///
/// At most a head and [`BODY_BYTES_MAX`] must be collected before it answers.
///
/// # Errors
///
/// Bytes that are no frame. The stream can't be trusted from there on.
pub fn decode(from: &mut BytesMut) -> Result<Option<Frame>, FrameError> {
    // Refuse as early as the bytes allow, so that an enemy's length reserves nothing.
    for (expected, found) in MAGIC.iter().zip(from.iter()) {
        if expected != found {
            return Err(FrameError::Magic);
        }
    }
    if let Some(version) = from.get(2).copied().filter(|it| *it != VERSION) {
        return Err(FrameError::Version(version));
    }
    let Some(head) = from.get(..HEAD_BYTES) else {
        return Ok(None);
    };
    let mut reader = Reader::new(Bytes::copy_from_slice(head));
    reader.take(3)?;
    let kind = reader.u8()?;
    let stream = StreamId {
        session: SessionId(reader.u128()?),
        attempt: reader.u32()?,
    };
    let length = reader.u32()?;
    let sum = reader.u32()?;
    let body = usize::try_from(length).unwrap_or(usize::MAX);
    if body > BODY_BYTES_MAX {
        return Err(FrameError::TooBig(length));
    }
    if from.len() < HEAD_BYTES + body {
        from.reserve(HEAD_BYTES + body - from.len());
        return Ok(None);
    }
    let mut frame = from.split_to(HEAD_BYTES + body);
    if checksum(&frame) != sum {
        return Err(FrameError::Checksum);
    }
    frame.advance(HEAD_BYTES);
    let mut reader = Reader::new(frame.freeze());
    let body = read_body(kind, &mut reader)?;
    reader.end()?;
    Ok(Some(Frame { stream, body }))
}

fn kind_of(body: &Body) -> u8 {
    match body {
        Body::Pull { .. } => kind::PULL,
        Body::Offer { .. } => kind::OFFER,
        Body::Chunk { .. } => kind::CHUNK,
        Body::End { .. } => kind::END,
        Body::Ack { .. } => kind::ACK,
        Body::Alive { .. } => kind::ALIVE,
        Body::Abort { .. } => kind::ABORT,
        Body::Installed { .. } => kind::INSTALLED,
    }
}

/// All of it but the rows of a chunk.
fn put_body(into: &mut BytesMut, body: &Body) {
    match body {
        Body::Pull {
            at,
            resume,
            credit,
            chunk_bytes,
        } => {
            put_snapshot(into, at);
            put_option(into, resume.as_ref(), put_resume);
            into.put_u64(*credit);
            into.put_u32(*chunk_bytes);
        }
        Body::Offer { totals, about } => {
            put_option(into, totals.as_ref(), put_digest);
            if let Some(about) = about {
                put_estimate(into, about);
            }
        }
        Body::Chunk { seq, crc, .. } => {
            into.put_u64(*seq);
            into.put_u32(*crc);
        }
        Body::End { seq, totals } => {
            into.put_u64(*seq);
            put_digest(into, totals);
        }
        Body::Ack {
            next,
            credit,
            limited,
        } => {
            into.put_u64(*next);
            into.put_u64(*credit);
            into.put_u8(u8::from(*limited));
        }
        Body::Alive { limited } => into.put_u8(u8::from(*limited)),
        Body::Abort { code, text } => {
            into.put_u8(code.number());
            put_bytes(into, shortened(text).as_bytes());
        }
        Body::Installed { snapshot } => into.put_u128(snapshot.0),
    }
}

fn read_body(kind: u8, reader: &mut Reader) -> Result<Body, FrameError> {
    Ok(match kind {
        kind::PULL => Body::Pull {
            at: Box::new(snapshot(reader)?),
            resume: reader.option(resume)?,
            credit: reader.u64()?,
            chunk_bytes: reader.u32()?,
        },
        kind::OFFER => Body::Offer {
            totals: reader.option(Reader::digest)?,
            about: match reader.rest().is_empty() {
                true => None,
                false => Some(reader.estimate()?),
            },
        },
        kind::CHUNK => {
            let (seq, crc) = (reader.u64()?, reader.u32()?);
            let rows = reader.rest();
            reader.take(u32::try_from(rows.len()).map_err(|_| FrameError::Truncated)?)?;
            Body::Chunk { seq, rows, crc }
        }
        kind::END => Body::End {
            seq: reader.u64()?,
            totals: reader.digest()?,
        },
        kind::ACK => Body::Ack {
            next: reader.u64()?,
            credit: reader.u64()?,
            limited: reader.flag()?,
        },
        kind::ALIVE => Body::Alive {
            limited: reader.flag()?,
        },
        kind::ABORT => Body::Abort {
            code: AbortCode::of(reader.u8()?),
            text: reader.text()?,
        },
        kind::INSTALLED => Body::Installed {
            snapshot: SnapshotId(reader.u128()?),
        },
        other => return Err(FrameError::Kind(other)),
    })
}

/// The text, cut where a character begins.
fn shortened(text: &str) -> &str {
    let end = text
        .char_indices()
        .map(|(at, _)| at)
        .take_while(|at| *at <= TEXT_BYTES_MAX)
        .last()
        .unwrap_or(0);
    if text.len() <= TEXT_BYTES_MAX {
        return text;
    }
    text.get(..end).unwrap_or_default()
}

fn put_snapshot(into: &mut BytesMut, at: &SnapshotRef) {
    put_bytes(into, at.space.as_bytes());
    into.put_u128(at.id.0);
    into.put_u64(at.epoch.0);
    into.put_u64(at.applied);
    into.put_u16(u16::try_from(at.keyspaces.len()).unwrap_or(u16::MAX));
    for keyspace in &at.keyspaces {
        put_bytes(into, keyspace.as_bytes());
    }
    put_option(into, at.totals.as_ref(), put_digest);
    put_bytes(into, &at.meta);
}

fn snapshot(reader: &mut Reader) -> Result<SnapshotRef, FrameError> {
    let at = SnapshotRef {
        space: reader.text()?,
        id: SnapshotId(reader.u128()?),
        epoch: Epoch(reader.u64()?),
        applied: reader.u64()?,
        keyspaces: (0..reader.u16()?)
            .map(|_| reader.text())
            .collect::<Result<_, _>>()?,
        totals: reader.option(Reader::digest)?,
        meta: reader.bytes()?,
    };
    match at.flaw() {
        Some(flaw) => Err(FrameError::Invalid(flaw)),
        None => Ok(at),
    }
}

fn put_resume(into: &mut BytesMut, resume: &Resume) {
    into.put_u16(resume.after.keyspace);
    put_bytes(into, &resume.after.key);
    put_digest(into, &resume.totals);
}

fn resume(reader: &mut Reader) -> Result<Resume, FrameError> {
    Ok(Resume {
        after: Position {
            keyspace: reader.u16()?,
            key: reader.bytes()?,
        },
        totals: reader.digest()?,
    })
}

impl SnapshotRef {
    /// The reference as bytes, to be carried by whatever announces snapshots.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        let mut bytes = BytesMut::new();
        bytes.put_u8(VERSION);
        put_snapshot(&mut bytes, self);
        let sum = crc32c::crc32c(&bytes);
        bytes.put_u32(sum);
        bytes.freeze()
    }

    /// Reads what [`to_bytes`](Self::to_bytes) wrote.
    ///
    /// # Errors
    ///
    /// Bytes that are no reference of this version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, FrameError> {
        let (content, sum) = bytes.split_last_chunk::<4>().ok_or(FrameError::Truncated)?;
        if crc32c::crc32c(content) != u32::from_be_bytes(*sum) {
            return Err(FrameError::Checksum);
        }
        let mut reader = Reader::new(Bytes::copy_from_slice(content));
        match reader.u8()? {
            VERSION => {}
            other => return Err(FrameError::Version(other)),
        }
        let at = snapshot(&mut reader)?;
        reader.end()?;
        Ok(at)
    }
}
