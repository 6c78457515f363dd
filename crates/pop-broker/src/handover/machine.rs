//! What each side of a handover does next, and no more: pure.

/// How far the source is. What a crash leaves of it is one thing: whether its mark is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Source {
    /// It serves.
    Serving,
    /// It lets go of its clients and makes everything durable.
    Flushing,
    /// It waits for the target.
    Offering,
    /// It writes its mark. Whether that is there nobody knows.
    Marking,
    /// It looks at its folder, which decides.
    Looking,
    /// Its mark is there.
    Retired,
}

/// What the source hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SourceEvent {
    /// The target asks for everything.
    Asked,
    /// Everything is durable, and the snapshot on offer.
    Offered,
    /// The target left, or takes too long, or something failed.
    Left,
    /// The target has everything.
    Installed,
    /// The mark is synced.
    Marked,
    /// The mark failed, or is in doubt.
    InDoubt,
    /// The folder was opened: whether it has the mark. `owner` sees that at every open.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "an open decides by the rows alone")
    )]
    Looked {
        /// It has.
        marked: bool,
    },
    /// The target asks for the receipt.
    Asks,
}

/// What the source does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SourceAction {
    /// Stops serving.
    Flush,
    /// Begins to write the mark.
    Mark,
    /// Tells the receipt.
    Tell,
    /// Opens the folder, and serves if it may.
    Open,
}

impl Source {
    /// The next state, and what to do for it. An event that has no place changes nothing.
    #[must_use]
    pub(crate) fn step(self, event: SourceEvent) -> (Self, Option<SourceAction>) {
        use SourceAction as Do;
        use SourceEvent as On;
        match (self, event) {
            (Self::Serving, On::Asked) => (Self::Flushing, Some(Do::Flush)),
            (Self::Flushing, On::Offered) => (Self::Offering, None),
            (Self::Flushing | Self::Offering, On::Left) => (Self::Looking, Some(Do::Open)),
            (Self::Offering, On::Installed) => (Self::Marking, Some(Do::Mark)),
            // Once it is begun nothing but the folder itself says what became of it.
            (Self::Marking, On::Marked) => (Self::Retired, Some(Do::Tell)),
            (Self::Marking, On::InDoubt) => (Self::Looking, Some(Do::Open)),
            (Self::Looking, On::Looked { marked: true }) => (Self::Retired, None),
            (Self::Looking, On::Looked { marked: false }) => (Self::Serving, None),
            (Self::Retired, On::Asks) => (Self::Retired, Some(Do::Tell)),
            (state, _) => (state, None),
        }
    }
}

/// How far the target is. A crash leaves what it installed and whether that is its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Target {
    /// It has nothing of the source.
    Empty,
    /// It has everything, and may not serve it.
    Awaiting,
    /// It has the receipt and writes that the content is its own.
    Adopting,
    /// It may serve.
    Owner,
}

/// What the target hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum TargetEvent {
    /// Everything is installed, synced.
    Installed,
    /// The source told the receipt.
    Receipt,
    /// What it wrote is synced.
    Adopted,
    /// That failed.
    Failed,
}

/// What the target does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum TargetAction {
    /// Tells the source that everything is there.
    Tell,
    /// Writes that the content is its own.
    Adopt,
}

impl Target {
    /// The next state, and what to do for it. An event that has no place changes nothing.
    #[must_use]
    pub(crate) fn step(self, event: TargetEvent) -> (Self, Option<TargetAction>) {
        use TargetAction as Do;
        use TargetEvent as On;
        match (self, event) {
            (Self::Empty, On::Installed) => (Self::Awaiting, Some(Do::Tell)),
            (Self::Awaiting, On::Receipt) => (Self::Adopting, Some(Do::Adopt)),
            (Self::Adopting, On::Adopted) => (Self::Owner, None),
            (Self::Adopting, On::Failed) => (Self::Awaiting, None),
            (state, _) => (state, None),
        }
    }
}

#[cfg(test)]
mod tests;
