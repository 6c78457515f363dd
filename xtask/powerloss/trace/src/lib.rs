//! What the recorder writes and the checker reads: every change of a folder, in order.
//!
//! A log that ends inside an event was cut by the death of the recorded process; what is
//! before it counts.

mod codec;

pub use codec::{decode, encode};

/// Environment variables by which the recorder is told what to do.
pub mod variables {
    /// The folder whose changes are recorded: absolute, without symbolic links.
    pub const FOLDER: &str = "POP_POWERLOSS_FOLDER";
    /// The file that the events go to, outside the folder.
    pub const LOG: &str = "POP_POWERLOSS_LOG";
    /// The file whose every write becomes an [`Event::Mark`](super::Event::Mark).
    pub const MARKS: &str = "POP_POWERLOSS_MARKS";
}

/// Which call asked for a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncCall {
    /// `fsync`.
    Full,
    /// `fdatasync`.
    Data,
    /// `sync_file_range`, which leaves out the length, the disk's cache and new blocks.
    Range,
}

/// One change of the folder, or something that matters to what may be left of it.
///
/// Paths are relative to the folder; the folder itself is the empty one. `D` is the data:
/// the recorder has it in memory, the checker as a range of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<D> {
    /// A file was opened that could be changed by it or through it, or a folder was.
    Open {
        /// The descriptor.
        fd: u64,
        /// Where.
        path: String,
        /// Made if it was not there.
        create: bool,
        /// Emptied.
        truncate: bool,
        /// Each write through it is durable when it returns.
        sync: bool,
    },
    /// A descriptor was closed.
    Close {
        /// The descriptor.
        fd: u64,
    },
    /// A descriptor was doubled.
    Dup {
        /// The old one.
        old: u64,
        /// The new one.
        new: u64,
    },
    /// Bytes were written.
    Write {
        /// The descriptor.
        fd: u64,
        /// Where in the file.
        offset: u64,
        /// The bytes.
        data: D,
    },
    /// A range was made zero, or a hole.
    Zero {
        /// The descriptor.
        fd: u64,
        /// Where in the file.
        offset: u64,
        /// How many bytes.
        length: u64,
    },
    /// The file got this length.
    SetLength {
        /// The descriptor.
        fd: u64,
        /// The length.
        length: u64,
    },
    /// The file got at least this length.
    Grow {
        /// The descriptor.
        fd: u64,
        /// The length.
        length: u64,
    },
    /// A sync began: it promises what was written before this.
    SyncBegin {
        /// Which sync.
        id: u64,
        /// The descriptor.
        fd: u64,
        /// The call.
        call: SyncCall,
    },
    /// The sync returned without an error: its promise holds from here on.
    SyncEnd {
        /// Which sync.
        id: u64,
    },
    /// A name moved, over whatever had the other name.
    Rename {
        /// The old name.
        from: String,
        /// The new name.
        to: String,
    },
    /// A file's name went.
    Unlink {
        /// The name.
        path: String,
    },
    /// A folder was made.
    MakeFolder {
        /// Its name.
        path: String,
    },
    /// An empty folder went.
    RemoveFolder {
        /// Its name.
        path: String,
    },
    /// A file got a second name.
    Link {
        /// The first name.
        from: String,
        /// The second name.
        to: String,
    },
    /// The workload says something, such as what it was just promised.
    Mark {
        /// What.
        data: D,
    },
    /// A change that the recorder can't follow: the recording is worth nothing.
    Blind {
        /// What it was.
        what: String,
    },
}

impl<D> Event<D> {
    /// The same event with its data in another form.
    pub fn map_data<E>(self, map: impl FnOnce(D) -> E) -> Event<E> {
        match self {
            Self::Write { fd, offset, data } => Event::Write {
                fd,
                offset,
                data: map(data),
            },
            Self::Mark { data } => Event::Mark { data: map(data) },
            Self::Open {
                fd,
                path,
                create,
                truncate,
                sync,
            } => Event::Open {
                fd,
                path,
                create,
                truncate,
                sync,
            },
            Self::Close { fd } => Event::Close { fd },
            Self::Dup { old, new } => Event::Dup { old, new },
            Self::Zero { fd, offset, length } => Event::Zero { fd, offset, length },
            Self::SetLength { fd, length } => Event::SetLength { fd, length },
            Self::Grow { fd, length } => Event::Grow { fd, length },
            Self::SyncBegin { id, fd, call } => Event::SyncBegin { id, fd, call },
            Self::SyncEnd { id } => Event::SyncEnd { id },
            Self::Rename { from, to } => Event::Rename { from, to },
            Self::Unlink { path } => Event::Unlink { path },
            Self::MakeFolder { path } => Event::MakeFolder { path },
            Self::RemoveFolder { path } => Event::RemoveFolder { path },
            Self::Link { from, to } => Event::Link { from, to },
            Self::Blind { what } => Event::Blind { what },
        }
    }
}
