//! Events as bytes: a byte for the kind, then the fields, numbers in eight bytes, texts and
//! data after their length.

use std::ops::Range;

use crate::{Event, SyncCall};

/// Appends `event` to `log`.
pub fn encode(event: &Event<&[u8]>, log: &mut Vec<u8>) {
    let out = &mut Encoder(log);
    let _ = match event {
        Event::Open {
            fd,
            path,
            create,
            truncate,
            sync,
        } => {
            let flags = u8::from(*create) | u8::from(*truncate) << 1 | u8::from(*sync) << 2;
            out.byte(1).number(*fd).byte(flags).data(path.as_bytes())
        }
        Event::Close { fd } => out.byte(2).number(*fd),
        Event::Dup { old, new } => out.byte(3).number(*old).number(*new),
        Event::Write { fd, offset, data } => out.byte(4).number(*fd).number(*offset).data(data),
        Event::Zero { fd, offset, length } => {
            out.byte(5).number(*fd).number(*offset).number(*length)
        }
        Event::SetLength { fd, length } => out.byte(6).number(*fd).number(*length),
        Event::Grow { fd, length } => out.byte(7).number(*fd).number(*length),
        Event::SyncBegin { id, fd, call } => {
            let call = CALLS.iter().position(|it| it == call).unwrap_or_default();
            out.byte(8).number(*id).number(*fd).number(call as u64)
        }
        Event::SyncEnd { id } => out.byte(9).number(*id),
        Event::Rename { from, to } => out.byte(10).data(from.as_bytes()).data(to.as_bytes()),
        Event::Unlink { path } => out.byte(11).data(path.as_bytes()),
        Event::MakeFolder { path } => out.byte(12).data(path.as_bytes()),
        Event::RemoveFolder { path } => out.byte(13).data(path.as_bytes()),
        Event::Link { from, to } => out.byte(14).data(from.as_bytes()).data(to.as_bytes()),
        Event::Mark { data } => out.byte(15).data(data),
        Event::Blind { what } => out.byte(16).data(what.as_bytes()),
    };
}

const CALLS: [SyncCall; 3] = [SyncCall::Full, SyncCall::Data, SyncCall::Range];

struct Encoder<'a>(&'a mut Vec<u8>);

impl Encoder<'_> {
    fn byte(&mut self, byte: u8) -> &mut Self {
        self.0.push(byte);
        self
    }

    fn number(&mut self, number: u64) -> &mut Self {
        self.0.extend_from_slice(&number.to_be_bytes());
        self
    }

    fn data(&mut self, data: &[u8]) -> &mut Self {
        self.number(data.len() as u64);
        self.0.extend_from_slice(data);
        self
    }
}

/// Reads the event at `start` of `log`, and where the next one begins. `None` at the end,
/// and for an event that was cut short.
#[must_use]
pub fn decode(log: &[u8], start: usize) -> Option<(Event<Range<usize>>, usize)> {
    let input = &mut Decoder { log, at: start };
    let event = match input.byte()? {
        1 => {
            let fd = input.number()?;
            let flags = input.byte()?;
            Event::Open {
                fd,
                path: input.text()?,
                create: flags & 1 != 0,
                truncate: flags & 2 != 0,
                sync: flags & 4 != 0,
            }
        }
        2 => Event::Close {
            fd: input.number()?,
        },
        3 => Event::Dup {
            old: input.number()?,
            new: input.number()?,
        },
        4 => Event::Write {
            fd: input.number()?,
            offset: input.number()?,
            data: input.data()?,
        },
        5 => Event::Zero {
            fd: input.number()?,
            offset: input.number()?,
            length: input.number()?,
        },
        6 => Event::SetLength {
            fd: input.number()?,
            length: input.number()?,
        },
        7 => Event::Grow {
            fd: input.number()?,
            length: input.number()?,
        },
        8 => Event::SyncBegin {
            id: input.number()?,
            fd: input.number()?,
            call: *CALLS.get(usize::try_from(input.number()?).ok()?)?,
        },
        9 => Event::SyncEnd {
            id: input.number()?,
        },
        10 => Event::Rename {
            from: input.text()?,
            to: input.text()?,
        },
        11 => Event::Unlink {
            path: input.text()?,
        },
        12 => Event::MakeFolder {
            path: input.text()?,
        },
        13 => Event::RemoveFolder {
            path: input.text()?,
        },
        14 => Event::Link {
            from: input.text()?,
            to: input.text()?,
        },
        15 => Event::Mark {
            data: input.data()?,
        },
        16 => Event::Blind {
            what: input.text()?,
        },
        _ => return None,
    };
    Some((event, input.at))
}

struct Decoder<'a> {
    log: &'a [u8],
    at: usize,
}

impl Decoder<'_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = self.log.get(self.at).copied()?;
        self.at += 1;
        Some(byte)
    }

    fn number(&mut self) -> Option<u64> {
        let bytes = self.log.get(self.at..)?.first_chunk()?;
        self.at += bytes.len();
        Some(u64::from_be_bytes(*bytes))
    }

    fn data(&mut self) -> Option<Range<usize>> {
        let length = usize::try_from(self.number()?).ok()?;
        let range = self.at..self.at.checked_add(length)?;
        self.log.get(range.clone())?;
        self.at = range.end;
        Some(range)
    }

    fn text(&mut self) -> Option<String> {
        let range = self.data()?;
        String::from_utf8(self.log.get(range)?.to_vec()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events() -> Vec<Event<&'static [u8]>> {
        let name = |name: &str| name.to_owned();
        let mut events: Vec<Event<&[u8]>> = vec![
            Event::Open {
                fd: 3,
                path: name("a/b"),
                create: true,
                truncate: false,
                sync: true,
            },
            Event::Close { fd: 3 },
            Event::Dup { old: 3, new: 4 },
            Event::Write {
                fd: 3,
                offset: 1 << 40,
                data: b"data",
            },
            Event::Zero {
                fd: 3,
                offset: 1,
                length: 2,
            },
            Event::SetLength { fd: 3, length: 9 },
            Event::Grow { fd: 3, length: 10 },
            Event::SyncEnd { id: 7 },
            Event::Rename {
                from: name("a"),
                to: name("b"),
            },
            Event::Unlink { path: name("b") },
            Event::MakeFolder { path: name("c") },
            Event::RemoveFolder { path: name("c") },
            Event::Link {
                from: name("a"),
                to: name("d"),
            },
            Event::Mark { data: b"sent 1" },
            Event::Blind { what: name("mmap") },
        ];
        events.extend(CALLS.map(|call| Event::SyncBegin { id: 7, fd: 3, call }));
        events
    }

    #[test]
    fn each_event_reads_back_and_a_cut_one_is_the_end() {
        for event in events() {
            let mut log = b"before".to_vec();
            encode(&event, &mut log);
            let (read, end) = decode(&log, 6).unwrap();
            assert_eq!(end, log.len());
            for cut in 6..log.len() {
                assert_eq!(decode(&log[..cut], 6), None);
            }
            assert_eq!(read.map_data(|range| &log[range]), event);
        }
    }
}
