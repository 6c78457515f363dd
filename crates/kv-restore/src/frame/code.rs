//! Why one end gives a session up, as a number that another version understands.

use std::fmt;

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $name:ident = $number:literal, $text:literal;)+) => {
        /// Why one end gave a session up. Numbers are never used again.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum AbortCode {
            $($(#[doc = $doc])+ $name,)+
            /// A code of a later version.
            Other(u8),
        }

        impl AbortCode {
            /// All that this version knows.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            pub(crate) fn number(self) -> u8 {
                match self {
                    $(Self::$name => $number,)+
                    Self::Other(number) => number,
                }
            }

            pub(crate) fn of(number: u8) -> Self {
                match number {
                    $($number => Self::$name,)+
                    other => Self::Other(other),
                }
            }
        }

        impl fmt::Display for AbortCode {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$name => f.write_str($text),)+
                    Self::Other(number) => write!(f, "code {number}"),
                }
            }
        }
    };
}

codes! {
    /// There is no such session here.
    UnknownSession = 1, "unknown session";
    /// The other end broke the protocol.
    Protocol = 2, "protocol error";
    /// What was received is damaged.
    Corrupt = 3, "corrupt";
    /// The snapshot is not here, or no longer.
    SourceGone = 4, "the snapshot is gone";
    /// The snapshot can't be read.
    SourceError = 5, "the snapshot can't be read";
    /// The rows before the resumed start are not those that the receiver has.
    ResumeMismatch = 6, "other rows before the resumed start";
    /// Nobody waits for it any more.
    Cancelled = 7, "cancelled";
    /// A later request took its place.
    Superseded = 8, "superseded";
    /// This end shuts down.
    Closing = 9, "closing";
    /// Nothing was heard for too long.
    Idle = 10, "nothing heard for too long";
    /// It went on, but too slowly.
    TooSlow = 11, "too slow";
    /// The target could not take the rows.
    Staging = 12, "the target can't take the rows";
    /// The target could not be switched.
    Commit = 13, "the target can't be switched";
    /// This end's own work hangs.
    Stalled = 14, "stalled";
    /// Too much is going on here.
    Busy = 15, "busy";
    /// A newer content is installed.
    Obsolete = 16, "obsolete";
}
