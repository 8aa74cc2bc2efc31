//! Every target on its corpus, and on mutations of it that are the same in every run.
//!
//! `FUZZ_TIMES=100` makes the run so many times longer.

use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Once, PoisonError};

use attache_fuzz::{TARGETS, Target};
use fastrand::Rng;

/// The largest input in a corpus, in bytes.
const LARGEST: usize = 1024;

/// The inputs of a target, each with where it is.
fn corpus(name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

/// Whether something panicked, also on another thread.
static PANICKED: AtomicBool = AtomicBool::new(false);

/// Whether a target holds for an input. A panic in a task beside the request counts as well.
fn holds(target: Target, input: &[u8]) -> bool {
    static NOTICE: Once = Once::new();
    NOTICE.call_once(|| {
        let told = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            PANICKED.store(true, Ordering::SeqCst);
            told(info);
        }));
    });
    let returned = panic::catch_unwind(AssertUnwindSafe(|| target(input))).is_ok();
    returned && !PANICKED.load(Ordering::SeqCst)
}

const TOKENS: [&str; 13] =
    ["\"", "{", "}", "[", "]", "null", "-1", "1e999", "\\u0000", "\u{e9}", "\n", "\0", ":"];

/// One of the inputs, with bytes removed, added, changed, repeated, or taken from another.
fn mutation(inputs: &[(PathBuf, Vec<u8>)], random: &mut Rng) -> Vec<u8> {
    let pick = |random: &mut Rng| inputs[random.usize(..inputs.len())].1.clone();
    let mut input = pick(random);
    for _ in 0..random.usize(1..4) {
        let at = random.usize(..=input.len());
        let end = random.usize(at..=input.len().min(at + 16));
        match random.u8(..6) {
            0 => drop(input.drain(at..end)),
            1 => input.insert(at, random.u8(..)),
            2 => input[at..end].iter_mut().for_each(|byte| *byte = byte.wrapping_add(random.u8(..))),
            3 => drop(input.splice(at..at, input[at..end].to_vec())),
            4 => {
                let other = pick(random);
                let from = random.usize(..=other.len());
                input.splice(at..at, other[from..other.len().min(from + 32)].to_vec());
            }
            _ => drop(input.splice(at..end, TOKENS[random.usize(..TOKENS.len())].bytes())),
        }
    }
    input
}

fn short_run(name: &str, mutations: usize) {
    /// One target at a time, so that it is known whose panic it was.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (_, target) = TARGETS.into_iter().find(|(known, _)| *known == name).expect("it is a target");
    let inputs = corpus(name);
    PANICKED.store(false, Ordering::SeqCst);
    for (path, input) in &inputs {
        assert!(holds(target, input), "`{name}` does not hold for {}", path.display());
    }
    let times: usize = std::env::var("FUZZ_TIMES").ok().and_then(|times| times.parse().ok()).unwrap_or(1);
    let mut random = Rng::with_seed(7);
    for _ in 0..mutations * times {
        let input = mutation(&inputs, &mut random);
        assert!(holds(target, &input), "`{name}` does not hold for b\"{}\"", input.escape_ascii());
    }
}

macro_rules! short_runs {
    ($( $promise:ident: $target:literal, $mutations:literal; )+) => {
        $(
            #[test]
            fn $promise() {
                short_run($target, $mutations);
            }
        )+

        #[test]
        fn every_target_has_a_short_run() {
            assert_eq!(TARGETS.map(|(name, _)| name), [$( $target ),+]);
        }
    };
}

short_runs! {
    whatever_an_agent_writes_its_task_ends_or_asks: "agent_output", 100;
    stored_content_is_a_harmless_download_for_its_owner: "artifacts", 500;
    any_card_is_read_the_same_twice: "card", 3000;
    any_card_record_and_list_of_agents_is_read_as_it_was_sent: "delegation", 3000;
    any_task_of_an_older_dialect_is_read_the_same_twice: "dialects", 2000;
    any_request_to_a_trigger_gets_a_response_with_harmless_headers: "engine_http", 2000;
    any_grpc_body_gets_a_status_that_does_not_blame_us: "grpc", 1000;
    any_headers_get_an_answer_and_only_credentials_get_in: "headers", 500;
    any_path_and_body_get_an_answer_in_json: "http_json", 1000;
    any_iii_frame_is_read_the_same_twice: "iii_frames", 2000;
    any_body_gets_an_answer_of_json_rpc: "jsonrpc", 1000;
    any_card_is_trusted_only_if_it_says_what_was_signed: "jws", 500;
    any_token_lets_in_only_if_it_was_signed: "jwt", 2000;
    any_line_gets_an_answer_of_json_rpc: "lines", 1000;
    any_output_of_an_mcp_server_is_the_same_however_it_is_cut: "mcp", 2000;
    a_login_ends_only_with_its_own_code_and_no_error_repeats_a_token: "oauth", 3000;
    any_url_that_leads_inside_is_refused_however_it_is_spelled: "outbound_url", 4000;
    any_page_token_leads_to_own_tasks_or_nowhere: "page_tokens", 500;
    any_pem_is_read_without_repeating_what_may_be_secret: "pem", 2000;
    any_message_of_1_0_is_read_the_same_twice: "protojson", 2000;
    no_secret_is_shown_in_however_many_pieces_it_is_written: "redaction", 500;
    any_redis_entry_is_a_request_by_the_rules_or_is_refused: "redis_entries", 4000;
    any_schema_gives_the_result_of_a_check_without_limits: "schemas", 4000;
    any_stream_of_events_is_the_same_however_it_is_cut: "sse", 2000;
    any_websocket_message_gets_a_frame_of_json_rpc: "websocket", 1000;
}

#[test]
fn every_target_has_a_program() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("libfuzzer");
    let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
    for (name, _) in TARGETS {
        let program = std::fs::read_to_string(folder.join(format!("targets/{name}.rs"))).unwrap();
        assert!(program.contains(&format!("attache_fuzz::{name}(data)")), "{program}");
        assert!(
            manifest.contains(&format!("path = \"targets/{name}.rs\"")),
            "`{name}` is not in the manifest"
        );
    }
}

#[test]
fn corpora_are_small() {
    for (name, _) in TARGETS {
        let inputs = corpus(name);
        assert!((5..100).contains(&inputs.len()), "`{name}` has {} inputs", inputs.len());
        for (path, input) in inputs {
            assert!(input.len() <= LARGEST, "{} has {} bytes", path.display(), input.len());
        }
    }
}
