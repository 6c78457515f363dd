//! What the workload says into the record: what it asks, and what it was promised.

use std::{
    fs::{File, OpenOptions},
    io::Write,
    path::Path,
};

use anyhow::{Context, Result};

/// A line of the workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// Of the workload on the store.
    Raw(RawMark),
    /// Of the workload on the broker.
    Broker(BrokerMark),
    /// Of the workload that replaces contents.
    Replace(ReplaceMark),
}

/// What happens to a numbered batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RawMark {
    /// From here on it may be there.
    Begin { lane: u64, number: u64 },
    /// It was answered; from here on it must be there if it was synced.
    Done {
        lane: u64,
        number: u64,
        synced: bool,
    },
}

/// What happens to a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BrokerMark {
    /// From here on it may be there.
    Sending { id: String },
    /// It was answered OK: it must come.
    Sent { id: String },
    /// From here on it may be gone.
    Acking { id: String },
    /// It was answered as synced: it must not come.
    Acked { id: String },
}

/// What happens to a numbered content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplaceMark {
    /// From here on it may be there after this many of its parts, to be gone on with.
    Keeping { version: u64, parts: u64 },
    /// It was answered: from here on it must be, with at least as many.
    Kept { version: u64, parts: u64 },
    /// From here on what was kept of it may be gone.
    Ending { version: u64 },
    /// From here on it may be in use.
    Publishing { version: u64 },
    /// It was answered; from here on it must be in use, or a later one.
    Published { version: u64 },
}

impl Mark {
    fn line(&self) -> String {
        match self {
            Self::Raw(RawMark::Begin { lane, number }) => format!("begin {lane} {number}"),
            Self::Raw(RawMark::Done {
                lane,
                number,
                synced,
            }) => format!("done {lane} {number} {synced}"),
            Self::Replace(mark) => match mark {
                ReplaceMark::Keeping { version, parts } => format!("keeping {version} {parts}"),
                ReplaceMark::Kept { version, parts } => format!("kept {version} {parts}"),
                ReplaceMark::Ending { version } => format!("ending {version}"),
                ReplaceMark::Publishing { version } => format!("publishing {version}"),
                ReplaceMark::Published { version } => format!("published {version}"),
            },
            Self::Broker(BrokerMark::Sending { id }) => format!("sending {id}"),
            Self::Broker(BrokerMark::Sent { id }) => format!("sent {id}"),
            Self::Broker(BrokerMark::Acking { id }) => format!("acking {id}"),
            Self::Broker(BrokerMark::Acked { id }) => format!("acked {id}"),
        }
    }

    /// Reads a line.
    ///
    /// # Errors
    ///
    /// If it is none of ours.
    pub(crate) fn parse(line: &[u8]) -> Result<Self> {
        let line = std::str::from_utf8(line)?.trim_end();
        Self::parse_words(line).with_context(|| format!("{line:?} is no mark"))
    }

    fn parse_words(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let word = words.next()?;
        let mut next = || words.next();
        Some(match word {
            "begin" => Self::Raw(RawMark::Begin {
                lane: next()?.parse().ok()?,
                number: next()?.parse().ok()?,
            }),
            "done" => Self::Raw(RawMark::Done {
                lane: next()?.parse().ok()?,
                number: next()?.parse().ok()?,
                synced: next()?.parse().ok()?,
            }),
            "keeping" | "kept" | "ending" | "publishing" | "published" => {
                let version = next()?.parse().ok()?;
                let mut parts = || next()?.parse().ok();
                Self::Replace(match word {
                    "keeping" => ReplaceMark::Keeping {
                        version,
                        parts: parts()?,
                    },
                    "kept" => ReplaceMark::Kept {
                        version,
                        parts: parts()?,
                    },
                    "ending" => ReplaceMark::Ending { version },
                    "publishing" => ReplaceMark::Publishing { version },
                    _ => ReplaceMark::Published { version },
                })
            }
            word => {
                let id = next()?.to_owned();
                Self::Broker(match word {
                    "sending" => BrokerMark::Sending { id },
                    "sent" => BrokerMark::Sent { id },
                    "acking" => BrokerMark::Acking { id },
                    "acked" => BrokerMark::Acked { id },
                    _ => return None,
                })
            }
        })
    }
}

/// Where the marks go.
#[derive(Debug)]
pub(crate) struct Marks(File);

impl Marks {
    /// Opens the file that the recorder listens to.
    ///
    /// # Errors
    ///
    /// If it can't be opened.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        Ok(Self(file.with_context(|| {
            format!("{} can't be opened", path.display())
        })?))
    }

    /// Says it. One write, so that it is one event.
    ///
    /// # Errors
    ///
    /// If it can't be written.
    pub(crate) fn add(&self, mark: &Mark) -> Result<()> {
        (&self.0).write_all(format!("{}\n", mark.line()).as_bytes())?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mark_reads_back() {
        let id = || "lane-1-2".to_owned();
        let marks = [
            Mark::Raw(RawMark::Begin { lane: 1, number: 2 }),
            Mark::Raw(RawMark::Done {
                lane: 1,
                number: 2,
                synced: true,
            }),
            Mark::Broker(BrokerMark::Sending { id: id() }),
            Mark::Broker(BrokerMark::Sent { id: id() }),
            Mark::Broker(BrokerMark::Acking { id: id() }),
            Mark::Broker(BrokerMark::Acked { id: id() }),
            Mark::Replace(ReplaceMark::Keeping {
                version: 3,
                parts: 1,
            }),
            Mark::Replace(ReplaceMark::Kept {
                version: 3,
                parts: 1,
            }),
            Mark::Replace(ReplaceMark::Ending { version: 3 }),
            Mark::Replace(ReplaceMark::Publishing { version: 4 }),
            Mark::Replace(ReplaceMark::Published { version: 4 }),
        ];
        for mark in marks {
            assert_eq!(Mark::parse(mark.line().as_bytes()).unwrap(), mark);
        }
        assert!(Mark::parse(b"begin 1").is_err());
    }
}
