//! Our JSON against that of `a2a-pb`, which is generated from the protobuf definition.
//!
//! These tests make exceptions where the oracle differs: it has no generations of protocol 1.1, all its numbers are doubles, and
//! it reads `"data": null` as absent data. A test at the end of this file documents each difference.

#[macro_use]
mod arbitrary;
mod theirs;
mod wire;

use std::fmt::Debug;

use a2a_pb::protojson as oracle;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Number, Value};

use crate::arbitrary::check;
use crate::wire::{for_each_member, for_each_message, snake_case};

/// A type that can be written as JSON and read back.
trait Wire: Serialize + DeserializeOwned + PartialEq + Debug {}
impl<T: Serialize + DeserializeOwned + PartialEq + Debug> Wire for T {}

fn print<T: Wire>(value: &T) -> String {
    serde_json::to_string(value).expect("a value that can be written")
}

fn read<T: Wire>(text: &str) -> Result<T, TestCaseError> {
    serde_json::from_str(text).map_err(|error| {
        let whose = std::any::type_name::<T>();
        TestCaseError::fail(format!("{whose} rejects it: {error}\n{text}"))
    })
}

/// The JSON of a value without the members of protocol 1.1.
fn json<T: Wire>(value: &T) -> Value {
    let mut json = serde_json::to_value(value).expect("a value that can be written");
    for_each_message(&mut json, &mut |members| {
        members.retain(|name, _| {
            !["generation", "currentGeneration", "ifGenerationMatch"].contains(&name.as_str())
        });
    });
    json
}

/// The value as the oracle represents it: without generations, and with doubles for numbers.
fn known<T: Wire>(value: &T) -> Value {
    let mut json = json(value);
    doubles(&mut json);
    json
}

