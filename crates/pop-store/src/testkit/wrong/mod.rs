//! Stores that are wrong on purpose: each mistake must be caught by the check named here.
//!
//! A check that nothing fails proves nothing. The mistakes of durable stores are in the
//! integration tests, beside a store that has files.

mod store;
mod views;

use std::{panic::AssertUnwindSafe, path::Path, time::Duration};

use self::store::WrongStore;
use super::{Kit, StoreFactory, checks, run};
use crate::Result;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    None,
    DropsPreconditions,
    ChecksPreconditionsBeforeItsTurn,
    WritesBeforePreconditions,
    ForgetsThatAKeyMustBeAbsent,
    PutsBeforeRangeDeletes,
    DeletesAfterPuts,
    LosesAKeyspace,
    WritesKeyspaceByKeyspace,
    SplitsWhatIsTooBig,
    AnswersBeforeItIsDone,
    HoldsALockAcrossAnAwait,
    EmptyValueIsMissing,
    EmptyKeyIsMissing,
    OneTreeForAll,
    SignedBytes,
    SortsWhatIsAsked,
    UnknownKeyspaceIsEmpty,
    IncludesTheEnd,
    EndsAtAHighKey,
    LimitsTheWrongSide,
    IgnoresTheByteLimit,
    HidesWhatIsTooBig,
    ReadsAZeroLimitAsNone,
    ScansInSteps,
    SnapshotIsLive,
    SnapshotKeyspaceByKeyspace,
    SnapshotKeptBeforeItsPage,
    SnapshotsEndTogether,
    SnapshotGoesOn,
    EstimatesTheWholeStore,
    PublishesIntoTheOld,
    PublishesKeyspaceByKeyspace,
    LoadsIntoTheLive,
    OpensASecondStaging,
    KeepsAbortedRows,
    LoadsOnlyWhatAscends,
    KeepsTheFirstLoadOfAKey,
    KeepsRowsAfterTheCheckpoint,
    ResumesUnderAnyName,
    ResumesInAnyOrder,
    KeepsWhatWasForgotten,
    ForgetsWhatIsResumable,
    GoesOnAfterClose,
    SaysThatItIsDurable,
}

use Mistake as M;

/// Makes the moment of a mistake long enough that a check must see it, on any machine.
async fn pause() {
    tokio::time::sleep(Duration::from_millis(5)).await;
}

struct Wrong(Mistake);

impl StoreFactory for Wrong {
    type Store = WrongStore;

    async fn open(&self, _folder: &Path) -> Result<WrongStore> {
        Ok(WrongStore::new(self.0))
    }
}

/// Checks that `check` fails on the mistake, and that it is the mistake that fails it.
#[track_caller]
fn caught<C: AsyncFn(&Kit<Wrong>) + Copy>(mistake: Mistake, check: C) {
    run("wrong", Wrong(M::None), check);
    let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| {
        run("wrong", Wrong(mistake), check);
    }));
    assert!(outcome.is_err(), "{mistake:?} must be caught");
}

macro_rules! caught {
    ($($test:ident: $mistake:ident by $module:ident::$check:ident;)+) => {
        $(
            #[test]
            fn $test() {
                caught(M::$mistake, checks::$module::$check);
            }
        )+
    };
}

