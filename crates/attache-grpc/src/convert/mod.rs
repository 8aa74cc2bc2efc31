//! Between the types of the model and those on the wire, in whichever version of the protocol.
//!
//! A message is one line in a table of its fields, and both directions follow from it. How a field converts is decided by
//! its two types; where protobuf cannot tell an empty string, a zero or an empty message from none, the model's type
//! says which of them is meant.
//!
//! What a peer sends is refused with the path of the field that makes no sense, named as in JSON. What we send can always
//! be converted, but for JSON that protobuf has no words for, such as half of a surrogate pair.

mod value;

use std::collections::BTreeMap;

use attache_protocol::*;

pub use self::value::Encoded;
pub(crate) use self::value::{Object, unwritable};

/// Reads what a peer sent.
pub fn to_model<P, M: Wire<P>>(proto: P) -> Result<M, Error> {
    M::from_proto(proto).map_err(|Misfit { path, description }| Error::invalid_params(path, description))
}

/// Writes what a peer is to get.
pub fn to_proto<P, M: Wire<P>>(model: M) -> Result<P, Error> {
    model.into_proto()
}

/// A type of the model that is a `P` on the wire.
pub trait Wire<P>: Sized {
    /// Writes it; see [`to_proto`].
    fn into_proto(self) -> Result<P, Error>;

    /// Reads it; see [`to_model`].
    fn from_proto(proto: P) -> Result<Self, Misfit>;
}

/// What a peer sent, where it makes no sense.
#[derive(Debug)]
pub struct Misfit {
    path: String,
    description: String,
}

impl Misfit {
    pub(crate) fn new(description: impl Into<String>) -> Self {
        Self { path: String::new(), description: description.into() }
    }

    /// Goes up in the path, to what holds the value under `name`.
    pub(crate) fn within(mut self, name: &str) -> Self {
        let dot = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        self.path = format!("{name}{dot}{}", self.path);
        self
    }

    pub(crate) fn in_field(self, snake_case: &str) -> Self {
        self.within(&camel_case(snake_case))
    }

    pub(crate) fn in_item(self, index: usize) -> Self {
        self.within(&format!("[{index}]"))
    }

    /// A key is a peer's own text, of any length.
    pub(crate) fn in_entry(self, key: &str) -> Self {
        self.within(&key.chars().take(64).collect::<String>())
    }
}

fn camel_case(snake_case: &str) -> String {
    let mut words = snake_case.split('_');
    let mut name = words.next().unwrap_or_default().to_owned();
    for word in words {
        let (first, rest) = word.split_at(word.len().min(1));
        name.push_str(&first.to_ascii_uppercase());
        name.push_str(rest);
    }
    name
}

/// The messages of a version, `proto` where the table stands. A field has the name that it has in the model; where the version
/// calls it otherwise, that follows. What the model has and the version does not is taken off.
macro_rules! messages {
    ($( $name:ident { $( $field:ident $( = $theirs:literal )? ),+ } $( - { $( $absent:ident ),+ } )? )+) => { $(
        impl Wire<proto::$name> for $name {
            fn into_proto(self) -> Result<proto::$name, Error> {
                let Self { $( $field, )+ $( $( $absent: _, )+ )? } = self;
                Ok(proto::$name { $( $field: $field.into_proto()? ),+ })
            }

            fn from_proto(proto: proto::$name) -> Result<Self, Misfit> {
                let proto::$name { $( $field ),+ } = proto;
                Ok(Self {
                    $( $field: Wire::from_proto($field)
                        .map_err(|m| m.in_field($crate::wire::field!($field $( $theirs )?)))?, )+
                    $( $( $absent: Default::default(), )+ )?
                })
            }
        }
    )+ };
}

/// The name of a field, for the path to it.
macro_rules! field {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $theirs:literal) => {
        $theirs
    };
}

/// Messages that hold nothing but a oneof.
macro_rules! oneofs {
    ($( $name:ident { $field:ident: $oneof:ident { $( $member:ident = $json:literal ),+ } } )+) => { $(
        impl Wire<proto::$name> for $name {
            fn into_proto(self) -> Result<proto::$name, Error> {
                let member = match self {
                    $( Self::$member(value) => proto::$oneof::$member(value.into_proto()?) ),+
                };
                Ok(proto::$name { $field: Some(member) })
            }

            fn from_proto(proto: proto::$name) -> Result<Self, Misfit> {
                match proto.$field {
                    $( Some(proto::$oneof::$member(value)) => {
                        Wire::from_proto(value).map(Self::$member).map_err(|m| m.within($json))
                    } )+
                    None => Err(Misfit::new(concat!(
                        "no known member is set, expected exactly one of:", $( " `", $json, "`" ),+
                    ))),
                }
            }
        }
    )+ };
}

/// Messages that are always there in the model. One that is not sent is an empty one, so that whoever checks what it
/// must contain names all of that.
macro_rules! required {
    ($( $name:ident ),+) => { $(
        impl Wire<Option<proto::$name>> for $name {
            fn into_proto(self) -> Result<Option<proto::$name>, Error> {
                self.into_proto().map(Some)
            }

            fn from_proto(proto: Option<proto::$name>) -> Result<Self, Misfit> {
                Wire::from_proto(proto.unwrap_or_default())
            }
        }
    )+ };
}

pub(crate) use {field, messages, oneofs, required};

