//! Between the types of the model and those on the wire.
//!
//! A message is one line in a table of its fields, and both directions follow from it. How a field converts is decided by
//! its two types; where protobuf cannot tell an empty string, a zero or an empty message from none, the model's type
//! says which of them is meant.
//!
//! What a peer sends is refused with the path of the field that makes no sense, named as in JSON. What we send can always
//! be converted, but for JSON that protobuf has no words for, such as half of a surrogate pair.
//!
//! Numbers inside `data` and `metadata` are doubles in protobuf: on this binding, integers beyond 2^53 lose their last
//! digits, and `42.0` comes back as `42`.

use std::collections::BTreeMap;

use attache_protocol::*;
use prost::encoding::{WireType, encode_key, encode_varint};
use prost::{DecodeError, Message as _};
use prost_types::value::Kind;

use super::proto::{self, Encoded};

/// Reads what a peer sent.
pub(super) fn to_model<P, M: Wire<P>>(proto: P) -> Result<M, Error> {
    M::from_proto(proto).map_err(|Misfit { path, description }| Error::invalid_params(path, description))
}

/// Writes what a peer is to get.
pub(super) fn to_proto<P, M: Wire<P>>(model: M) -> Result<P, Error> {
    model.into_proto()
}

/// A type of the model that is a `P` on the wire.
pub(super) trait Wire<P>: Sized {
    fn into_proto(self) -> Result<P, Error>;
    fn from_proto(proto: P) -> Result<Self, Misfit>;
}

/// What a peer sent, where it makes no sense.
#[derive(Debug)]
pub(super) struct Misfit {
    path: String,
    description: String,
}

impl Misfit {
    fn new(description: impl Into<String>) -> Self {
        Self { path: String::new(), description: description.into() }
    }

    /// Goes up in the path, to what holds the value under `name`.
    fn within(mut self, name: &str) -> Self {
        let dot = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        self.path = format!("{name}{dot}{}", self.path);
        self
    }

    fn in_field(self, snake_case: &str) -> Self {
        self.within(&camel_case(snake_case))
    }

    fn in_item(self, index: usize) -> Self {
        self.within(&format!("[{index}]"))
    }

