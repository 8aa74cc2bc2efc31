//! Converts between the types of the model and the protobuf messages of all versions.
//!
//! A table has one line with the fields of each message, and generates both directions. The two types of a field decide how it
//! converts. Protobuf cannot distinguish an empty string, a zero or an empty message from an absent one. There the type of the
//! model decides.
//!
//! An invalid message of a peer is an error with the path of the field, in the names of JSON. Our own values can always be
//! converted, except for JSON that protobuf cannot represent, such as half of a surrogate pair.

mod value;

use std::collections::BTreeMap;

use attache_protocol::*;

pub use self::value::Encoded;
pub(crate) use self::value::{Object, unwritable};

/// Converts a message of a peer.
pub fn to_model<P, M: ProtoConvert<P>>(proto: P) -> Result<M, Error> {
    M::from_proto(proto)
        .map_err(|ConvertError { path, description }| Error::invalid_params(path, description))
}

/// Converts a value for a peer.
pub fn to_proto<P, M: ProtoConvert<P>>(model: M) -> Result<P, Error> {
    model.into_proto()
}

/// A type of the model that is a `P` in protobuf.
pub trait ProtoConvert<P>: Sized {
    /// Converts to protobuf; see [`to_proto`].
    fn into_proto(self) -> Result<P, Error>;

    /// Converts from protobuf; see [`to_model`].
    fn from_proto(proto: P) -> Result<Self, ConvertError>;
}

/// A value of a peer is invalid.
#[derive(Debug)]
pub struct ConvertError {
    path: String,
    description: String,
}

impl ConvertError {
    pub(crate) fn new(description: impl Into<String>) -> Self {
        Self { path: String::new(), description: description.into() }
    }

    /// Adds the name of the enclosing field to the path.
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

    /// Adds a key to the path. It is cut, since a peer may send a key of any length.
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

/// Converts the messages in the module `proto`. A field has the name that it has in the model, followed by its name in the
/// version if that is different. After `-` come the fields of the model that the version does not have.
macro_rules! messages {
    ($( $name:ident { $( $field:ident $( = $theirs:literal )? ),+ } $( - { $( $absent:ident ),+ } )? )+) => { $(
        impl ProtoConvert<proto::$name> for $name {
            fn into_proto(self) -> Result<proto::$name, Error> {
                let Self { $( $field, )+ $( $( $absent: _, )+ )? } = self;
                Ok(proto::$name { $( $field: $field.into_proto()? ),+ })
            }

            fn from_proto(proto: proto::$name) -> Result<Self, ConvertError> {
                let proto::$name { $( $field ),+ } = proto;
                Ok(Self {
                    $( $field: ProtoConvert::from_proto($field)
                        .map_err(|e| e.in_field($crate::convert::field!($field $( $theirs )?)))?, )+
                    $( $( $absent: Default::default(), )+ )?
                })
            }
        }
    )+ };
}

/// The name of a field in a path.
macro_rules! field {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $theirs:literal) => {
        $theirs
    };
}

/// Converts messages that only have a oneof.
macro_rules! oneofs {
    ($( $name:ident { $field:ident: $oneof:ident { $( $member:ident = $json:literal ),+ } } )+) => { $(
        impl ProtoConvert<proto::$name> for $name {
            fn into_proto(self) -> Result<proto::$name, Error> {
                let member = match self {
                    $( Self::$member(value) => proto::$oneof::$member(value.into_proto()?) ),+
                };
                Ok(proto::$name { $field: Some(member) })
            }

            fn from_proto(proto: proto::$name) -> Result<Self, ConvertError> {
                match proto.$field {
                    $( Some(proto::$oneof::$member(value)) => {
                        ProtoConvert::from_proto(value).map(Self::$member).map_err(|e| e.within($json))
                    } )+
                    None => Err(ConvertError::new(concat!(
                        "no known member is set, expected exactly one of:", $( " `", $json, "`" ),+
                    ))),
                }
            }
        }
    )+ };
}

/// Converts messages that the model requires. An absent message becomes an empty one, so that validation reports all its missing
/// fields.
macro_rules! required {
    ($( $name:ident ),+) => { $(
        impl ProtoConvert<Option<proto::$name>> for $name {
            fn into_proto(self) -> Result<Option<proto::$name>, Error> {
                self.into_proto().map(Some)
            }

            fn from_proto(proto: Option<proto::$name>) -> Result<Self, ConvertError> {
                ProtoConvert::from_proto(proto.unwrap_or_default())
            }
        }
    )+ };
}

pub(crate) use {field, messages, oneofs, required};

macro_rules! enums {
    ($( $name:ident ),+) => { $(
        impl ProtoConvert<i32> for $name {
            fn into_proto(self) -> Result<i32, Error> {
                Ok(self.number())
            }

            fn from_proto(number: i32) -> Result<Self, ConvertError> {
                Self::from_number(number.into()).ok_or_else(|| {
                    let known: Vec<_> = Self::ALL.iter().map(|v| format!("{} (`{v}`)", v.number())).collect();
                    ConvertError::new(format!("unknown number {number}, expected one of: {}", known.join(", ")))
                })
            }
        }
    )+ };
}

enums!(TaskState, Role);