macro_rules! enums {
    ($( $name:ident ),+) => { $(
        impl Wire<i32> for $name {
            fn into_proto(self) -> Result<i32, Error> {
                Ok(self.number())
            }

            fn from_proto(number: i32) -> Result<Self, Misfit> {
                Self::from_number(number.into()).ok_or_else(|| {
                    let known: Vec<_> = Self::ALL.iter().map(|v| format!("{} (`{v}`)", v.number())).collect();
                    Misfit::new(format!("unknown number {number}, expected one of: {}", known.join(", ")))
                })
            }
        }
    )+ };
}

enums!(TaskState, Role);

macro_rules! same_on_both_sides {
    ($( $type:ty ),+) => { $(
        impl Wire<Self> for $type {
            fn into_proto(self) -> Result<Self, Error> {
                Ok(self)
            }

            fn from_proto(proto: Self) -> Result<Self, Misfit> {
                Ok(proto)
            }
        }
    )+ };
}

same_on_both_sides!(String, bool, i32);

macro_rules! ids {
    ($( $name:ident ),+) => { $(
        impl Wire<String> for $name {
            fn into_proto(self) -> Result<String, Error> {
                Ok(self.as_str().to_owned())
            }

            fn from_proto(proto: String) -> Result<Self, Misfit> {
                Ok(Self::from(proto))
            }
        }
    )+ };
}

ids!(TaskId, ContextId);

/// Fields that protobuf always has, and whose default value means that there is none.
macro_rules! absent_if_default {
    ($( $type:ty as $proto:ty ),+) => { $(
        impl Wire<$proto> for Option<$type> {
            fn into_proto(self) -> Result<$proto, Error> {
                self.map_or_else(|| Ok(<$proto>::default()), Wire::into_proto)
            }

            fn from_proto(proto: $proto) -> Result<Self, Misfit> {
                if proto == <$proto>::default() { Ok(None) } else { Wire::from_proto(proto).map(Some) }
            }
        }
    )+ };
}

absent_if_default!(String as String, TaskId as String, ContextId as String, i32 as i32, u64 as i64);

/// The other way round: protobuf tells false from none, and the model does not care.
impl Wire<Option<Self>> for bool {
    fn into_proto(self) -> Result<Option<Self>, Error> {
        Ok(self.then_some(true))
    }

    fn from_proto(proto: Option<Self>) -> Result<Self, Misfit> {
        Ok(proto.unwrap_or_default())
    }
}

impl Wire<i64> for u64 {
    fn into_proto(self) -> Result<i64, Error> {
        Ok(i64::try_from(self).unwrap_or(i64::MAX))
    }

    fn from_proto(proto: i64) -> Result<Self, Misfit> {
        Self::try_from(proto).map_err(|_| Misfit::new(format!("{proto} is negative, expected 0 or more")))
    }
}

impl<P, T: Wire<P>> Wire<Option<P>> for Option<T> {
    fn into_proto(self) -> Result<Option<P>, Error> {
        self.map(Wire::into_proto).transpose()
    }

    fn from_proto(proto: Option<P>) -> Result<Self, Misfit> {
        proto.map(Wire::from_proto).transpose()
    }
}

impl<P, T: Wire<P>> Wire<P> for Box<T> {
    fn into_proto(self) -> Result<P, Error> {
        T::into_proto(*self)
    }

    fn from_proto(proto: P) -> Result<Self, Misfit> {
        T::from_proto(proto).map(Self::new)
    }
}

impl<P, T: Wire<P>> Wire<Vec<P>> for Vec<T> {
    fn into_proto(self) -> Result<Vec<P>, Error> {
        self.into_iter().map(Wire::into_proto).collect()
    }

    fn from_proto(proto: Vec<P>) -> Result<Self, Misfit> {
        let item = |(index, item)| T::from_proto(item).map_err(|m| m.in_item(index));
        proto.into_iter().enumerate().map(item).collect()
    }
}

impl<P, T: Wire<P>> Wire<BTreeMap<String, P>> for BTreeMap<String, T> {
    fn into_proto(self) -> Result<BTreeMap<String, P>, Error> {
        self.into_iter().map(|(key, value)| Ok((key, value.into_proto()?))).collect()
    }

    fn from_proto(proto: BTreeMap<String, P>) -> Result<Self, Misfit> {
        proto.into_iter().map(|(key, value)| entry(key, T::from_proto(value))).collect()
    }
}

fn entry<T>(key: String, value: Result<T, Misfit>) -> Result<(String, T), Misfit> {
    match value {
        Ok(value) => Ok((key, value)),
        Err(misfit) => Err(misfit.in_entry(&key)),
    }
}

impl Wire<prost_types::Timestamp> for Timestamp {
    fn into_proto(self) -> Result<prost_types::Timestamp, Error> {
        // Protobuf counts nanoseconds forward from the second before, also before 1970; the model towards 1970.
        let before = i64::from(self.subsec_nanos() < 0);
        Ok(prost_types::Timestamp {
            seconds: self.seconds() - before,
            nanos: self.subsec_nanos().rem_euclid(NANOS_PER_SECOND),
        })
    }

    fn from_proto(proto: prost_types::Timestamp) -> Result<Self, Misfit> {
        let prost_types::Timestamp { seconds, nanos } = proto;
        if !(0..NANOS_PER_SECOND).contains(&nanos) {
            return Err(Misfit::new(format!(
                "{nanos} is not a number of nanoseconds between 0 and 999999999"
            )));
        }
        Self::new(seconds, nanos).ok_or_else(|| {
            Misfit::new(format!("{seconds} seconds since 1970 is not a time between the years 1 and 9999"))
        })
    }
}

const NANOS_PER_SECOND: i32 = 1_000_000_000;
