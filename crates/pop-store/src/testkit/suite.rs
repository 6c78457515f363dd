//! The list of all checks, and the macro that makes tests of them.

/// Runs the whole contract against a backend: one `#[test]` per check.
///
/// `conformance!(Factory)` is for a store whose content outlives the process;
/// `conformance!(Factory, volatile)` for one that starts empty. Either form fails if the
/// store's capabilities say otherwise, so that no check can be left out unseen. What a
/// store states that it can't do is checked to be refused by name.
///
/// `Factory` is an expression that gives a [`StoreFactory`](crate::testkit::StoreFactory).
/// Call it once per module, and in a test harness that takes the path of a test and
/// `--exact` (Rust's own or nextest): a crash check starts itself again as a child.
/// Doc tests can't be started so.
#[macro_export]
macro_rules! conformance {
    ($factory:expr) => {
        $crate::conformance!(@common $factory);
        $crate::conformance!(@tests $factory, lifecycle, [
            a_store_that_outlives_the_process_says_so,
        ]);
        $crate::conformance!(@tests $factory, durable, [
            a_reopened_store_shows_everything,
            a_closed_folder_opens_at_once_while_old_handles_are_held,
            a_folder_that_is_open_is_locked,
            published_content_is_there_after_reopening,
            a_staging_left_open_leaves_nothing_after_reopening,
            content_thrown_away_gives_its_room_on_disk_back,
        ]);
        $crate::conformance!(@tests $factory, resume, [
            a_checkpoint_outlives_the_process,
        ]);
        $crate::conformance!(@tests $factory, crash, [
            a_kill_loses_nothing_synced_and_leaves_no_hole,
            a_kill_around_a_replace_leaves_the_old_or_the_new_content,
        ]);
    };
    ($factory:expr, volatile) => {
        $crate::conformance!(@common $factory);
        $crate::conformance!(@tests $factory, lifecycle, [
            a_store_that_forgets_says_so,
        ]);
    };
    (@common $factory:expr) => {
        $crate::conformance!(@tests $factory, keys, [
            keys_sort_as_unsigned_bytes,
            an_empty_key_and_an_empty_value_are_kept,
            the_longest_key_is_kept,
            the_largest_value_is_kept,
            keyspaces_do_not_see_each_other,
            several_keys_are_answered_in_the_order_asked,
        ]);
        $crate::conformance!(@tests $factory, batch, [
            a_batch_is_applied_over_all_its_keyspaces,
            range_deletes_come_before_deletes_and_puts,
            the_later_put_of_a_key_wins,
            a_range_delete_is_half_open,
            an_empty_range_deletes_nothing,
            preconditions_look_at_the_content_before_the_batch,
            a_conflict_names_its_key_and_changes_nothing,
            an_empty_value_is_not_an_absent_key,
            an_empty_batch_is_committed,
        ]);
        $crate::conformance!(@tests $factory, limits, [
            a_batch_at_the_limits_is_committed,
            a_batch_above_a_limit_is_refused_and_changes_nothing,
            an_unknown_keyspace_is_refused_everywhere,
        ]);
        $crate::conformance!(@tests $factory, concurrent, [
            of_many_compare_and_sets_exactly_one_wins,
            transfers_between_accounts_keep_the_sum,
            every_answered_write_is_there_and_no_key_goes_back,
            a_dropped_write_happens_as_a_whole_or_not_at_all,
            a_caller_that_stops_polling_holds_up_nobody,
        ]);
        $crate::conformance!(@tests $factory, scan, [
            a_scan_is_half_open_and_ordered_both_ways,
            a_scan_without_an_end_reaches_the_last_key,
            an_empty_range_has_no_entries,
            a_scan_stops_at_its_entry_limit,
            a_scan_stops_at_its_byte_limit_but_gives_one_entry,
            pages_of_a_long_range_have_no_gap_and_no_repeat,
            a_scan_shows_one_moment,
        ]);
        $crate::conformance!(@tests $factory, snapshot, [
            a_snapshot_stays_as_it_was,
            a_snapshot_shows_one_moment_over_all_keyspaces,
            pages_of_a_snapshot_under_heavy_writes_are_of_its_moment,
            a_page_does_not_depend_on_the_page_before,
            an_estimate_is_absent_or_about_right,
        ]);
        $crate::conformance!(@tests $factory, replace, [
            loaded_content_shows_only_when_published,
            a_publish_switches_its_keyspaces_and_no_other,
            a_publish_switches_all_its_keyspaces_at_once,
            what_was_not_published_leaves_nothing,
            a_second_staging_is_refused_while_one_is_open,
            the_later_load_of_a_key_wins,
            a_large_load_in_any_order_is_published_whole,
            a_wrong_load_is_refused,
        ]);
        $crate::conformance!(@tests $factory, resume, [
            a_staging_goes_on_where_it_was_checkpointed,
            a_checkpoint_is_found_by_its_name_until_it_is_over,
            a_resumable_load_takes_rows_in_order_alone,
        ]);
        $crate::conformance!(@tests $factory, lifecycle, [
            a_store_names_its_keyspaces,
            a_closed_store_refuses_every_call_as_poisoned,
        ]);
        $crate::conformance!(@tests $factory, model, [
            random_operations_have_the_answers_of_the_store_in_memory,
        ]);
    };
    (@tests $factory:expr, $module:ident, [$($check:ident,)+]) => {
        $(
            #[test]
            fn $check() {
                $crate::testkit::run(
                    concat!(module_path!(), "::", stringify!($check)),
                    $factory,
                    $crate::testkit::checks::$module::$check,
                );
            }
        )+
    };
}
