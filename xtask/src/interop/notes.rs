//! What is to be said about the cells of the tables for frameworks.

use super::frameworks::{Outcome, Side};

/// A fault of a framework. What goes wrong contains the symptom.
struct Fault {
    symptom: &'static str,
    evidence: &'static str,
}

const fn fault(symptom: &'static str, evidence: &'static str) -> Option<Fault> {
    Some(Fault { symptom, evidence })
}

/// What a cell says, with the note about it.
pub(super) fn cell(
    framework: &str,
    side: Side,
    feature: &str,
    outcome: Outcome,
) -> (&'static str, Option<String>) {
    match outcome {
        Outcome::Works => {
            if known(framework, side, feature).is_some() {
                eprintln!("    the note about `{framework}`, {side:?}, `{feature}` is out of date: it works");
            }
            ("pass", None)
        }
        Outcome::Absent(why) => ("–", Some(absent(framework, side, feature).map_or(why, str::to_owned))),
        Outcome::Fails(detail) => match known(framework, side, feature) {
            Some(fault) if detail.contains(fault.symptom) => ("fault", Some(fault.evidence.to_owned())),
            Some(_) | None => ("fail", Some(shorten(&detail))),
        },
    }
}

/// Why a framework has no such thing, where its program cannot say it better.
fn absent(framework: &str, side: Side, feature: &str) -> Option<&'static str> {
    let why = match (framework, side, feature) {
        ("strands" | "crewai", Side::Client, "files") => "The class for remote agents returns text only.",
        (_, Side::Client, "card") => "The class for remote agents shows no card.",
        (_, Side::Client, "files") => "The class for remote agents shows no files.",
        (_, Side::Client, "data") => "The class for remote agents shows no data, or shows it as text.",
        (_, Side::Client, "stream") => "The class for remote agents returns the whole answer.",
        ("strands", Side::Client, "multi-turn") => {
            "`A2AAgent` sends no `contextId` and no `taskId`, so that each message begins a conversation."
        }
        ("vercel", Side::Client, "multi-turn") => {
            "The provider sends a `contextId` and no `taskId`, so that a question cannot be answered."
        }
        _ => return None,
    };
    Some(why)
}

const OWN_PROTOCOL: &str = "The package speaks a protocol of its own: `tasks/send` at `/tasks/send`, messages without an envelope at `/`, parts \
                            with `type`. Its card says `protocolVersion` 0.3.0.";
const STREAM_ONLY: &str = "The URL in the card is that of one operation, `…/v1/message:stream`, which answers `message/stream` and refuses everything \
                           else: `Input should be 'message/stream'`.";
const HISTORY_ONLY: &str = "The client reads the answer from the agent's messages in the history of a task, never from artifacts, the status or a \
                            direct message.";
const FORGETS: &str =
    "The server keeps no conversation: each message is the first for the agent, whatever its `contextId`.";
const TEXT_ONLY: &str = "The server passes the text of a message to the agent and drops the other parts.";
const NAMELESS: &str = "The contents arrive, the name does not: the framework's class for files has none.";

