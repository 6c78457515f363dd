//! The secret that lets a peer in.

use std::{fmt, fs, io, path::Path};

use ring::digest::{SHA256, digest};
use subtle::ConstantTimeEq;

/// Below this a token could be guessed.
const BYTES_MIN: usize = 16;
/// Must leave room in a hello.
const BYTES_MAX: usize = 1024;

/// A token. It is never printed, and compared in the same time whatever is in it.
#[derive(Clone)]
pub struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// A file that holds no token.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// It can't be read.
    #[error("token file {path} can't be read: {error}")]
    Read {
        /// The file.
        path: String,
        /// Why.
        error: io::Error,
    },
    /// What is in it is no token.
    #[error(
        "token file {0} must have one line of {BYTES_MIN} to {BYTES_MAX} printable characters: \
         make one with `head -c 32 /dev/urandom | base64 > FILE`"
    )]
    Content(String),
}

impl Token {
    /// Reads the token from the first and only line of a file.
    ///
    /// # Errors
    ///
    /// [`TokenError`], which says what a token is.
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let name = || path.display().to_string();
        let text = fs::read_to_string(path);
        let text = text.map_err(|error| TokenError::Read {
            path: name(),
            error,
        })?;
        let line = text.strip_suffix('\n').unwrap_or(&text);
        let line = line.strip_suffix('\r').unwrap_or(line);
        Self::parse(line).ok_or_else(|| TokenError::Content(name()))
    }

    fn parse(text: &str) -> Option<Self> {
        let printable = text.bytes().all(|it| it.is_ascii_graphic());
        let fits = (BYTES_MIN..=BYTES_MAX).contains(&text.len());
        (printable && fits).then(|| Self(text.to_owned()))
    }

    /// What goes into a hello.
    pub(super) fn secret(&self) -> &str {
        &self.0
    }

    /// Whether a peer has it. Digests are compared, so that neither the place of the first
    /// difference nor the length shows in the time it takes.
    pub(super) fn is(&self, said: &str) -> bool {
        let ours = digest(&SHA256, self.0.as_bytes());
        let theirs = digest(&SHA256, said.as_bytes());
        ours.as_ref().ct_eq(theirs.as_ref()).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_one_long_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let read = |text: &str| {
            fs::write(&path, text).unwrap();
            Token::read(&path)
        };
        let token = read("0123456789abcdef\n").unwrap();
        assert!(token.is("0123456789abcdef"));
        // Mutant: only as many bytes are compared as the peer sent.
        for other in ["", "0", "0123456789abcdef0", "0123456789abcdeF"] {
            assert!(!token.is(other), "{other}");
        }
        for wrong in [
            "",
            "short\n",
            "0123456789abcdef\n0123456789abcdef\n",
            "with spaces in between",
        ] {
            let error = read(wrong).unwrap_err().to_string();
            assert!(error.contains("make one with"), "{error}");
        }
        assert!(!format!("{token:?}").contains("0123"));
    }
}
