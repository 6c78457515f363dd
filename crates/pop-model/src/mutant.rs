//! Deliberate faults, to prove that the simulator would notice them.
//!
//! Each stands at one place of the product, as `if Mutant::X.is_on()`. Without the feature
//! `mutants` that is a constant `false` and the compiler removes it. With it, one mutant
//! is switched on per thread, so that one build tries them all.

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

            /// Its name, as the command line takes it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                }
            }

            /// What it does wrong.
            #[must_use]
            pub const fn fault(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($doc),+),)+
                }
            }
        }
    };
}

mutants! {
    /// An expired lease leaves its staging whatever came of its revive (ancestor, fault 1).
    StagedClearedWhateverTheOutcome,
    /// One failed revive keeps the others of its sweep from being settled (fault 2).
    OneFailureAbortsTheSweep,
    /// An idle queue is evicted although a receive is running on it (fault 3).
    EvictionRacesAReceive,
    /// An acknowledgement looks at the offset alone and not at the delivery (fault 4).
    AckByOffsetAlone,
    /// An acknowledgement of a staged lease is answered OK and has no effect (fault 4).
    AckMissesStaged,
    /// A change of the invisible duration brings a delivery back that was over (fault 5).
    ChangeRevivesTheDead,
    /// A change to an equal deadline deletes the hint that it just wrote (fault 6).
    EqualDeadlineDeletesTheHint,
    /// A deadline below the scan floor is written as it is, and never seen again (fault 7).
    DeadlineBelowTheFloor,
    /// The second of two receives of one group and topic comes back empty (fault 8).
    SecondReceiveIsEmpty,
    /// The backoff table is read past its end (fault 9).
    BackoffPastTheTable,
    /// A delivery whose revive failed too often is dropped and not quarantined (fault 10).
    ExhaustedIsDropped,
    /// Two topics of one group share their retry queue (faults 11: ambiguous names).
    RetryQueueIgnoresTheTopic,
    /// A stored lease that is written again loses its suspend flag and its attempts (fault 12).
    RewriteLosesFields,
    /// The end of a delivery is written before its successor (fault 13).
    DeleteBeforeWrite,
    /// A restart does not look at the marks above the committed offset (fault 14).
    RestartIgnoresMarks,
    /// What is acknowledged is flushed only when something is received (fault 15).
    FlushOnlyWithTraffic,
    /// In a batch of new messages and retries, handles go to the wrong messages (fault 16).
    HandlesMixedUp,
    /// The gate passes leases that are staged.
    GateIgnoresStaged,
    /// The gate passes offsets that are being read.
    GateIgnoresReserved,
    /// The gate passes offsets that wait for their message group.
    GateIgnoresHeld,
    /// The gate passes leases that are out.
    GateIgnoresBuffered,
    /// A batch that settles an offset leaves out its mark.
    MarkLeftOut,
    /// A plan is written while another one of the same queue is in doubt.
    SecondWriteWhileInDoubt,
    /// The broker goes on with what it knows after a failed write.
    GoOnAfterFailedWrite,
    /// A handle of an earlier run settles a delivery of this one.
    OldIncarnationSettles,
    /// The start position of a group is not durable when its first message goes out.
    StartNotDurable,
    /// After a restart the end of a queue is where its last row is.
    LogEndGoesBack,
    /// The scan floor moves past a hint whose write is still running.
    FloorPassesPending,
    /// A refused plan keeps its offsets out of everybody's reach.
    RefusedPlanKeepsOffsets,
    /// A reset does not raise the epoch.
    ResetKeepsTheEpoch,
    /// A reset leaves the settled marks above the new offset.
    ResetKeepsMarks,
    /// A delivery that reached nobody counts as an attempt.
    ReleaseCountsAnAttempt,
    /// One delivery more than the group allows.
    OneAttemptTooMany,
    /// A lease that is renewed expires at its first deadline.
    RenewalForgotten,
    /// A deadline that is now is not due yet.
    DueOnlyAfter,
    /// A lease that was acknowledged while it was being spilled comes back.
    SpillForgetsTheAck,
    /// The deadline of a lease that is spilled is counted from the spill.
    SpillRestartsTheDeadline,
    /// The bound on leases in flight is not looked at.
    BoundIgnored,
    /// What failed to revive is tried again at once and for ever, without a stored backoff.
    NoBackoff,
    /// Retention removes messages that retry entries still refer to.
    RetentionForgetsReferences,
    /// Retention does not see a retry entry that the committed offset of its queue has passed.
    PassedEntriesForgotten,
    /// Retention does not see a group that came since its pass began.
    RetentionMissesNewGroups,
    /// What is kept for a record in quarantine ends once the record is put back to work.
    KeptForTheRecordAlone,
    /// A queue that is given up for a deletion is found until the deletion is through.
    ClosedStaysListed,
    /// The sweep of a deleted topic takes the messages of its neighbour along.
    DeletionTakesANeighbour,
    /// A receive that waits is not woken by what becomes ready.
    WakeUpLost,
    /// Two batches of one message group are out at a time.
    FifoSecondBatch,
    /// A message group goes on behind a message that is to be delivered again.
    FifoPassesTheHead,
    /// A receive that repeats its attempt id gets an empty answer.
    FifoForgetsTheAttemptId,
    /// The attempts of an ordered delivery are forgotten.
    FifoAttemptsForgotten,
    /// In order, what is parked counts as given up already.
    ParkedCountsAsGivenUp,
    /// In order, a delivery that was given up is over when it is given up again.
    GivenUpIsForgotten,
    /// A message that a filter skips stays open.
    SkippedStaysOpen,
    /// What can't be decoded is passed without a copy in quarantine.
    QuarantineDropped,
    /// Lease time after a restart is the wall's, whatever was stored.
    LeaseTimeGoesBack,
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
