//! Receipt handles: what a client hands back, opaque, and not to be made by anyone else.
//!
//! A handle is `version, key id, identity, MAC` in base64url. The MAC is SipHash-2-4 with
//! 128 bits under a key of the broker's store: a keyed function made for short inputs, of
//! which nobody without the key finds one output. A handle names a delivery and nothing
//! that changes while it is out, so every handle of a delivery stays the same one.

use std::{fmt, hash::Hasher, hint::black_box};

use bytes::Bytes;
use data_encoding::BASE64URL_NOPAD;
use siphasher::sip128::{Hasher128, SipHasher24};

use crate::{CodecError, DeliveryIdentity, StoredValue, codec::reader::Reader};

const VERSION: u8 = 1;
const MAC_BYTES: usize = 16;
const HANDLE_BYTES: usize = 2 + DeliveryIdentity::BYTES + MAC_BYTES;
const TEXT_BYTES: usize = HANDLE_BYTES.div_ceil(3) * 4 - (3 - HANDLE_BYTES % 3) % 3;

/// The text of a receipt handle.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReceiptHandle(String);

impl ReceiptHandle {
    /// The text, as it goes to the client.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ReceiptHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<ReceiptHandle> for String {
    fn from(handle: ReceiptHandle) -> Self {
        handle.0
    }
}

/// Why a text is not a handle of this broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandleError {
    /// Not the form of a handle: cut off, or something else altogether.
    #[error("the receipt handle is malformed: hand it back exactly as it was received")]
    Malformed,
    /// A version of another program.
    #[error("the receipt handle has version {0}, which this broker does not know")]
    Version(u8),
    /// Signed with a key that this broker does not have, or no longer.
    #[error(
        "the receipt handle was signed with key {0}, which this broker does not have: it is from another broker, or too old"
    )]
    UnknownKey(u8),
    /// The signature is wrong: the text was changed or made up.
    #[error("the receipt handle is not one that this broker made")]
    Forged,
}

/// A secret that signs handles.
#[derive(Clone, PartialEq, Eq)]
pub struct HandleKey {
    /// Its number, carried in the handles that it signed.
    pub id: u8,
    /// The secret, drawn by the edge of the program.
    pub secret: [u8; 16],
}

impl fmt::Debug for HandleKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HandleKey({})", self.id)
    }
}

impl HandleKey {
    fn mac(&self, message: &[u8]) -> [u8; MAC_BYTES] {
        let mut hasher = SipHasher24::new_with_key(&self.secret);
        hasher.write(message);
        hasher.finish128().as_u128().to_be_bytes()
    }
}

/// The keys as they are stored: the one that signs, and the one that did before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandleKeys {
    /// Signs.
    pub current: HandleKey,
    /// Signed before; its handles are still good.
    pub previous: Option<HandleKey>,
}

impl StoredValue for HandleKeys {
    const WHAT: &'static str = "handle keys";

    fn write(&self, out: &mut Vec<u8>) {
        for key in [Some(&self.current), self.previous.as_ref()]
            .into_iter()
            .flatten()
        {
            out.push(key.id);
            out.extend(key.secret);
        }
    }

    fn read(reader: &mut Reader) -> Result<Self, CodecError> {
        let key = |reader: &mut Reader| {
            Ok(HandleKey {
                id: reader.u8()?,
                secret: reader.raw()?,
            })
        };
        Ok(Self {
            current: key(reader)?,
            previous: if reader.is_empty() {
                None
            } else {
                Some(key(reader)?)
            },
        })
    }
}

/// Makes handles and reads them back.
#[derive(Clone, Debug)]
pub struct HandleKeyring {
    keys: HandleKeys,
}

impl HandleKeyring {
    /// Signs with the current key, accepts both.
    #[must_use]
    pub fn new(keys: HandleKeys) -> Self {
        Self { keys }
    }

    /// The handle of a delivery.
    #[must_use]
    pub fn seal(&self, identity: &DeliveryIdentity) -> ReceiptHandle {
        let mut bytes = Vec::with_capacity(HANDLE_BYTES);
        bytes.extend([VERSION, self.keys.current.id]);
        identity.write(&mut bytes);
        let mac = self.keys.current.mac(&bytes);
        bytes.extend(mac);
        ReceiptHandle(BASE64URL_NOPAD.encode(&bytes))
    }

