//! The contract of a store: tests that every implementation of [`Store`] passes.
//!
//! A crate with a store of its own runs the same tests as the stores of Attaché:
//!
//! - [`contract_tests!`] checks one open store: appending, reading, listing, leases, keys, webhooks, deliveries, values.
//! - [`durability_tests!`] checks what a store keeps when it is closed and opened again. It is for stores that outlive their process.
//!
//! Each test of the suite becomes one `#[test]`, in a module for its subject. Where stores may differ, a test checks only what all of
//! them guarantee.
//!
//! The macros take an expression that makes a [`StoreFactory`] for a new, empty location. They evaluate it once for each test, so
//! that tests can run at the same time. Put each macro in a module of its own, in an integration test:
//!
//! ```
//! use std::sync::Arc;
//!
//! use attache_core::{BoxFuture, MemoryStore, Store};
//! use attache_store_contract::StoreFactory;
//!
//! struct Memory;
//!
//! impl StoreFactory for Memory {
//!     fn open(&self) -> BoxFuture<'_, Arc<dyn Store>> {
//!         Box::pin(async { Arc::new(MemoryStore::new()) as Arc<dyn Store> })
//!     }
//! }
//!
//! mod memory {
//!     attache_store_contract::contract_tests!(super::Memory);
//! }
//! # fn main() {}
//! ```
//!
//! The dependency belongs to `[dev-dependencies]`. The tests bring their own Tokio runtime.

use std::sync::Arc;

use attache_core::{BoxFuture, Store};

#[doc(hidden)]
pub mod abandoned;
#[doc(hidden)]
pub mod appending;
#[doc(hidden)]
pub mod durability;
#[doc(hidden)]
pub mod keys;
#[doc(hidden)]
pub mod leases;
#[doc(hidden)]
pub mod listing;
#[doc(hidden)]
pub mod model;
mod operations;
#[doc(hidden)]
pub mod outbox;
#[doc(hidden)]
pub mod owners;
#[doc(hidden)]
pub mod pruning;
#[doc(hidden)]
pub mod run;
#[doc(hidden)]
pub mod settling;
#[doc(hidden)]
pub mod snapshots;
#[doc(hidden)]
pub mod support;
#[doc(hidden)]
pub mod tailing;
#[doc(hidden)]
pub mod values;
#[doc(hidden)]
pub mod webhooks;

/// Opens the store under test at one location, such as a file, a database schema or a key prefix.
pub trait StoreFactory: Send + Sync {
    /// Opens the store. The first call finds an empty location. Later calls find what the earlier store has written, if the store
    /// outlives its process. The earlier store is dropped before the next call. A failure is a panic.
    fn open(&self) -> BoxFuture<'_, Arc<dyn Store>>;
}

