//! Deliberate faults, to prove that the simulator would notice them.
//!
//! Each stands at one place, as `if Mutant::X.is_on()`. Without the feature `mutants` that
//! is a constant `false` and the compiler removes it. With it, one is switched on per
//! thread, so that one build tries them all.

#[cfg(all(feature = "mutants", not(debug_assertions)))]
compile_error!(
    "the feature `mutants` puts faults in; build it with debug assertions, never for a release"
);

macro_rules! mutants {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// A fault that can be switched on. See the module.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Mutant {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Mutant {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// Its name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                }
            }
        }
    };
}

mutants! {
    /// A session that is lost tells nobody: the guard does nothing when it is dropped.
    GuardWithoutDrop,
    /// A session that ended stays in its slot, and is handed out again.
    SlotNotEmptied,
    /// Waiters are told before the staging is given back.
    ToldBeforeReleased,
    /// A request of an older epoch takes the place of one of a newer epoch.
    EpochIgnored,
    /// An older snapshot takes the place of a newer one.
    AgeIgnored,
    /// What is installed is not looked at before a transfer.
    FenceIgnored,
    /// A session does not wait until the one before it has given its staging back.
    TurnNotTaken,
    /// A cancelled commit is reported as cancelled, whatever became of it.
    StopDuringCommit,
    /// A source that breaks the rules ends a session whose switch has begun.
    SourceEndsCommit,
    /// What is staged is switched to before anybody asked for it.
    NotHeld,
    /// A chunk that comes twice is loaded twice.
    DuplicatesApplied,
    /// A chunk may be missing.
    GapAccepted,
    /// A stream that ends early counts as complete.
    EarlyEndIsSuccess,
    /// Keys may come in any order.
    OrderNotChecked,
    /// Rows of a keyspace that is not part of the snapshot are let through.
    BoundaryNotChecked,
    /// The checksum of a chunk is not looked at.
    ChecksumNotChecked,
    /// What the rows add up to is not compared at the end.
    TotalsNotChecked,
    /// What the sender may send is not bounded.
    CreditIgnored,
    /// A source sends as far ahead as a receiver says, whatever that does to its memory.
    FlightNotBounded,
    /// The clock of the peer runs while this side is the slow one.
    ClockRunsWhileBusy,
    /// Nothing bounds a silent peer.
    NoPeerDeadline,
    /// Nothing bounds work of this side that hangs.
    NoLocalDeadline,
    /// Nothing bounds a peer that only says that it lives.
    NoRateMin,
    /// Nothing bounds a receiver that only says that it lives, with all rows or without.
    NoTakenDeadline,
    /// A busy side says nothing.
    NoKeepAlive,
    /// The last word is not repeated when its answer is lost.
    LastWordSaidOnce,
    /// A resumed transfer counts only the rows behind its start.
    ResumeForgetsTotals,
    /// A source resumes whatever rows lie before the start.
    ResumeNotCompared,
    /// A target answers a switch that it has not synced: in the simulator's target, as each
    /// real store has its own.
    SwitchNotSynced,
}

#[cfg(feature = "mutants")]
thread_local! {
    static ON: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
}

impl Mutant {
    /// Whether this one is switched on in this thread.
    #[cfg(not(feature = "mutants"))]
    #[must_use]
    #[inline(always)]
    pub const fn is_on(self) -> bool {
        let _ = self;
        false
    }

    /// Whether this one is switched on in this thread.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub fn is_on(self) -> bool {
        ON.get() == Some(self)
    }

    /// Switches one on in this thread, or all off.
    #[cfg(feature = "mutants")]
    pub fn switch(mutant: Option<Self>) {
        ON.set(mutant);
    }
}
