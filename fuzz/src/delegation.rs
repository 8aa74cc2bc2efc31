//! What delegation and the client read of other agents beside tasks: cards, records, inputs, lists of agents, and parts of downloads.

use std::time::Duration;

use attache_agents::delegation::parsing::{self, ReadInput};
use attache_client::parsing::{content_range, listed_agents};
use attache_protocol::Json;
use http::header::CONTENT_RANGE;
use http::{HeaderMap, HeaderValue};
use serde_json::Value;
use url::Url;

use crate::choice;
use crate::test_server::contains;

const PASSWORD: &str = "correct-h0rse-battery";

/// The first byte chooses what the rest is.
pub fn delegation(data: &[u8]) {
    let (choice, rest) = choice(data);
    match choice % 6 {
        0 => card(rest),
        1 => record(rest),
        2 => input(rest, parsing::payload),
        3 => input(rest, parsing::query),
        4 => list(rest),
        _ => range(rest),
    }
}

/// The card that callers get has all that the agent sent. Why a document is no card is short, and has no secret of the address.
fn card(body: &[u8]) {
    let address = format!("https://u:{PASSWORD}@agents.example/cards/7.json?key={PASSWORD}");
    let url = Url::parse(&address).expect("it is a URL");
    match parsing::card(url, body) {
        Ok(card) => {
            let sent: Value = serde_json::from_slice(body).expect("it was read");
            assert!(has_all(&card.documented, &sent), "{:?} was {sent:?}", card.documented);
            assert!(card.documented["url"].is_string() || sent.get("url").is_some(), "{:?}", card.documented);
            let is_signed =
                sent.get("signatures").is_some_and(|signatures| *signatures != Value::Array(Vec::new()));
            assert_eq!(card.is_signed, is_signed);
        }
        Err(reason) => {
            assert!(reason.len() < 2000, "{reason}");
            assert!(contains(body, PASSWORD.as_bytes()) || !reason.contains(PASSWORD), "{reason}");
        }
    }
}

/// Whether a value has all members of another one.
fn has_all(value: &Value, other: &Value) -> bool {
    match (value, other) {
        (Value::Object(own), Value::Object(other)) => {
            other.iter().all(|(name, other)| own.get(name).is_some_and(|own| has_all(own, other)))
        }
        (own, other) => own == other,
    }
}

/// A record that is read and written again is the same, and callers get a task.
fn record(body: &[u8]) {
    let Ok(stored) = std::str::from_utf8(body).map_err(drop).and_then(|text| Json::parse(text).map_err(drop))
    else {
        return;
    };
    let Some(read) = parsing::record(&stored) else { return };
    let [first, output] = read.expect("what was read can be written");
    let [again, _] =
        parsing::record(&first).expect("what was written is a record").expect("and can be written");
    assert_eq!(again, first, "a record changes each time it is written");
    let output: Value = output.read().expect("it is JSON");
    assert!(output["id"].is_string() && output["status"]["state"].is_string(), "{output}");
    assert!(output["metadata"]["agentUrl"].is_string(), "{output}");
}

fn input<E: std::fmt::Display>(body: &[u8], parse: impl Fn(&str) -> Result<ReadInput, E>) {
    let text = String::from_utf8_lossy(body);
    match parse(&text) {
        Ok(ReadInput { task, wait }) => {
            assert!(wait.is_none_or(|wait| wait <= Duration::from_secs(600)), "{wait:?}");
            assert!(task.is_none_or(|task| !task.is_empty()), "an id that is empty");
        }
        Err(error) => {
            let shown = error.to_string();
            assert!(!shown.is_empty() && shown.len() < 1000 + 8 * text.len(), "{shown}");
        }
    }
}

/// Every agent of a list is one that the server listed.
fn list(body: &[u8]) {
    let Ok((agents, next)) = listed_agents(body) else { return };
    let Ok(value @ Value::Object(_)) = serde_json::from_slice::<Value>(body) else { return };
    let rows = value["agents"].as_array().expect("it was read");
    assert_eq!(agents.len(), rows.len());
    for (agent, row) in agents.iter().zip(rows).filter(|(_, row)| row.is_object()) {
        assert_eq!((Some(&*agent.name), Some(&*agent.url)), (row["name"].as_str(), row["url"].as_str()));
    }
    assert_eq!(next, value["nextPageToken"].as_str().unwrap_or_default());
}

/// The position of a part is within the whole.
fn range(text: &[u8]) {
    let Ok(value) = HeaderValue::from_bytes(text) else { return };
    let headers = HeaderMap::from_iter([(CONTENT_RANGE, value)]);
    let Some((first, total)) = content_range(&headers) else { return };
    let text = String::from_utf8_lossy(text);
    let numbers: Vec<u64> = text
        .split(|c: char| !c.is_ascii_digit())
        .filter(|digits| !digits.is_empty())
        .map(|digits| digits.parse().expect("it was read"))
        .collect();
    match (numbers.as_slice(), total) {
        ([from, to], None) => assert!(*from == first && from <= to, "{text}"),
        ([from, to, size], Some(total)) => {
            assert!(*from == first && *size == total && from <= to && to < size, "{text}");
        }
        (_, _) => panic!("{first} {total:?}: {text}"),
    }
}