    /// The delivery of a handle.
    ///
    /// # Errors
    ///
    /// Why the text is not a handle of this broker. Nothing longer than a handle is
    /// looked at.
    pub fn open(&self, handle: &str) -> Result<DeliveryIdentity, HandleError> {
        if handle.len() != TEXT_BYTES {
            return Err(HandleError::Malformed);
        }
        let bytes = BASE64URL_NOPAD
            .decode(handle.as_bytes())
            .map_err(|_| HandleError::Malformed)?;
        let (signed, mac) = bytes
            .split_at_checked(HANDLE_BYTES - MAC_BYTES)
            .ok_or(HandleError::Malformed)?;
        let mut reader = Reader::new("receipt handle", Bytes::copy_from_slice(signed));
        let version = reader.u8().map_err(|_| HandleError::Malformed)?;
        if version != VERSION {
            return Err(HandleError::Version(version));
        }
        let key_id = reader.u8().map_err(|_| HandleError::Malformed)?;
        let key = [Some(&self.keys.current), self.keys.previous.as_ref()];
        let key = key.into_iter().flatten().find(|key| key.id == key_id);
        let key = key.ok_or(HandleError::UnknownKey(key_id))?;
        if !same(&key.mac(signed), mac) {
            return Err(HandleError::Forged);
        }
        DeliveryIdentity::read(&mut reader).map_err(|_| HandleError::Malformed)
    }
}

/// Compares without telling by its time how much is right.
fn same(left: &[u8], right: &[u8]) -> bool {
    let difference = left
        .iter()
        .zip(right)
        .fold(0, |difference, (left, right)| difference | (left ^ right));
    left.len() == right.len() && black_box(difference) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Generation, GroupId, Incarnation, Offset, QueueId, SubscriptionEpoch, SubscriptionQueue,
        TopicId,
    };

    fn key(id: u8) -> HandleKey {
        HandleKey {
            id,
            secret: [id; 16],
        }
    }

    fn keyring(current: u8, previous: Option<u8>) -> HandleKeyring {
        HandleKeyring::new(HandleKeys {
            current: key(current),
            previous: previous.map(key),
        })
    }

    fn identity() -> DeliveryIdentity {
        DeliveryIdentity {
            queue: SubscriptionQueue {
                group: GroupId::new(1),
                topic: TopicId::new(2),
                queue: QueueId::new(3),
            },
            epoch: SubscriptionEpoch::new(4),
            offset: Offset::new(5),
            incarnation: Incarnation::new(6),
            generation: Generation::new(7),
        }
    }

    #[test]
    fn a_handle_opens_to_the_identity_that_it_was_sealed_for() {
        let handle = keyring(1, None).seal(&identity());
        assert_eq!(handle.as_str().len(), TEXT_BYTES);
        assert_eq!(keyring(1, None).open(handle.as_str()), Ok(identity()));
    }

    #[test]
    fn a_handle_outlives_one_change_of_keys() {
        let handle = keyring(1, None).seal(&identity());
        assert_eq!(keyring(2, Some(1)).open(handle.as_str()), Ok(identity()));
        assert_eq!(
            keyring(3, Some(2)).open(handle.as_str()),
            Err(HandleError::UnknownKey(1))
        );
    }

    #[test]
    fn a_handle_with_any_bit_changed_is_refused() {
        let keyring = keyring(1, None);
        let handle = BASE64URL_NOPAD
            .decode(keyring.seal(&identity()).as_str().as_bytes())
            .unwrap();
        for bit in 0..handle.len() * 8 {
            let mut changed = handle.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            // Mutant: the MAC leaves out a field; changing that field is then accepted.
            assert!(
                keyring.open(&BASE64URL_NOPAD.encode(&changed)).is_err(),
                "bit {bit}"
            );
        }
    }

    #[test]
    fn a_handle_that_is_cut_or_foreign_is_malformed() {
        let keyring = keyring(1, None);
        let handle = String::from(keyring.seal(&identity()));
        for len in 0..handle.len() {
            assert_eq!(keyring.open(&handle[..len]), Err(HandleError::Malformed));
        }
        let ancestor = "0 1700000000000 60000 3 0 broker-a 2 17 4096";
        assert_eq!(keyring.open(ancestor), Err(HandleError::Malformed));
        assert_eq!(
            keyring.open(&"ä".repeat(TEXT_BYTES / 2)),
            Err(HandleError::Malformed)
        );
        assert_eq!(
            keyring.open(&"A".repeat(1 << 20)),
            Err(HandleError::Malformed)
        );
    }
}