macro_rules! same_on_both_sides {
    ($( $type:ty ),+) => { $(
        impl ProtoConvert<Self> for $type {
            fn into_proto(self) -> Result<Self, Error> {
                Ok(self)
            }

            fn from_proto(proto: Self) -> Result<Self, ConvertError> {
                Ok(proto)
            }
        }
    )+ };
}

same_on_both_sides!(String, bool, i32);

macro_rules! ids {
    ($( $name:ident ),+) => { $(
        impl ProtoConvert<String> for $name {
            fn into_proto(self) -> Result<String, Error> {
                Ok(self.as_str().to_owned())
            }

            fn from_proto(proto: String) -> Result<Self, ConvertError> {
                Ok(Self::from(proto))
            }
        }
    )+ };
}

ids!(TaskId, ContextId);

/// Converts optional fields that have no presence in protobuf. The default value means absent.
macro_rules! absent_if_default {
    ($( $type:ty as $proto:ty ),+) => { $(
        impl ProtoConvert<$proto> for Option<$type> {
            fn into_proto(self) -> Result<$proto, Error> {
                self.map_or_else(|| Ok(<$proto>::default()), ProtoConvert::into_proto)
            }

            fn from_proto(proto: $proto) -> Result<Self, ConvertError> {
                if proto == <$proto>::default() { Ok(None) } else { ProtoConvert::from_proto(proto).map(Some) }
            }
        }
    )+ };
}

absent_if_default!(String as String, TaskId as String, ContextId as String, i32 as i32, u64 as i64);

/// The field has presence in protobuf, but false and absent are the same in the model.
impl ProtoConvert<Option<Self>> for bool {
    fn into_proto(self) -> Result<Option<Self>, Error> {
        Ok(self.then_some(true))
    }

    fn from_proto(proto: Option<Self>) -> Result<Self, ConvertError> {
        Ok(proto.unwrap_or_default())
    }
}

impl ProtoConvert<i64> for u64 {
    fn into_proto(self) -> Result<i64, Error> {
        Ok(i64::try_from(self).unwrap_or(i64::MAX))
    }

    fn from_proto(proto: i64) -> Result<Self, ConvertError> {
        Self::try_from(proto)
            .map_err(|_| ConvertError::new(format!("{proto} is negative, expected 0 or more")))
    }
}

impl<P, T: ProtoConvert<P>> ProtoConvert<Option<P>> for Option<T> {
    fn into_proto(self) -> Result<Option<P>, Error> {
        self.map(ProtoConvert::into_proto).transpose()
    }

    fn from_proto(proto: Option<P>) -> Result<Self, ConvertError> {
        proto.map(ProtoConvert::from_proto).transpose()
    }
}

impl<P, T: ProtoConvert<P>> ProtoConvert<P> for Box<T> {
    fn into_proto(self) -> Result<P, Error> {
        T::into_proto(*self)
    }

    fn from_proto(proto: P) -> Result<Self, ConvertError> {
        T::from_proto(proto).map(Self::new)
    }
}

impl<P, T: ProtoConvert<P>> ProtoConvert<Vec<P>> for Vec<T> {
    fn into_proto(self) -> Result<Vec<P>, Error> {
        self.into_iter().map(ProtoConvert::into_proto).collect()
    }

    fn from_proto(proto: Vec<P>) -> Result<Self, ConvertError> {
        let item = |(index, item)| T::from_proto(item).map_err(|e| e.in_item(index));
        proto.into_iter().enumerate().map(item).collect()
    }
}

impl<P, T: ProtoConvert<P>> ProtoConvert<BTreeMap<String, P>> for BTreeMap<String, T> {
    fn into_proto(self) -> Result<BTreeMap<String, P>, Error> {
        self.into_iter().map(|(key, value)| Ok((key, value.into_proto()?))).collect()
    }

    fn from_proto(proto: BTreeMap<String, P>) -> Result<Self, ConvertError> {
        proto.into_iter().map(|(key, value)| entry(key, T::from_proto(value))).collect()
    }
}

fn entry<T>(key: String, value: Result<T, ConvertError>) -> Result<(String, T), ConvertError> {
    match value {
        Ok(value) => Ok((key, value)),
        Err(error) => Err(error.in_entry(&key)),
    }
}

impl ProtoConvert<prost_types::Timestamp> for Timestamp {
    fn into_proto(self) -> Result<prost_types::Timestamp, Error> {
        // Protobuf counts nanoseconds forward from the previous second, also before 1970. The model counts them towards 1970.
        let before = i64::from(self.subsec_nanos() < 0);
        Ok(prost_types::Timestamp {
            seconds: self.seconds() - before,
            nanos: self.subsec_nanos().rem_euclid(NANOS_PER_SECOND),
        })
    }

    fn from_proto(proto: prost_types::Timestamp) -> Result<Self, ConvertError> {
        let prost_types::Timestamp { seconds, nanos } = proto;
        if !(0..NANOS_PER_SECOND).contains(&nanos) {
            return Err(ConvertError::new(format!(
                "{nanos} is not a number of nanoseconds between 0 and 999999999"
            )));
        }
        Self::new(seconds, nanos).ok_or_else(|| {
            ConvertError::new(format!(
                "{seconds} seconds since 1970 is not a time between the years 1 and 9999"
            ))
        })
    }
}

const NANOS_PER_SECOND: i32 = 1_000_000_000;