fn known(framework: &str, side: Side, feature: &str) -> Option<Fault> {
    match (framework, side, feature) {
        ("python-a2a", Side::Client, "send" | "direct message" | "stream" | "multi-turn") => {
            fault("-32600", OWN_PROTOCOL)
        }
        ("python-a2a", Side::Server, feature) if feature != "card" => {
            fault("Unknown content type: None", OWN_PROTOCOL)
        }
        ("agno", Side::Client, "send") => fault("got []", HISTORY_ONLY),
        ("agno", Side::Client, "direct message") => fault("got ''", HISTORY_ONLY),
        ("agno", Side::Client, "multi-turn") => fault("in ''", HISTORY_ONLY),
        ("agno", Side::Server, "send" | "multi-turn" | "get" | "files" | "data" | "errors") => {
            fault("Input should be 'message/stream'", STREAM_ONLY)
        }
        ("agno", Side::Server, "stream") => fault(
            "got `turn",
            "The answer comes as several messages, one for each piece, where the protocol has one message or a task.",
        ),
        ("ag2" | "crewai" | "agent-framework", Side::Server, "multi-turn") => fault("turn 1: ", FORGETS),
        ("crewai", Side::Server, "files") => {
            fault("You said: look", "The file does not reach the model: no message to it has `files`.")
        }
        ("agent-framework", Side::Server, "files" | "data") => fault("You said: look", TEXT_ONLY),
        ("agent-framework", Side::Client, "files") => fault("got [(None, 'text/csv', b'day", NAMELESS),
        ("adk-js" | "vercel", Side::Client, "files") => fault(r#"got [[null,"text/csv","day"#, NAMELESS),
        ("adk-js", Side::Client, "multi-turn") => fault(
            r#"in "For how many people?""#,
            "The answer to a question is sent with the `contextId` and without the `taskId`, so that it begins another task.",
        ),
        ("adk-js", Side::Server, "errors") => fault(
            "INTERNAL_ERROR",
            "An unknown task is answered with the code -32603 (`Task not found: …`) instead of -32001.",
        ),
        ("pydantic-ai", Side::Client, "data") => fault(
            "the data: expected",
            "The client writes messages of 0.3 without `kind`, as only clients of the earlier iii-a2a do. The server answers those in \
             their form, where data is indented text.",
        ),
        ("pydantic-ai", Side::Server, "data") => fault(
            "the task failed",
            "A task with a part of data fails; the bridge to Pydantic AI does not know them.",
        ),
        ("langgraph", Side::Server, "files") => fault(
            "Unsupported part type",
            "A file of 1.0 (`{\"raw\": …, \"filename\": …}`) is refused: the server knows those of 0.3 (`\"kind\": \"file\"`), though \
             its card says 1.0.",
        ),
        _ => None,
    }
}

/// What was seen, in one line that does not depend on when and where it was: without identifiers, times and ports.
fn shorten(detail: &str) -> String {
    let line = detail.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut text = String::new();
    let mut word = String::new();
    for letter in line.chars() {
        let within_a_time = is_time(&word) && matches!(letter, ':' | '.' | '+');
        if letter.is_ascii_alphanumeric() || letter == '-' || within_a_time {
            word.push(letter);
            continue;
        }
        text.push_str(&without_identity(&word, text.ends_with(':')));
        word.clear();
        text.push(letter);
    }
    text.push_str(&without_identity(&word, text.ends_with(':')));
    let short: String = text.chars().take(400).collect();
    if short.len() < text.len() { format!("{short}…") } else { text }
}

fn without_identity(word: &str, after_colon: bool) -> String {
    let is_identifier = word.len() == 36 && word.matches('-').count() == 4;
    let is_port = after_colon && word.len() == 5 && word.bytes().all(|byte| byte.is_ascii_digit());
    if is_identifier || is_time(word) || is_port { "…".to_owned() } else { word.to_owned() }
}

fn is_time(word: &str) -> bool {
    word.len() >= 10 && word.starts_with("20") && word.matches('-').count() == 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_that_is_known_shows_its_evidence_and_another_failure_shows_itself() {
        let fails = |detail: &str| Outcome::Fails(detail.to_owned());
        let (shown, note) = cell("strands", Side::Server, "send", fails("no answer"));
        assert_eq!((shown, note.as_deref()), ("fail", Some("no answer")));
        let (shown, note) =
            cell("crewai", Side::Server, "multi-turn", fails("got `turn 1: You said: and again`"));
        assert_eq!((shown, note.as_deref()), ("fault", Some(FORGETS)));
        let (shown, _) = cell("crewai", Side::Server, "multi-turn", fails("connection refused"));
        assert_eq!(shown, "fail");
    }

    #[test]
    fn what_was_seen_is_the_same_in_every_run() {
        assert_eq!(
            shorten(
                "task 0e0f5ee4-0000-4000-8000-000000000000\n at http://127.0.0.1:41481/a2a: `2026-11-18T02:00:13.58`"
            ),
            "task … at http://127.0.0.1:…/a2a: `…`"
        );
    }
}
