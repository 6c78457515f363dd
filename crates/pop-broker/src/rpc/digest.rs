//! Digests of bodies, where a producer sends one. No official client does; consumers get
//! MD5, the only form that all of them read alike.

use data_encoding::HEXUPPER;
use md5::{Digest as _, Md5};
use pop_proto::v2::{Digest, DigestType};

use crate::MessageError;

/// Checks the body against the producer's digest.
///
/// SHA-1 is let through unchecked: nobody sends it, and it is not worth a dependency.
pub(super) fn check(digest: Option<&Digest>, body: &[u8]) -> Result<(), MessageError> {
    let Some(digest) = digest.filter(|digest| !digest.checksum.is_empty()) else {
        return Ok(());
    };
    let text = digest.checksum.as_str();
    let same = match DigestType::try_from(digest.r#type) {
        Ok(DigestType::Md5) => {
            let computed: [u8; 16] = Md5::digest(body).into();
            text.eq_ignore_ascii_case(&HEXUPPER.encode(&computed))
        }
        Ok(DigestType::Crc32) => {
            // Clients write it as hexadecimal, with and without zeros in front, or decimal.
            let computed = crc32(body);
            u32::from_str_radix(text, 16) == Ok(computed) || text.parse() == Ok(computed)
        }
        Ok(DigestType::Sha1 | DigestType::Unspecified) | Err(_) => true,
    };
    if same {
        Ok(())
    } else {
        Err(MessageError::Corrupted)
    }
}

/// The digest of a delivered body.
pub(super) fn md5(digest: &[u8; 16]) -> Digest {
    Digest {
        r#type: DigestType::Md5.into(),
        checksum: HEXUPPER.encode(digest),
    }
}

/// CRC-32 as in zip and Ethernet.
fn crc32(bytes: &[u8]) -> u32 {
    let remainder = bytes.iter().fold(u32::MAX, |remainder, byte| {
        let entry = (remainder ^ u32::from(*byte)) & 0xFF;
        let entry = usize::try_from(entry).unwrap_or_default();
        CRC32.get(entry).copied().unwrap_or_default() ^ (remainder >> 8)
    });
    !remainder
}

const CRC32: [u32; 256] = {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut remainder = index;
        let mut bit = 0;
        while bit < 8 {
            let low = remainder & 1;
            remainder = (remainder >> 1) ^ (0xEDB8_8320 * low);
            bit += 1;
        }
        #[expect(clippy::indexing_slicing, reason = "computed while it compiles")]
        {
            table[index as usize] = remainder;
        }
        index += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(kind: DigestType, checksum: &str) -> Digest {
        Digest {
            r#type: kind.into(),
            checksum: checksum.into(),
        }
    }

    #[test]
    fn a_body_must_match_the_digest_that_came_with_it() {
        let body = b"123456789";
        for (kind, checksum) in [
            (DigestType::Md5, "25F9E794323B453885F5181F1B624D0B"),
            (DigestType::Md5, "25f9e794323b453885f5181f1b624d0b"),
            (DigestType::Crc32, "CBF43926"),
            (DigestType::Crc32, "3421780262"),
            (DigestType::Unspecified, ""),
        ] {
            assert_eq!(check(Some(&digest(kind, checksum)), body), Ok(()));
        }
        for (kind, checksum) in [
            (DigestType::Md5, "25F9E794323B453885F5181F1B624D0C"),
            (DigestType::Md5, "no hex"),
            (DigestType::Crc32, "CBF43927"),
            (DigestType::Crc32, "-1"),
        ] {
            assert_eq!(
                check(Some(&digest(kind, checksum)), body),
                Err(MessageError::Corrupted),
                "{checksum}"
            );
        }
    }
}
