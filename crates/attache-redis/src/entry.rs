//! Entries of streams, as Redis returns them.

#![expect(clippy::wildcard_enum_match_arm, reason = "the enums of the library are not exhaustive")]

use redis::{ErrorKind, RedisError, Value};

/// The names of the fields of entries.
///
/// A request has `correlation_id`, `reply_stream` and `payload`, and a response has `correlation_id`, `payload` and `final`. The others
/// are optional, and peers that do not know them ignore them.
pub mod field {
    /// What a response has in common with its request.
    pub const CORRELATION_ID: &str = "correlation_id";
    /// The stream that the responses are added to.
    pub const REPLY_STREAM: &str = "reply_stream";
    /// The JSON-RPC request or response.
    pub const PAYLOAD: &str = "payload";
    /// `true` in the last response to a request, otherwise `false`.
    pub const FINAL: &str = "final";
    /// In a request: service parameters and credentials, as a JSON object of strings.
    pub const HEADERS: &str = "headers";
    /// In a request: `true` if the client keeps its reply stream until it ends, and ignores responses without a payload. In a response:
    /// `true` if it only says that the server is there.
    pub const HEARTBEAT: &str = "heartbeat";
    /// In a response: the number of the event, to resume after.
    pub const EVENT: &str = "event";
    /// In a response that is part of a stream: its position there, from 0.
    pub const INDEX: &str = "index";
    /// In an entry of the dead stream: why the entry was refused.
    pub const REASON: &str = "reason";
    /// In an entry of the dead stream: the id that the entry had.
    pub const ENTRY_ID: &str = "entry_id";
    /// The named agent that a request is for.
    pub const AGENT: &str = "agent";
}

/// An entry of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its id.
    pub id: String,
    /// Its fields in their order. Nothing if the entry was deleted.
    pub fields: Option<Vec<(Vec<u8>, Vec<u8>)>>,
}

impl Entry {
    /// The value of a field.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        let mut fields = self.fields.iter().flatten();
        fields.find(|(own, _)| own == name.as_bytes()).map(|(_, value)| value.as_slice())
    }

    /// The size of all names and values, in bytes.
    pub fn size(&self) -> usize {
        self.fields.iter().flatten().map(|(name, value)| name.len() + value.len()).sum()
    }
}

fn unexpected(what: &'static str) -> RedisError {
    (ErrorKind::UnexpectedReturnType, "Redis returned something unexpected", what.to_owned()).into()
}

fn text(value: Value) -> Result<String, RedisError> {
    match value {
        Value::BulkString(bytes) => {
            String::from_utf8(bytes).map_err(|_| unexpected("an id that is not text"))
        }
        Value::SimpleString(text) => Ok(text),
        _ => Err(unexpected("an id that is not text")),
    }
}

fn bytes(value: Value) -> Result<Vec<u8>, RedisError> {
    match value {
        Value::BulkString(bytes) => Ok(bytes),
        Value::SimpleString(text) => Ok(text.into_bytes()),
        Value::Int(number) => Ok(number.to_string().into_bytes()),
        _ => Err(unexpected("a field that is not a string")),
    }
}

/// One entry: its id and a list of names and values, or nil for a deleted one.
fn entry(value: Value) -> Result<Option<Entry>, RedisError> {
    let Value::Array(pair) = value else {
        return if value == Value::Nil { Ok(None) } else { Err(unexpected("an entry that is not a list")) };
    };
    let mut pair = pair.into_iter();
    let (Some(id), Some(values)) = (pair.next(), pair.next()) else {
        return Err(unexpected("half an entry"));
    };
    let id = text(id)?;
    let fields = match values {
        Value::Nil => None,
        Value::Array(values) => {
            let mut fields = Vec::with_capacity(values.len() / 2);
            let mut values = values.into_iter();
            while let (Some(name), Some(value)) = (values.next(), values.next()) {
                fields.push((bytes(name)?, bytes(value)?));
            }
            Some(fields)
        }
        _ => return Err(unexpected("fields that are not a list")),
    };
    Ok(Some(Entry { id, fields }))
}

/// The entries in the reply to `XRANGE` or `XCLAIM`. Deleted ones are left out.
pub fn list(value: Value) -> Result<Vec<Entry>, RedisError> {
    match value {
        Value::Array(values) => values.into_iter().filter_map(|value| entry(value).transpose()).collect(),
        Value::Nil => Ok(Vec::new()),
        _ => Err(unexpected("entries that are not a list")),
    }
}

/// The entries in the reply to `XREAD` or `XREADGROUP` of one stream.
pub fn entries(reply: Value) -> Result<Vec<Entry>, RedisError> {
    let Value::Array(streams) = reply else {
        return if reply == Value::Nil {
            Ok(Vec::new())
        } else {
            Err(unexpected("streams that are not a list"))
        };
    };
    let mut all = Vec::new();
    for stream in streams {
        let Value::Array(named) = stream else { return Err(unexpected("a stream that is not a list")) };
        let Some(entries) = named.into_iter().nth(1) else {
            return Err(unexpected("a stream without entries"));
        };
        all.extend(list(entries)?);
    }
    Ok(all)
}

/// The entries in the reply to `XCLAIM`, which were taken over.
pub fn claimed(reply: Value) -> Result<Vec<Entry>, RedisError> {
    list(reply)
}

/// The reply to `XPENDING` with a range: each id, with how often the entry was delivered.
pub fn pending_ids(reply: Value) -> Result<Vec<(String, u64)>, RedisError> {
    let Value::Array(rows) = reply else { return Err(unexpected("pending entries that are not a list")) };
    let row = |row| {
        let Value::Array(cells) = row else { return Err(unexpected("a pending entry that is not a list")) };
        let mut cells = cells.into_iter();
        let (Some(id), Some(Value::Int(count))) = (cells.next(), cells.nth(2)) else {
            return Err(unexpected("half a pending entry"));
        };
        Ok((text(id)?, u64::try_from(count).unwrap_or(0)))
    };
    rows.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn string(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn entries_of_a_read_have_their_fields_in_order() {
        let one = Value::Array(vec![
            string("1-0"),
            Value::Array(vec![string("a"), string("1"), string("b"), string("2")]),
        ]);
        let deleted = Value::Array(vec![string("2-0"), Value::Nil]);
        let reply =
            Value::Array(vec![Value::Array(vec![string("stream"), Value::Array(vec![one, deleted])])]);
        let read = entries(reply).unwrap();
        assert_eq!(
            (read[0].id.as_str(), read[0].get("b"), read[0].size()),
            ("1-0", Some(b"2".as_slice()), 4)
        );
        assert_eq!((read[1].id.as_str(), read[1].fields.is_none()), ("2-0", true));
        assert!(entries(Value::Nil).unwrap().is_empty());
        assert!(entries(string("x")).is_err());
    }

    #[test]
    fn a_claim_skips_deleted_entries() {
        let one = Value::Array(vec![string("1-0"), Value::Array(vec![])]);
        let entries = claimed(Value::Array(vec![one, Value::Nil])).unwrap();
        assert_eq!(entries.iter().map(|entry| entry.id.as_str()).collect::<Vec<_>>(), ["1-0"]);
        assert!(claimed(string("x")).is_err());
    }

    #[test]
    fn pending_entries_have_the_number_of_their_deliveries() {
        let row = Value::Array(vec![string("1-0"), string("c"), Value::Int(5), Value::Int(3)]);
        assert_eq!(pending_ids(Value::Array(vec![row])).unwrap(), [("1-0".to_owned(), 3)]);
    }
}