/// Defines one `#[test]` for each test of an open store.
///
/// The argument is an expression that makes a [`StoreFactory`] for a new, empty location. See the [crate] documentation for an example.
#[macro_export]
macro_rules! contract_tests {
    ($factory:expr $(,)?) => {
        $crate::__define_tests! {
            $factory,
            abandoned: open_store {
                a_task_is_abandoned_when_its_lease_has_expired,
                a_working_task_whose_lease_was_released_is_abandoned,
                only_submitted_and_working_tasks_are_abandoned,
                a_task_that_resumes_without_a_lease_is_abandoned_again,
                a_claimed_task_is_no_longer_abandoned,
                an_abandoned_task_has_its_owner_and_its_last_state,
                abandoned_tasks_are_limited_in_number,
            }
            appending: open_store {
                events_are_read_in_the_order_of_their_append,
                a_batch_with_an_event_after_the_end_is_refused_as_a_whole,
                a_batch_that_creates_its_task_again_is_refused_as_a_whole,
                a_task_with_an_invalid_log_leaves_nothing_behind,
                a_log_begins_with_the_task,
                a_used_task_id_is_refused_and_the_first_task_stays,
                task_ids_are_compared_exactly,
                any_text_can_be_an_id,
                an_append_at_a_wrong_position_gets_the_right_position,
                nothing_is_appended_to_a_task_that_has_ended,
                concurrent_appends_with_retries_succeed_exactly_once,
                logs_grow_independently,
                errors_are_checked_in_a_fixed_order,
            }
            keys: open_store {
                a_key_creates_one_task,
                concurrent_creates_with_one_key_make_one_task,
                a_task_found_by_its_key_can_be_read,
                keys_of_different_owners_are_independent,
                keys_are_compared_exactly,
                a_key_makes_one_append,
                concurrent_appends_with_one_key_make_one_append,
                a_key_is_used_by_a_task_or_an_append_but_not_by_both,
                an_append_that_is_refused_leaves_its_key_unused,
            }
            leases: open_store {
                a_new_task_cannot_be_claimed_until_its_lease_expires,
                a_released_task_can_be_claimed_at_once,
                a_newer_lease_invalidates_the_older,
                an_expired_lease_is_valid_until_the_task_is_claimed,
                a_released_lease_is_invalid,
                renewing_extends_a_lease,
                one_of_many_concurrent_claims_succeeds,
                a_task_that_has_ended_cannot_be_claimed,
                the_holder_of_a_lease_learns_that_the_task_was_ended_without_it,
                a_missing_task_cannot_be_claimed,
                an_append_without_a_lease_works_beside_a_lease,
            }
            listing: open_store {
                tasks_are_listed_latest_status_first,
                status_times_are_compared_to_the_nanosecond,
                status_times_of_all_years_are_in_order,
                tasks_of_the_same_time_keep_their_order_for_every_page_size,
                every_combination_of_filters_finds_the_matching_tasks,
                a_page_with_the_last_task_has_no_cursor,
                a_task_that_gets_a_new_status_moves_to_the_front,
                events_that_are_not_statuses_do_not_move_a_task,
                unchanged_tasks_are_listed_once_while_others_move_or_appear,
                unchanged_tasks_are_listed_once_during_concurrent_writes,
                a_cursor_stays_valid_without_its_task,
                a_listed_task_equals_the_loaded_task,
                a_limited_history_has_the_latest_messages,
            }
            outbox: open_store {
                a_webhook_gets_the_events_it_subscribed_to_in_order,
                a_webhook_gets_only_events_after_its_registration,
                a_refused_append_creates_no_delivery,
                the_next_delivery_is_due_after_the_previous_one_is_settled,
                webhooks_do_not_wait_for_each_other,
                a_delivery_has_its_webhook_and_its_event,
                a_delivery_has_the_owner_of_its_task,
                a_taken_delivery_is_reserved_until_its_time,
                concurrent_takers_get_different_deliveries,
                taken_deliveries_are_limited_in_number,
                receivers_are_listed_by_due_time,
                the_next_due_time_is_reported,
                a_failed_delivery_is_due_again_and_counts_as_an_attempt,
                a_postponed_delivery_is_due_again_and_does_not_count,
                a_dead_delivery_does_not_block_the_next_one,
                dead_deliveries_are_listed_oldest_first_in_pages,
                one_dead_delivery_can_be_retried,
                all_dead_deliveries_can_be_retried,
                dead_deliveries_can_be_purged_one_or_all,
                a_deleted_webhook_gets_no_more_deliveries,
                a_webhook_with_a_new_url_keeps_its_queue,
                a_changed_subscription_applies_to_later_events,
                a_late_outcome_changes_nothing,
                a_waiting_dispatcher_is_woken_by_a_new_delivery,
                a_delivery_before_the_first_wait_is_not_missed,
            }
            owners: open_store {
                a_task_exists_for_its_owner_only,
                owners_are_compared_exactly_by_principal_and_tenant,
                agents_of_one_server_have_separate_tasks,
                contexts_of_the_same_name_are_separate_for_each_owner,
                the_task_limit_applies_to_each_owner_separately,
            }
            pruning: open_store {
                nothing_is_pruned_without_a_limit,
                tasks_older_than_the_limit_are_pruned,
                the_oldest_tasks_beyond_the_limit_are_pruned,
                both_limits_apply_together,
                tasks_that_have_not_ended_are_never_pruned,
                pruned_tasks_are_limited_in_number,
                a_task_with_pending_deliveries_is_not_pruned,
                dead_deliveries_do_not_prevent_pruning,
                a_pruned_task_leaves_nothing_behind,
                the_id_of_a_pruned_task_can_be_used_again,
            }
            settling: open_store {
                a_task_that_is_created_settled_is_returned,
                an_append_that_settles_a_task_returns_it,
                a_returned_task_does_not_change_later,
            }
            snapshots: open_store {
                every_task_is_the_fold_of_its_log,
                a_task_reads_the_same_after_its_end,
                a_large_task_reads_like_a_small_one,
                every_member_of_a_task_is_stored,
            }
            tailing: open_store {
                a_tail_after_a_snapshot_has_exactly_the_missing_events,
                all_readers_of_a_task_get_the_same_events,
                a_long_log_is_read_from_its_beginning,
                a_slow_reader_misses_no_event,
                a_tail_waits_for_the_next_event,
                events_before_the_first_poll_are_not_missed,
                a_tail_ends_with_the_task,
                a_resumed_tail_has_exactly_the_rest,
                a_late_tail_of_an_unfollowed_task_has_the_rest_or_the_task,
                a_missing_task_has_no_events,
                a_dropped_tail_does_not_affect_others,
                a_tail_of_a_pruned_task_ends,
            }
            values: open_store {
                a_value_exists_from_its_first_change,
                a_removed_value_is_gone,
                a_change_gets_the_old_value_and_returns_both,
                a_change_can_leave_the_value_as_it_is,
                a_change_that_panics_changes_nothing_and_later_changes_work,
                a_scope_is_listed_in_the_order_of_first_use,
                a_removed_key_that_is_added_again_is_last,
                scopes_are_listed_by_name_while_they_have_values,
                scopes_are_independent,
                scopes_and_keys_are_compared_exactly,
                values_are_read_exactly_as_written,
                large_values_are_read_completely,
                concurrent_changes_of_one_value_are_all_applied,
                one_of_many_concurrent_first_changes_wins,
                a_finished_change_is_visible_to_every_reader,
                values_are_independent_of_tasks,
            }
            webhooks: open_store {
                webhooks_are_listed_in_the_order_of_their_registration,
                a_webhook_with_a_used_id_replaces_the_old_one,
                a_webhook_can_be_registered_with_its_task,
                every_member_of_a_webhook_is_stored,
                a_webhook_can_be_deleted_twice,
                webhooks_belong_to_one_task,
                a_missing_task_has_no_webhooks,
                a_task_that_has_ended_can_have_webhooks,
                the_limit_of_webhooks_holds_for_concurrent_registrations,
                a_webhook_registered_with_events_gets_them,
                events_with_a_webhook_beyond_the_limit_are_not_appended,
            }
        }
    };
}

