//! The embedded engine with workers of the real iii SDKs: each promise for each language and version.
//!
//! `cargo xtask test` installs the SDKs and says where they are; without that, these tests are skipped with a message.

mod examples;
mod llm;
#[path = "../shared/model.rs"]
mod model;
#[path = "../shared/peers.rs"]
mod peers;
mod promises;
mod support;
mod together;

/// The tests of one version of an SDK: one for each promise that holds with all, and for each that is named besides.
macro_rules! sdk {
    ($module:ident, $language:ident, $version:literal $(, $promise:ident)*) => {
        mod $module {
            use crate::support::{Language, Sdk};

            const SDK: Sdk =
                Sdk { module: stringify!($module), language: Language::$language, version: $version };

            sdk! { promises
                a_skill_is_in_the_card_within_a_second
                a_skill_is_called_and_its_payload_is_checked
                the_smoke_path_of_the_document_works
                a_function_that_throws_fails_its_task_with_its_words
                a_slow_function_is_canceled
                a_function_that_takes_longer_than_it_says_is_given_up
                a_worker_calls_functions_of_another
                a_worker_delegates_to_another_agent
                a_worker_keeps_state
                a_worker_lists_functions
                a_void_call_arrives
                an_http_trigger_gets_the_request_in_pieces
                a_response_is_streamed
                a_body_that_is_not_json_is_read_from_its_channel
                what_a_function_writes_to_its_channel_are_pieces_of_an_artifact
                what_a_function_returns_after_writing_replaces_nothing
                whoever_stops_listening_harms_no_worker
                a_large_payload_harms_nobody_elses_call
                a_worker_killed_mid_call_fails_it_at_once
                skills_go_with_their_worker_and_come_back_with_it
                skills_come_back_after_the_engine_was_restarted
                a_function_that_is_unregistered_leaves_the_card
                $($promise)*
            }
        }
    };
    (promises $($promise:ident)*) => {
        $(
            #[test]
            fn $promise() {
                crate::support::keep(&[SDK], stringify!($promise), crate::promises::$promise(SDK));
            }
        )*
    };
}

/// The versions that have triggers of other types than HTTP.
macro_rules! sdk_with_triggers {
    ($module:ident, $language:ident, $version:literal) => {
        sdk!(
            $module,
            $language,
            $version,
            a_worker_hears_of_new_functions,
            a_worker_provides_a_type_of_triggers
        );
    };
}

sdk_with_triggers!(python_0_11, Python, "0.11.6");
sdk_with_triggers!(python_0_25, Python, "0.25.0");
sdk_with_triggers!(node_0_11, Node, "0.11.6");
sdk_with_triggers!(node_0_22, Node, "0.22.1");
sdk_with_triggers!(rust_0_11, Rust, "0.11.3");
sdk_with_triggers!(rust_0_25, Rust, "0.25.0");
sdk!(rust_0_26, Rust, "0.26.0-rc.4");