fn doubles(json: &mut Value) {
    match json {
        Value::Number(number) => {
            *number = number.as_f64().and_then(Number::from_f64).expect("a finite number")
        }
        Value::Array(items) => items.iter_mut().for_each(doubles),
        Value::Object(members) => members.values_mut().for_each(doubles),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

fn the_oracle_reads_and_writes_our_json_unchanged<Ours: Wire, Theirs: Wire>(
    ours: Ours,
) -> Result<(), TestCaseError> {
    let theirs: Theirs = read(&print(&ours))?;
    let back: Ours = read(&print(&theirs))?;
    prop_assert_eq!(known(&back), known(&ours));
    Ok(())
}

fn we_read_and_write_the_json_of_the_oracle_unchanged<Ours: Wire, Theirs: Wire>(
    theirs: Theirs,
) -> Result<(), TestCaseError> {
    let ours: Ours = read(&print(&theirs))?;
    let back: Theirs = read(&print(&ours))?;
    prop_assert_eq!(back, theirs);
    Ok(())
}

/// A variation that ProtoJSON allows a writer.
#[derive(Debug, Clone, Copy)]
enum Liberty {
    SnakeCaseNames,
    NumbersForEnums,
    StringsForIntegers,
    Base64(Alphabet),
    Offset { minutes: i32 },
    UnknownMembers,
    Layout,
}

#[derive(Debug, Clone, Copy)]
enum Alphabet {
    Unpadded,
    UrlSafe,
    UrlSafeUnpadded,
}

fn liberty() -> impl Strategy<Value = Liberty> {
    prop_oneof![
        Just(Liberty::SnakeCaseNames),
        Just(Liberty::NumbersForEnums),
        Just(Liberty::StringsForIntegers),
        select(vec![Alphabet::Unpadded, Alphabet::UrlSafe, Alphabet::UrlSafeUnpadded])
            .prop_map(Liberty::Base64),
        (-1439..=1439).prop_map(|minutes| Liberty::Offset { minutes }),
        Just(Liberty::UnknownMembers),
        Just(Liberty::Layout),
    ]
}

impl Liberty {
    fn take(self, json: &mut Value) {
        match self {
            Self::SnakeCaseNames => for_each_message(json, &mut |members| {
                let renamed =
                    std::mem::take(members).into_iter().map(|(name, value)| (snake_case(&name), value));
                members.extend(renamed);
            }),
            Self::NumbersForEnums => for_each_member(json, &mut |name, value| {
                let number = match (name, value.as_str()) {
                    ("role", Some(role)) => oracle::Role::from_str_name(role).map(|role| role as i32),
                    ("state" | "status", Some(state)) => {
                        oracle::TaskState::from_str_name(state).map(|state| state as i32)
                    }
                    _ => None,
                };
                if let Some(number) = number {
                    *value = number.into();
                }
            }),
            Self::StringsForIntegers => for_each_member(json, &mut |name, value| {
                if let ("historyLength" | "pageSize" | "totalSize", Some(number)) = (name, value.as_i64()) {
                    *value = number.to_string().into();
                }
            }),
            Self::Base64(alphabet) => for_each_member(json, &mut |name, value| {
                if let ("raw", Some(bytes)) = (name, value.as_str().map(|raw| STANDARD.decode(raw))) {
                    let bytes = bytes.expect("base64");
                    *value = match alphabet {
                        Alphabet::Unpadded => STANDARD_NO_PAD.encode(bytes),
                        Alphabet::UrlSafe => URL_SAFE.encode(bytes),
                        Alphabet::UrlSafeUnpadded => URL_SAFE_NO_PAD.encode(bytes),
                    }
                    .into();
                }
            }),
            Self::Offset { minutes } => for_each_member(json, &mut |name, value| {
                if let ("timestamp" | "statusTimestampAfter", Some(text)) = (name, value.as_str()) {
                    let time: jiff::Timestamp = text.parse().expect("a timestamp");
                    let offset = jiff::tz::Offset::from_seconds(minutes * 60).expect("an offset");
                    let local = offset.to_datetime(time);
                    // Near the first and the last year, the local year may not have four digits.
                    if (1..=9999).contains(&local.year()) {
                        let (sign, minutes) = (if minutes < 0 { '-' } else { '+' }, minutes.abs());
                        *value = format!("{local}{sign}{:02}:{:02}", minutes / 60, minutes % 60).into();
                    }
                }
            }),
            Self::UnknownMembers => for_each_message(json, &mut |members| {
                members.insert("0".to_owned(), Value::Null);
                members
                    .insert("kind".to_owned(), serde_json::json!({"role": "none", "state": [{"text": 1}]}));
                members.insert("zzz".to_owned(), 1e300.into());
            }),
            Self::Layout => {}
        }
    }

    fn write(self, json: &Value) -> String {
        match self {
            Self::Layout => serde_json::to_string_pretty(json).expect("JSON"),
            Self::SnakeCaseNames
            | Self::NumbersForEnums
            | Self::StringsForIntegers
            | Self::Base64(_)
            | Self::Offset { .. }
            | Self::UnknownMembers => json.to_string(),
        }
    }
}

fn a_variation_that_the_oracle_accepts_is_accepted<Ours: Wire, Theirs: Wire>(
    (ours, liberty): (Ours, Liberty),
) -> Result<(), TestCaseError> {
    let mut json = json(&ours);
    liberty.take(&mut json);
    let text = liberty.write(&json);
    prop_assert_eq!(read::<Theirs>(&text)?, read::<Theirs>(&print(&ours))?);
    prop_assert_eq!(known(&read::<Ours>(&text)?), known(&ours));
    Ok(())
}

/// The oracle accepts `null` for messages, lists and optional fields, and rejects it elsewhere.
fn a_null_that_the_oracle_accepts_is_accepted<Ours: Wire, Theirs: Wire>(
    (ours, nulls): (Ours, Vec<Index>),
) -> Result<(), TestCaseError> {
    let mut json = json(&ours);
    let mut count = 0;
    for_each_member(&mut json, &mut |_, _| count += 1);
    let chosen: Vec<_> = nulls.iter().filter(|_| count > 0).map(|index| index.index(count)).collect();
    let mut at = 0;
    for_each_member(&mut json, &mut |name, value| {
        if chosen.contains(&at) && name != "data" {
            *value = Value::Null;
        }
        at += 1;
    });
    let text = json.to_string();
    let Ok(theirs) = serde_json::from_str::<Theirs>(&text) else {
        return Ok(());
    };
    match serde_json::from_str::<Ours>(&text) {
        Ok(ours) => prop_assert_eq!(known(&ours), known(&read::<Ours>(&print(&theirs))?)),
        // A oneof has lost its only member, which the oracle accepts.
        Err(error) => prop_assert!(error.to_string().contains("exactly one of"), "{}\n{}", error, text),
    }
    Ok(())
}

macro_rules! promises {
    ($($type:ident => $strategy:ident),+ $(,)?) => { $(
        mod $strategy {
            use super::*;
            type Ours = attache_protocol::$type;
            type Theirs = oracle::$type;

            #[test]
            fn the_oracle_reads_and_writes_our_json_unchanged() {
                check(arbitrary::$strategy(), super::the_oracle_reads_and_writes_our_json_unchanged::<Ours, Theirs>);
            }

            #[test]
            fn we_read_and_write_the_json_of_the_oracle_unchanged() {
                check(theirs::$strategy(), super::we_read_and_write_the_json_of_the_oracle_unchanged::<Ours, Theirs>);
            }

            #[test]
            fn a_variation_that_the_oracle_accepts_is_accepted() {
                let cases = (arbitrary::$strategy(), liberty());
                check(cases, super::a_variation_that_the_oracle_accepts_is_accepted::<Ours, Theirs>);
            }

            #[test]
            fn a_null_that_the_oracle_accepts_is_accepted() {
                let cases = (arbitrary::$strategy(), prop::collection::vec(any::<Index>(), 1..3));
                check(cases, super::a_null_that_the_oracle_accepts_is_accepted::<Ours, Theirs>);
            }
        }
    )+ };
}

for_every_message!(promises);

/// Texts that are timestamps, or similar to timestamps.
fn nearly_a_timestamp() -> impl Strategy<Value = String> {
    let date = (select(vec![0, 1, 1969, 1970, 2024, 2026, 9999]), 0..=13, 0..=32)
        .prop_map(|(year, month, day)| format!("{year:04}-{month:02}-{day:02}"));
    // Leap seconds are not tested: one side maps them to the previous second, the other counts nanoseconds above 10^9.
    let time = (0..=24, 0..=60, 0..=59)
        .prop_map(|(hour, minute, second)| format!("{hour:02}:{minute:02}:{second:02}"));
    let likely = (1..=28, 0..=23).prop_map(|(day, hour)| format!("2026-02-{day:02}T{hour:02}:59:00"));
    let fraction = prop_oneof![Just(String::new()), "\\.[0-9]{0,10}"];
    let zone = prop_oneof![
        3 => Just("Z".to_owned()),
        3 => (-24..=24, 0..=60).prop_map(|(hour, minute)| format!("{hour:+03}:{minute:02}")),
        1 => "[zZ+-]?[0-9:]{0,6}",
    ];
    let local = prop_oneof![
        likely,
        (date, select(vec!["T", "T", "T", "t", " "]), time).prop_map(|(d, t, c)| d + t + &c)
    ];
    (local, fraction, zone).prop_map(|(local, fraction, zone)| local + &fraction + &zone)
}

#[test]
fn a_timestamp_means_the_same_to_both() {
    check(nearly_a_timestamp(), |text| {
        let ours = text.parse::<attache_protocol::Timestamp>().ok();
        let theirs: Option<oracle::TaskStatus> =
            serde_json::from_value(serde_json::json!({"timestamp": text})).ok();
        let theirs = theirs.and_then(|status| status.timestamp).map(|time| (time.seconds, time.nanos));
        // The oracle also accepts text that ProtoJSON does not: lower-case letters, a space, ten fraction digits, the year zero.
        let protojson = !text.contains(['t', 'z', ' '])
            && text
                .find('.')
                .is_none_or(|at| text[at + 1..].bytes().take_while(u8::is_ascii_digit).count() <= 9);
        let years = -62_135_596_800..=253_402_207_200;
        let theirs = theirs.filter(|(seconds, _)| protojson && years.contains(seconds));
        prop_assert_eq!(
            ours,
            theirs.and_then(|(seconds, nanos)| attache_protocol::Timestamp::new(seconds, nanos))
        );
        Ok(())
    });
}

/// Differences between the oracle and the protocol. We follow the protocol.
mod differences {
    use super::*;

    fn rewritten<T: Wire>(text: &str) -> Option<String> {
        serde_json::from_str::<T>(text).ok().map(|value| print(&value))
    }

    /// The result of reading and writing `text`, by us and by the oracle. `None` if it is rejected.
    macro_rules! both {
        ($type:ident, $text:expr) => {
            (rewritten::<attache_protocol::$type>($text), rewritten::<oracle::$type>($text))
        };
    }

    fn wrote(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn null_is_a_value_of_data() {
        assert_eq!(both!(Part, r#"{"data":null}"#), (wrote(r#"{"data":null}"#), wrote("{}")));
    }

    #[test]
    fn null_is_absent_even_for_strings_and_enums_and_beside_the_member_of_a_oneof() {
        let message = r#"{"messageId":"","role":"ROLE_UNSPECIFIED","parts":[]}"#;
        assert_eq!(both!(Message, r#"{"taskId":null}"#), (wrote(message), None));
        assert_eq!(both!(Message, r#"{"role":null}"#), (wrote(message), None));
        assert_eq!(both!(Part, r#"{"text":"a","url":null}"#), (wrote(r#"{"text":"a"}"#), None));
    }

    #[test]
    fn integers_of_data_and_metadata_are_exact() {
        let data = r#"{"data":9007199254740993}"#;
        assert_eq!(both!(Part, data), (wrote(data), None));
        assert_eq!(both!(Part, r#"{"data":5}"#), (wrote(r#"{"data":5}"#), wrote(r#"{"data":5.0}"#)));
    }

    #[test]
    fn an_integer_may_have_a_zero_fraction() {
        assert_eq!(
            both!(GetTaskRequest, r#"{"id":"t","historyLength":2.0}"#),
            (wrote(r#"{"id":"t","historyLength":2}"#), None)
        );
    }

    #[test]
    fn base64_may_end_in_bits_that_nobody_needs() {
        assert_eq!(both!(Part, r#"{"raw":"YR"}"#), (wrote(r#"{"raw":"YQ=="}"#), None));
    }

    #[test]
    fn timestamps_are_written_with_z_and_milliseconds() {
        let (ours, theirs) = both!(TaskStatus, r#"{"timestamp":"2026-01-02T03:04:05Z"}"#);
        assert!(ours.unwrap().contains(r#""2026-01-02T03:04:05.000Z""#));
        assert!(theirs.unwrap().contains(r#""2026-01-02T03:04:05+00:00""#));
    }

    #[test]
    fn the_last_day_of_protobuf_is_out_of_range() {
        let late = r#"{"timestamp":"9999-12-31T23:59:59Z"}"#;
        assert_eq!(both!(TaskStatus, late), (None, wrote(r#"{"timestamp":"9999-12-31T23:59:59+00:00"}"#)));
    }

    #[test]
    fn required_members_are_written_even_where_they_are_empty() {
        let task = r#"{"id":"","status":{"state":"TASK_STATE_UNSPECIFIED"}}"#;
        assert_eq!(both!(Task, "{}"), (wrote(task), wrote("{}")));
    }

    #[test]
    fn a_default_is_not_written_where_there_is_presence_but_no_difference() {
        let (ours, theirs) = both!(ListTasksRequest, r#"{"includeArtifacts":false}"#);
        assert_eq!((ours, theirs), (wrote("{}"), wrote(r#"{"includeArtifacts":false}"#)));
    }

    #[test]
    fn a_oneof_without_a_member_is_rejected() {
        assert_eq!(both!(Part, "{}"), (None, wrote("{}")));
        assert_eq!(both!(StreamResponse, "{}"), (None, wrote("{}")));
        assert_eq!(both!(SendMessageResponse, "{}"), (None, wrote("{}")));
        assert_eq!(both!(SecurityScheme, "{}"), (None, wrote("{}")));
        assert_eq!(both!(OAuthFlows, "{}"), (None, wrote("{}")));
        assert_eq!(both!(OAuth2SecurityScheme, "{}"), (None, wrote("{}")));
    }

    #[test]
    fn generations_are_not_known_before_protocol_1_1() {
        let (ours, theirs) = both!(GetTaskRequest, r#"{"id":"t","currentGeneration":"7"}"#);
        assert_eq!((ours, theirs), (wrote(r#"{"id":"t","currentGeneration":"7"}"#), wrote(r#"{"id":"t"}"#)));
    }
}