    /// A key is a peer's own text, of any length.
    fn in_entry(self, key: &str) -> Self {
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

macro_rules! messages {
    ($( $name:ident { $( $field:ident ),+ } )+) => { $(
        impl Wire<proto::$name> for $name {
            fn into_proto(self) -> Result<proto::$name, Error> {
                let Self { $( $field ),+ } = self;
                Ok(proto::$name { $( $field: $field.into_proto()? ),+ })
            }

            fn from_proto(proto: proto::$name) -> Result<Self, Misfit> {
                let proto::$name { $( $field ),+ } = proto;
                Ok(Self {
                    $( $field: Wire::from_proto($field).map_err(|m| m.in_field(stringify!($field)))? ),+
                })
            }
        }
    )+ };
}

messages! {
    Task { id, context_id, status, artifacts, history, metadata, generation }
    TaskStatus { state, message, timestamp }
    Message { message_id, context_id, task_id, role, parts, metadata, extensions, reference_task_ids }
    Artifact { artifact_id, name, description, parts, metadata, extensions }
    TaskStatusUpdateEvent { task_id, context_id, status, metadata, generation }
    TaskArtifactUpdateEvent { task_id, context_id, artifact, append, last_chunk, metadata, generation }

    SendMessageRequest { tenant, message, configuration, metadata }
    SendMessageConfiguration {
        accepted_output_modes, task_push_notification_config, history_length, return_immediately, if_generation_match
    }
    GetTaskRequest { tenant, id, history_length, current_generation }
    ListTasksRequest {
        tenant, context_id, status, page_size, page_token, history_length, status_timestamp_after, include_artifacts
    }
    ListTasksResponse { tasks, next_page_token, page_size, total_size }
    CancelTaskRequest { tenant, id, metadata }
    SubscribeToTaskRequest { tenant, id }
    GetTaskPushNotificationConfigRequest { tenant, task_id, id }
    DeleteTaskPushNotificationConfigRequest { tenant, task_id, id }
    ListTaskPushNotificationConfigsRequest { tenant, task_id, page_size, page_token }
    ListTaskPushNotificationConfigsResponse { configs, next_page_token }
    GetExtendedAgentCardRequest { tenant }

    TaskPushNotificationConfig { tenant, id, task_id, url, token, authentication }
    AuthenticationInfo { scheme, credentials }

    AgentCard {
        name, description, supported_interfaces, provider, version, documentation_url, capabilities, security_schemes,
        security_requirements, default_input_modes, default_output_modes, skills, signatures, icon_url
    }
    AgentInterface { url, protocol_binding, tenant, protocol_version }
    AgentProvider { url, organization }
    AgentCapabilities { streaming, push_notifications, extensions, extended_agent_card }
    AgentExtension { uri, description, required, params }
    AgentSkill { id, name, description, tags, examples, input_modes, output_modes, security_requirements }
    AgentCardSignature { protected, signature, header }

    SecurityRequirement { schemes }
    StringList { list }
    ApiKeySecurityScheme { description, location, name }
    HttpAuthSecurityScheme { description, scheme, bearer_format }
    OAuth2SecurityScheme { description, flows, oauth2_metadata_url }
    OpenIdConnectSecurityScheme { description, open_id_connect_url }
    MutualTlsSecurityScheme { description }
    AuthorizationCodeOAuthFlow { authorization_url, token_url, refresh_url, scopes, pkce_required }
    ClientCredentialsOAuthFlow { token_url, refresh_url, scopes }
    DeviceCodeOAuthFlow { device_authorization_url, token_url, refresh_url, scopes }
    ImplicitOAuthFlow { authorization_url, refresh_url, scopes }
    PasswordOAuthFlow { token_url, refresh_url, scopes }
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

oneofs! {
    StreamResponse {
        payload: StreamPayload {
            Task = "task", Message = "message", StatusUpdate = "statusUpdate", ArtifactUpdate = "artifactUpdate"
        }
    }
    SendMessageResponse { payload: SendPayload { Task = "task", Message = "message" } }
    SecurityScheme {
        scheme: Scheme {
            ApiKey = "apiKeySecurityScheme",
            HttpAuth = "httpAuthSecurityScheme",
            OAuth2 = "oauth2SecurityScheme",
            OpenIdConnect = "openIdConnectSecurityScheme",
            MutualTls = "mtlsSecurityScheme"
        }
    }
    OAuthFlows {
        flow: Flow {
            AuthorizationCode = "authorizationCode",
            ClientCredentials = "clientCredentials",
            Implicit = "implicit",
            Password = "password",
            DeviceCode = "deviceCode"
        }
    }
}

impl Wire<proto::Part> for Part {
    fn into_proto(self) -> Result<proto::Part, Error> {
        let Self { content, filename, media_type, metadata } = self;
        let content = match content {
            Content::Text(text) => proto::Content::Text(text),
            Content::Raw(bytes) => proto::Content::Raw(bytes),
            Content::Url(url) => proto::Content::Url(url),
            Content::Data(data) => proto::Content::Data(data.into_proto()?),
        };
        Ok(proto::Part {
            content: Some(content),
            filename: filename.into_proto()?,
            media_type: media_type.into_proto()?,
            metadata: metadata.into_proto()?,
        })
    }

    fn from_proto(proto: proto::Part) -> Result<Self, Misfit> {
        let proto::Part { content, filename, media_type, metadata } = proto;
        let content = match content {
            Some(proto::Content::Text(text)) => Content::Text(text),
            Some(proto::Content::Raw(bytes)) => Content::Raw(bytes),
            Some(proto::Content::Url(url)) => Content::Url(url),
            Some(proto::Content::Data(data)) => {
                Content::Data(Wire::from_proto(data).map_err(|m| m.within("data"))?)
            }
            None => return Err(Misfit::new("a part needs exactly one of `text`, `raw`, `url` and `data`")),
        };
        Ok(Self {
            content,
            filename: Wire::from_proto(filename)?,
            media_type: Wire::from_proto(media_type)?,
            metadata: Wire::from_proto(metadata).map_err(|m| m.within("metadata"))?,
        })
    }
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

required!(Message, TaskStatus, Artifact, AgentCapabilities, OAuthFlows);

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

impl Wire<Encoded> for Json {
    fn into_proto(self) -> Result<Encoded, Error> {
        let value = self.read().map_err(|error| unwritable(&error))?;
        Backwards::write(|out| out.value(&value))
    }

    fn from_proto(proto: Encoded) -> Result<Self, Misfit> {
        let value = prost_types::Value::decode(&*proto).map_err(unreadable)?;
        Self::new(&value_to_json(value)?).map_err(|error| Misfit::new(error.to_string()))
    }
}

impl Wire<Encoded> for JsonObject {
    fn into_proto(self) -> Result<Encoded, Error> {
        let members = self.read().map_err(|error| unwritable(&error))?;
        Backwards::write(|out| out.members(&members))
    }

    fn from_proto(proto: Encoded) -> Result<Self, Misfit> {
        let object = prost_types::Struct::decode(&*proto).map_err(unreadable)?;
        Self::new(&object_to_json(object)?).map_err(|error| Misfit::new(error.to_string()))
    }
}

fn unwritable(reason: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::Internal, format!("a JSON value that protobuf cannot hold: {reason}"))
}

fn unreadable(_: DecodeError) -> Misfit {
    Misfit::new("cannot be decoded: it is malformed, or more than 100 messages are nested in it")
}

// What follows recurses as deep as a value nests. What is read from JSON nests at most 128 levels, and what is read from
// protobuf at most 50, of two messages each; both parsers see to that.

type Object = serde_json::Map<String, serde_json::Value>;

/// Writes `google.protobuf.Value` from the end to the beginning, so that the length of a message is known when it is due.
struct Backwards(Vec<u8>);

impl Backwards {
    fn write(content: impl FnOnce(&mut Self) -> Result<(), Error>) -> Result<Vec<u8>, Error> {
        let mut out = Self(Vec::new());
        content(&mut out)?;
        out.0.reverse();
        Ok(out.0)
    }

    fn value(&mut self, json: &serde_json::Value) -> Result<(), Error> {
        match json {
            serde_json::Value::Null => self.varint(1, 0),
            serde_json::Value::Number(number) => {
                let number = number.as_f64().filter(|number| number.is_finite());
                let number = number.ok_or_else(|| unwritable(&"number out of range"))?;
                self.bytes(&number.to_le_bytes());
                self.key(2, WireType::SixtyFourBit);
            }
            serde_json::Value::String(text) => self.text(3, text),
            serde_json::Value::Bool(value) => self.varint(4, u8::from(*value)),
            serde_json::Value::Object(members) => self.message(5, |out| out.members(members))?,
            serde_json::Value::Array(items) => self.message(6, |out| {
                items.iter().rev().try_for_each(|item| out.message(1, |out| out.value(item)))
            })?,
        }
        Ok(())
    }

    fn members(&mut self, members: &Object) -> Result<(), Error> {
        members.iter().rev().try_for_each(|(key, value)| {
            self.message(1, |entry| {
                entry.message(2, |out| out.value(value))?;
                entry.text(1, key);
                Ok(())
            })
        })
    }

    fn message(
        &mut self,
        tag: u32,
        content: impl FnOnce(&mut Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let end = self.0.len();
        content(self)?;
        self.length(tag, self.0.len() - end);
        Ok(())
    }

    fn text(&mut self, tag: u32, text: &str) {
        self.bytes(text.as_bytes());
        self.length(tag, text.len());
    }

    /// Begins a field of so many bytes, which are there already.
    fn length(&mut self, tag: u32, length: usize) {
        self.forward(|buf| encode_varint(length as u64, buf));
        self.key(tag, WireType::LengthDelimited);
    }

    fn varint(&mut self, tag: u32, value: u8) {
        self.bytes(&[value]);
        self.key(tag, WireType::Varint);
    }

    fn key(&mut self, tag: u32, wire_type: WireType) {
        self.forward(|buf| encode_key(tag, wire_type, buf));
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend(bytes.iter().rev());
    }

    fn forward(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.0.len();
        write(&mut self.0);
        self.0[start..].reverse();
    }
}

fn value_to_json(proto: prost_types::Value) -> Result<serde_json::Value, Misfit> {
    Ok(match proto.kind {
        // Some generated clients write `null` as a value of no kind.
        Some(Kind::NullValue(_)) | None => serde_json::Value::Null,
        Some(Kind::BoolValue(value)) => serde_json::Value::Bool(value),
        Some(Kind::NumberValue(value)) => serde_json::Value::Number(
            number_to_json(value)
                .ok_or_else(|| Misfit::new(format!("`{value}` is not a number that JSON can hold")))?,
        ),
        Some(Kind::StringValue(text)) => serde_json::Value::String(text),
        Some(Kind::ListValue(list)) => {
            let item = |(index, item)| value_to_json(item).map_err(|m| m.in_item(index));
            serde_json::Value::Array(list.values.into_iter().enumerate().map(item).collect::<Result<_, _>>()?)
        }
        Some(Kind::StructValue(object)) => serde_json::Value::Object(object_to_json(object)?),
    })
}

fn object_to_json(proto: prost_types::Struct) -> Result<Object, Misfit> {
    proto.fields.into_iter().map(|(key, value)| entry(key, value_to_json(value))).collect()
}

/// A double in the form that JSON writers choose: `42`, not `42.0`, as far as every integer is a double.
fn number_to_json(value: f64) -> Option<serde_json::Number> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let negative_zero = value == 0.0 && value.is_sign_negative();
    if value.fract() == 0.0 && value.abs() <= EXACT && !negative_zero {
        return Some(serde_json::Number::from(value as i64));
    }
    serde_json::Number::from_f64(value)
}

#[cfg(test)]
mod tests;
