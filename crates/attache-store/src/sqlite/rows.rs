//! How values become columns, and back.

use std::sync::Arc;

use attache_core::{EndedTask, Entry, Seq, StoredEndedTask, TaskEvent};
use attache_protocol::{StreamResponse, Task, TaskId, TaskState, Timestamp};
use rusqlite::types::{FromSqlError, FromSqlResult, ToSqlOutput, Value, ValueRef};
use rusqlite::{Row, ToSql};

use super::fault::Fault;

/// An id as a column: the bytes of a UUID in its usual form, or else the text.
pub(super) struct Id<'a>(pub(super) &'a str);

const HYPHENS: [usize; 4] = [8, 13, 18, 23];

impl Id<'_> {
    fn uuid(&self) -> Option<[u8; 16]> {
        let text: &[u8; 36] = self.0.as_bytes().try_into().ok()?;
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let (mut uuid, mut at) = ([0; 16], 0);
        for byte in &mut uuid {
            if HYPHENS.contains(&at) {
                if text[at] != b'-' {
                    return None;
                }
                at += 1;
            }
            *byte = digit(text[at])? << 4 | digit(text[at + 1])?;
            at += 2;
        }
        Some(uuid)
    }

    /// The column's value.
    pub(super) fn to_value(&self) -> Value {
        match self.uuid() {
            Some(uuid) => Value::Blob(uuid.to_vec()),
            None => Value::Text(self.0.to_owned()),
        }
    }

    /// The text of an id from its column.
    pub(super) fn read(value: ValueRef<'_>) -> FromSqlResult<String> {
        match value {
            ValueRef::Text(text) => Ok(String::from_utf8_lossy(text).into_owned()),
            ValueRef::Blob(bytes) if bytes.len() == 16 => {
                let mut text = String::with_capacity(36);
                for (i, byte) in bytes.iter().enumerate() {
                    if matches!(i, 4 | 6 | 8 | 10) {
                        text.push('-');
                    }
                    for digit in [byte >> 4, byte & 15] {
                        text.push(char::from_digit(digit.into(), 16).unwrap_or('0'));
                    }
                }
                Ok(text)
            }
            ValueRef::Blob(_) | ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => {
                Err(FromSqlError::InvalidType)
            }
        }
    }
}

impl ToSql for Id<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self.uuid() {
            Some(uuid) => ToSqlOutput::Owned(Value::Blob(uuid.to_vec())),
            None => ToSqlOutput::Borrowed(ValueRef::Text(self.0.as_bytes())),
        })
    }
}

/// How many bits of a row's id in the log tell the place of its first event.
const PLACE_BITS: u32 = 26;

/// The longest log that a task can have.
pub(super) const MAX_SEQ: u64 = (1 << PLACE_BITS) - 1;

/// The id of the row in the log that begins with an event: the task's number, then the event's place.
pub(super) const fn place(task: i64, seq: u64) -> i64 {
    task << PLACE_BITS | seq as i64
}

/// The place of the first event in a row of the log.
pub(super) const fn first_seq(id: i64) -> u64 {
    id as u64 & MAX_SEQ
}

/// A point in time as a column, brought into the years that fit.
pub(super) fn nanos_of(time: Timestamp) -> i64 {
    time.as_nanos().clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

/// A point in time from its column.
pub(super) fn time_of(nanos: i64) -> Timestamp {
    const SECOND: i64 = 1_000_000_000;
    Timestamp::new(nanos.div_euclid(SECOND), nanos.rem_euclid(SECOND) as i32).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// When a task got its status.
pub(super) fn status_nanos(task: &Task) -> i64 {
    nanos_of(task.status.timestamp.unwrap_or(Timestamp::UNIX_EPOCH))
}

pub(super) fn state_of(number: i64) -> TaskState {
    TaskState::from_number(number).unwrap_or_default()
}

pub(super) fn seq_of(number: i64) -> Seq {
    Seq(number as u64)
}

/// Writes events as a row of the log keeps them: as an array.
pub(super) fn write_events(events: &[TaskEvent]) -> Vec<u8> {
    let mut out = Vec::with_capacity(512 * events.len());
    for event in events {
        out.push(if out.is_empty() { b'[' } else { b',' });
        event.write(&mut out);
    }
    out.push(b']');
    out
}

/// Reads the events of a row of the log.
pub(super) fn read_events(row: i64, events: &[u8]) -> Result<Vec<(Seq, TaskEvent)>, serde_json::Error> {
    let events: Vec<StreamResponse> = serde_json::from_slice(events)?;
    let first = Seq(first_seq(row));
    Ok(events.into_iter().enumerate().map(|(i, event)| (first.plus(i), event.into())).collect())
}

/// Gives events their places in the log.
pub(super) fn entries(events: Vec<(Seq, TaskEvent)>) -> impl Iterator<Item = Arc<Entry>> {
    events.into_iter().map(|(seq, event)| Arc::new(Entry::new(seq, event)))
}

pub(super) fn unreadable(what: &str, task: &TaskId, error: serde_json::Error) -> Fault {
    Fault::Unreadable { what: format!("{what} of task `{task}`"), error }
}

/// Where messages begin, as a column.
pub(super) fn write_marks(marks: &[u32]) -> Vec<u8> {
    marks.iter().flat_map(|mark| mark.to_le_bytes()).collect()
}

/// The task of a row from four columns, of which those that were not asked for are null.
pub(super) fn read_ended(row: &Row<'_>, from: usize, task: &TaskId) -> Result<Arc<EndedTask>, Fault> {
    let blob = |at: usize| -> rusqlite::Result<Vec<u8>> {
        Ok(row.get_ref(from + at)?.as_blob_or_null()?.unwrap_or_default().to_vec())
    };
    let marks = blob(1)?;
    let (marks, _) = marks.as_chunks();
    let pieces = StoredEndedTask {
        head: blob(0)?,
        messages: marks.iter().map(|mark| u32::from_le_bytes(*mark)).collect(),
        history: blob(2)?,
        artifacts: blob(3)?,
    };
    EndedTask::from_stored(pieces).map(Arc::new).map_err(|error| unreadable("the final form", task, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_back_as_they_were() {
        for id in [
            "0198c5a1-2b3c-7d4e-8f50-123456789abc",
            "0198C5A1-2B3C-7D4E-8F50-123456789ABC",
            "0198c5a1+2b3c-7d4e-8f50-123456789abc",
            "0198c5a12b3c7d4e8f50123456789abc",
            "",
            "täsk",
            "\u{0}",
        ] {
            let column = Id(id);
            let value = match column.to_sql().unwrap() {
                ToSqlOutput::Owned(value) => value,
                ToSqlOutput::Borrowed(value) => value.try_into().unwrap(),
                _ => panic!("neither"),
            };
            assert_eq!(matches!(value, Value::Blob(_)), id.starts_with("0198c5a1-"));
            assert_eq!(Id::read(ValueRef::from(&value)).unwrap(), id);
        }
    }

    #[test]
    fn times_come_back_as_they_were() {
        for (seconds, nanos) in [(0, 0), (1_790_000_000, 123_456_789), (-5, -7), (-1, 0)] {
            let time = Timestamp::new(seconds, nanos).unwrap();
            assert_eq!(time_of(nanos_of(time)), time);
        }
    }
}