caught! {
    dropped_preconditions_are_caught:
        DropsPreconditions by batch::a_conflict_names_its_key_and_changes_nothing;
    dropped_preconditions_are_caught_by_the_model:
        DropsPreconditions by model::random_operations_have_the_answers_of_the_store_in_memory;
    preconditions_checked_before_their_turn_are_caught:
        ChecksPreconditionsBeforeItsTurn by concurrent::of_many_compare_and_sets_exactly_one_wins;
    lost_updates_are_caught:
        ChecksPreconditionsBeforeItsTurn by concurrent::transfers_between_accounts_keep_the_sum;
    writes_before_preconditions_are_caught:
        WritesBeforePreconditions by batch::a_conflict_names_its_key_and_changes_nothing;
    preconditions_after_the_writes_are_caught:
        WritesBeforePreconditions by batch::preconditions_look_at_the_content_before_the_batch;
    a_key_that_need_not_be_absent_is_caught:
        ForgetsThatAKeyMustBeAbsent by batch::an_empty_value_is_not_an_absent_key;
    puts_before_range_deletes_are_caught:
        PutsBeforeRangeDeletes by batch::range_deletes_come_before_deletes_and_puts;
    deletes_after_puts_are_caught:
        DeletesAfterPuts by batch::range_deletes_come_before_deletes_and_puts;
    a_lost_keyspace_is_caught:
        LosesAKeyspace by batch::a_batch_is_applied_over_all_its_keyspaces;
    a_lost_row_of_a_group_is_caught:
        LosesAKeyspace by concurrent::every_answered_write_is_there_and_no_key_goes_back;
    a_batch_written_in_parts_is_caught:
        WritesKeyspaceByKeyspace by snapshot::a_snapshot_shows_one_moment_over_all_keyspaces;
    a_write_split_where_its_caller_left_is_caught:
        WritesKeyspaceByKeyspace by concurrent::a_dropped_write_happens_as_a_whole_or_not_at_all;
    a_split_of_what_is_too_big_is_caught:
        SplitsWhatIsTooBig by limits::a_batch_above_a_limit_is_refused_and_changes_nothing;
    an_answer_before_the_write_is_caught:
        AnswersBeforeItIsDone by concurrent::every_answered_write_is_there_and_no_key_goes_back;
    a_lock_across_an_await_is_caught:
        HoldsALockAcrossAnAwait by concurrent::a_caller_that_stops_polling_holds_up_nobody;
    a_missing_empty_value_is_caught:
        EmptyValueIsMissing by keys::an_empty_key_and_an_empty_value_are_kept;
    a_missing_empty_key_is_caught:
        EmptyKeyIsMissing by keys::an_empty_key_and_an_empty_value_are_kept;
    one_tree_for_all_is_caught:
        OneTreeForAll by keys::keyspaces_do_not_see_each_other;
    signed_bytes_are_caught:
        SignedBytes by keys::keys_sort_as_unsigned_bytes;
    answers_in_key_order_are_caught:
        SortsWhatIsAsked by keys::several_keys_are_answered_in_the_order_asked;
    an_unknown_keyspace_that_is_empty_is_caught:
        UnknownKeyspaceIsEmpty by limits::an_unknown_keyspace_is_refused_everywhere;
    an_included_end_is_caught:
        IncludesTheEnd by scan::a_scan_is_half_open_and_ordered_both_ways;
    an_included_end_is_caught_by_the_model:
        IncludesTheEnd by model::random_operations_have_the_answers_of_the_store_in_memory;
    a_high_key_for_the_end_is_caught:
        EndsAtAHighKey by scan::a_scan_without_an_end_reaches_the_last_key;
    a_backward_scan_from_the_wrong_side_is_caught:
        LimitsTheWrongSide by scan::a_scan_stops_at_its_entry_limit;
    backward_pages_from_the_wrong_side_are_caught:
        LimitsTheWrongSide by scan::pages_of_a_long_range_have_no_gap_and_no_repeat;
    an_ignored_byte_limit_is_caught:
        IgnoresTheByteLimit by scan::a_scan_stops_at_its_byte_limit_but_gives_one_entry;
    a_hidden_big_entry_is_caught:
        HidesWhatIsTooBig by scan::a_scan_stops_at_its_byte_limit_but_gives_one_entry;
    a_zero_limit_read_as_none_is_caught:
        ReadsAZeroLimitAsNone by scan::an_empty_range_has_no_entries;
    a_scan_in_steps_is_caught:
        ScansInSteps by scan::a_scan_shows_one_moment;
    a_live_snapshot_is_caught:
        SnapshotIsLive by snapshot::a_snapshot_stays_as_it_was;
    a_patched_snapshot_is_caught:
        SnapshotKeyspaceByKeyspace by snapshot::a_snapshot_shows_one_moment_over_all_keyspaces;
    a_page_of_the_present_read_after_what_was_kept_is_caught:
        SnapshotKeptBeforeItsPage by
            snapshot::pages_of_a_snapshot_under_heavy_writes_are_of_its_moment;
    a_snapshot_that_ends_with_another_is_caught:
        SnapshotsEndTogether by
            snapshot::pages_of_a_snapshot_under_heavy_writes_are_of_its_moment;
    a_snapshot_that_goes_on_where_it_was_is_caught:
        SnapshotGoesOn by snapshot::a_page_does_not_depend_on_the_page_before;
    an_estimate_of_all_keyspaces_is_caught:
        EstimatesTheWholeStore by snapshot::an_estimate_is_absent_or_about_right;
    old_rows_that_shine_through_are_caught:
        PublishesIntoTheOld by replace::loaded_content_shows_only_when_published;
    a_keyspace_that_keeps_its_old_content_is_caught:
        PublishesIntoTheOld by replace::a_publish_switches_its_keyspaces_and_no_other;
    a_publish_in_parts_is_caught:
        PublishesKeyspaceByKeyspace by replace::a_publish_switches_all_its_keyspaces_at_once;
    a_load_into_the_live_content_is_caught:
        LoadsIntoTheLive by replace::loaded_content_shows_only_when_published;
    a_second_staging_is_caught:
        OpensASecondStaging by replace::a_second_staging_is_refused_while_one_is_open;
    aborted_rows_are_caught:
        KeepsAbortedRows by replace::what_was_not_published_leaves_nothing;
    a_load_of_what_ascends_alone_is_caught:
        LoadsOnlyWhatAscends by replace::a_large_load_in_any_order_is_published_whole;
    a_first_load_that_stays_is_caught:
        KeepsTheFirstLoadOfAKey by replace::the_later_load_of_a_key_wins;
    rows_after_the_checkpoint_are_caught:
        KeepsRowsAfterTheCheckpoint by resume::a_staging_goes_on_where_it_was_checkpointed;
    a_name_that_does_not_matter_is_caught:
        ResumesUnderAnyName by resume::a_checkpoint_is_found_by_its_name_until_it_is_over;
    a_resumed_load_in_any_order_is_caught:
        ResumesInAnyOrder by resume::a_resumable_load_takes_rows_in_order_alone;
    a_forgotten_checkpoint_that_stays_is_caught:
        KeepsWhatWasForgotten by resume::a_checkpoint_is_found_by_its_name_until_it_is_over;
    a_checkpoint_that_is_not_named_is_caught:
        ForgetsWhatIsResumable by resume::a_checkpoint_is_found_by_its_name_until_it_is_over;
    a_closed_store_that_goes_on_is_caught:
        GoesOnAfterClose by lifecycle::a_closed_store_refuses_every_call_as_poisoned;
    a_durable_store_called_volatile_is_caught:
        SaysThatItIsDurable by lifecycle::a_store_that_forgets_says_so;
}