/// Defines one `#[test]` for each test of a store that outlives its process.
///
/// The argument is an expression that makes a [`StoreFactory`] for a new, empty location:
///
/// ```ignore
/// mod my_store_reopened {
///     attache_store_contract::durability_tests!(super::MyStore::new());
/// }
/// ```
#[macro_export]
macro_rules! durability_tests {
    ($factory:expr $(,)?) => {
        $crate::__define_tests! {
            $factory,
            durability: factory {
                tasks_are_unchanged_after_a_restart,
                logs_continue_from_any_position_after_a_restart,
                a_long_task_continues_after_each_restart,
                used_keys_stay_used_after_a_restart,
                webhooks_keep_their_secrets_after_a_restart,
                pending_deliveries_stay_in_order_after_a_restart,
                a_taken_delivery_is_due_again_after_a_restart,
                dead_deliveries_stay_dead_after_a_restart,
                listings_and_totals_are_unchanged_after_a_restart,
                leases_end_with_a_restart,
                pruned_tasks_stay_pruned_after_a_restart,
                a_store_can_be_opened_many_times,
                readers_never_see_a_task_go_back,
                values_and_their_order_are_unchanged_after_a_restart,
                a_removed_value_stays_removed_after_a_restart,
            }
            model: new_factory {
                behaves_like_the_memory_store,
            }
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __define_tests {
    ($factory:expr, $($module:ident: $input:ident { $($test:ident,)* })*) => {
        fn new_factory() -> ::std::boxed::Box<dyn $crate::StoreFactory> {
            ::std::boxed::Box::new($factory)
        }

        $(
            mod $module {
                $(
                    #[test]
                    fn $test() {
                        $crate::run::$input(super::new_factory, $crate::$module::$test);
                    }
                )*
            }
        )*
    };
}
