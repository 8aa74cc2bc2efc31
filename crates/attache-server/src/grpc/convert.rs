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
mod tests {
    use std::fmt::Debug;

    use a2a_pb::protojson as theirs;
    use proptest::collection::{btree_map, vec};
    use proptest::option::of;
    use proptest::prelude::*;
    use proptest::sample::select;
    use serde::Serialize;
    use serde::de::DeserializeOwned;
    use serde_json::json;

    use super::*;

    // Against the types that `a2a-pb` generates from the protobuf definition.

    /// The bytes and the JSON of a value are the same value to them, and what they make of it is the same value to us.
    fn agree<T, P, M>(model: M)
    where
        T: prost::Message + Default + DeserializeOwned + PartialEq + Debug,
        P: prost::Message + Default,
        M: Wire<P> + Serialize + Clone + PartialEq + Debug,
    {
        let ours: P = to_proto(model.clone()).unwrap();
        let theirs = T::decode(&*ours.encode_to_vec()).unwrap();
        assert_eq!(theirs, serde_json::from_str(&serde_json::to_string(&model).unwrap()).unwrap());
        let back = P::decode(&*theirs.encode_to_vec()).unwrap();
        assert_eq!(to_model::<P, M>(back).unwrap(), model);
    }

    proptest! {
        #[test]
        fn every_task_reads_the_same_to_a_generated_client(task in task()) {
            agree::<theirs::Task, proto::Task, _>(task);
        }

        #[test]
        fn every_message_reads_the_same_to_a_generated_client(message in message()) {
            agree::<theirs::Message, proto::Message, _>(message);
        }

        #[test]
        fn every_event_reads_the_same_to_a_generated_client(event in event()) {
            agree::<theirs::StreamResponse, proto::StreamResponse, _>(event);
        }

        #[test]
        fn every_card_reads_the_same_to_a_generated_client(card in card()) {
            agree::<theirs::AgentCard, proto::AgentCard, _>(card);
        }

        #[test]
        fn every_send_of_a_generated_client_reads_the_same_to_us(request in send()) {
            agree::<theirs::SendMessageRequest, proto::SendMessageRequest, _>(request);
        }

        #[test]
        fn every_list_of_a_generated_client_reads_the_same_to_us(request in list()) {
            agree::<theirs::ListTasksRequest, proto::ListTasksRequest, _>(request);
        }
    }

    #[test]
    fn every_other_message_reads_the_same_to_both() {
        macro_rules! agree {
            ($( $name:ident $json:tt )+) => { $( {
                let model: $name = serde_json::from_value(json!($json)).unwrap();
                agree::<theirs::$name, proto::$name, _>(model);
            } )+ };
        }
        agree! {
            GetTaskRequest { "tenant": "a", "id": "b", "historyLength": 0 }
            CancelTaskRequest { "tenant": "a", "id": "b", "metadata": { "c": 1 } }
            SubscribeToTaskRequest { "tenant": "a", "id": "b" }
            GetTaskPushNotificationConfigRequest { "tenant": "a", "taskId": "b", "id": "c" }
            DeleteTaskPushNotificationConfigRequest { "tenant": "a", "taskId": "b", "id": "c" }
            ListTaskPushNotificationConfigsRequest { "tenant": "a", "taskId": "b", "pageSize": 3, "pageToken": "d" }
            GetExtendedAgentCardRequest { "tenant": "a" }
            TaskPushNotificationConfig { "tenant": "a", "id": "b", "taskId": "c", "url": "d", "token": "e" }
            ListTaskPushNotificationConfigsResponse { "configs": [{ "url": "a" }], "nextPageToken": "b" }
            ListTasksResponse { "tasks": [{ "id": "a", "status": {} }], "nextPageToken": "b", "pageSize": 3, "totalSize": 4 }
            SendMessageResponse { "task": { "id": "a", "status": {} } }
            SendMessageResponse { "message": { "messageId": "a" } }
        }
    }

    /// What protobuf tells from nothing.
    fn said() -> impl Strategy<Value = String> {
        "[a-z é\"\n]{1,4}"
    }

    fn text() -> impl Strategy<Value = String> {
        prop_oneof![Just(String::new()), said()]
    }

    fn texts() -> impl Strategy<Value = Vec<String>> {
        vec(text(), 0..3)
    }

    fn id<T: From<String> + Debug>() -> impl Strategy<Value = T> {
        said().prop_map(T::from)
    }

    /// Without `null`, which their JSON reads as a value of no kind.
    fn value() -> impl Strategy<Value = serde_json::Value> {
        const EXACT: i64 = 1 << 53;
        let number = any::<f64>().prop_filter("neither finite nor a fraction", |n| n.fract() != 0.0);
        let leaf = prop_oneof![
            any::<bool>().prop_map(|v| json!(v)),
            number.prop_map(|v| json!(v)),
            (-EXACT..=EXACT).prop_map(|v| json!(v)),
            text().prop_map(|v| json!(v)),
        ];
        leaf.prop_recursive(3, 8, 3, |inner| {
            prop_oneof![
                vec(inner.clone(), 0..3).prop_map(|v| json!(v)),
                btree_map(text(), inner, 0..3).prop_map(|v| json!(v)),
            ]
        })
    }

    fn object() -> impl Strategy<Value = Option<JsonObject>> {
        of(btree_map(text(), value(), 0..3).prop_map(|members| JsonObject::new(&members).unwrap()))
    }

    fn time() -> impl Strategy<Value = Timestamp> {
        let seconds = -62_135_596_800..=253_402_207_199_i64;
        (seconds, 0..NANOS_PER_SECOND).prop_map(|(s, n)| Timestamp::new(s, n).unwrap())
    }

    fn part() -> impl Strategy<Value = Part> {
        let content = prop_oneof![
            text().prop_map(Content::Text),
            vec(any::<u8>(), 0..4).prop_map(Content::Raw),
            text().prop_map(Content::Url),
            value().prop_map(|v| Content::Data(Json::new(&v).unwrap())),
        ];
        (content, of(said()), of(said()), object()).prop_map(|(content, filename, media_type, metadata)| {
            Part { content, filename, media_type, metadata }
        })
    }

    fn message() -> impl Strategy<Value = Message> {
        let ids = (text(), of(id()), of(id()), vec(id(), 0..3));
        (ids, select(Role::ALL), vec(part(), 0..3), object(), texts()).prop_map(
            |((message_id, context_id, task_id, reference_task_ids), role, parts, metadata, extensions)| {
                Message {
                    message_id,
                    context_id,
                    task_id,
                    role,
                    parts,
                    metadata,
                    extensions,
                    reference_task_ids,
                }
            },
        )
    }

    fn status() -> impl Strategy<Value = TaskStatus> {
        (select(TaskState::ALL), of(message().prop_map(Box::new)), of(time()))
            .prop_map(|(state, message, timestamp)| TaskStatus { state, message, timestamp })
    }

    fn artifact() -> impl Strategy<Value = Artifact> {
        (text(), of(said()), of(said()), vec(part(), 0..3), object(), texts()).prop_map(
            |(artifact_id, name, description, parts, metadata, extensions)| Artifact {
                artifact_id,
                name,
                description,
                parts,
                metadata,
                extensions,
            },
        )
    }

    /// Without a generation, here and in events: they know protocol 1.0.
    fn task() -> impl Strategy<Value = Task> {
        (id(), of(id()), status(), vec(artifact(), 0..3), vec(message(), 0..3), object()).prop_map(
            |(id, context_id, status, artifacts, history, metadata)| Task {
                id,
                context_id,
                status,
                artifacts,
                history,
                metadata,
                generation: None,
            },
        )
    }

    fn event() -> impl Strategy<Value = StreamResponse> {
        let status_update =
            (id(), id(), status(), object()).prop_map(|(task_id, context_id, status, metadata)| {
                TaskStatusUpdateEvent { task_id, context_id, status, metadata, generation: None }
            });
        let artifact_update = (id(), id(), artifact(), any::<[bool; 2]>(), object()).prop_map(
            |(task_id, context_id, artifact, [append, last_chunk], metadata)| TaskArtifactUpdateEvent {
                task_id,
                context_id,
                artifact,
                append,
                last_chunk,
                metadata,
                generation: None,
            },
        );
        prop_oneof![
            task().prop_map(StreamResponse::Task),
            message().prop_map(StreamResponse::Message),
            status_update.prop_map(StreamResponse::StatusUpdate),
            artifact_update.prop_map(StreamResponse::ArtifactUpdate),
        ]
    }

    fn webhook() -> impl Strategy<Value = TaskPushNotificationConfig> {
        let authentication =
            (text(), of(said())).prop_map(|(scheme, credentials)| AuthenticationInfo { scheme, credentials });
        (of(said()), of(said()), of(id()), text(), of(said()), of(authentication)).prop_map(
            |(tenant, id, task_id, url, token, authentication)| TaskPushNotificationConfig {
                tenant,
                id,
                task_id,
                url,
                token,
                authentication,
            },
        )
    }

    fn send() -> impl Strategy<Value = SendMessageRequest> {
        let configuration = (texts(), of(webhook()), of(any::<i32>()), any::<bool>()).prop_map(
            |(accepted_output_modes, task_push_notification_config, history_length, return_immediately)| {
                SendMessageConfiguration {
                    accepted_output_modes,
                    task_push_notification_config,
                    history_length,
                    return_immediately,
                    if_generation_match: None,
                }
            },
        );
        (of(said()), message(), of(configuration), object()).prop_map(
            |(tenant, message, configuration, metadata)| SendMessageRequest {
                tenant,
                message,
                configuration,
                metadata,
            },
        )
    }

    fn list() -> impl Strategy<Value = ListTasksRequest> {
        let page = (of(any::<i32>()), of(said()), of(any::<i32>()));
        (of(said()), of(id()), select(TaskState::ALL), page, of(time()), any::<bool>()).prop_map(
            |(tenant, context_id, status, page, status_timestamp_after, include_artifacts)| {
                let (page_size, page_token, history_length) = page;
                ListTasksRequest {
                    tenant,
                    context_id,
                    status,
                    page_size,
                    page_token,
                    history_length,
                    status_timestamp_after,
                    include_artifacts,
                }
            },
        )
    }

    fn scopes() -> impl Strategy<Value = BTreeMap<String, String>> {
        btree_map(text(), text(), 0..3)
    }

    fn flows() -> impl Strategy<Value = OAuthFlows> {
        (0..5, text(), text(), of(said()), of(said()), scopes(), any::<bool>()).prop_map(
            |(flow, authorization_url, token_url, optional_url, refresh_url, scopes, pkce_required)| {
                match flow {
                    0 => OAuthFlows::AuthorizationCode(AuthorizationCodeOAuthFlow {
                        authorization_url,
                        token_url,
                        refresh_url,
                        scopes,
                        pkce_required,
                    }),
                    1 => OAuthFlows::ClientCredentials(ClientCredentialsOAuthFlow {
                        token_url,
                        refresh_url,
                        scopes,
                    }),
                    2 => OAuthFlows::Implicit(ImplicitOAuthFlow {
                        authorization_url: optional_url,
                        refresh_url,
                        scopes,
                    }),
                    3 => OAuthFlows::Password(PasswordOAuthFlow {
                        token_url: optional_url,
                        refresh_url,
                        scopes,
                    }),
                    _ => OAuthFlows::DeviceCode(DeviceCodeOAuthFlow {
                        device_authorization_url: authorization_url,
                        token_url,
                        refresh_url,
                        scopes,
                    }),
                }
            },
        )
    }

    fn scheme() -> impl Strategy<Value = SecurityScheme> {
        (0..5, of(said()), text(), text(), of(said()), flows()).prop_map(
            |(scheme, description, one, other, optional, flows)| match scheme {
                0 => SecurityScheme::ApiKey(ApiKeySecurityScheme { description, location: one, name: other }),
                1 => SecurityScheme::HttpAuth(HttpAuthSecurityScheme {
                    description,
                    scheme: one,
                    bearer_format: optional,
                }),
                2 => SecurityScheme::OAuth2(OAuth2SecurityScheme {
                    description,
                    flows,
                    oauth2_metadata_url: optional,
                }),
                3 => SecurityScheme::OpenIdConnect(OpenIdConnectSecurityScheme {
                    description,
                    open_id_connect_url: one,
                }),
                _ => SecurityScheme::MutualTls(MutualTlsSecurityScheme { description }),
            },
        )
    }

    fn requirements() -> impl Strategy<Value = Vec<SecurityRequirement>> {
        let scopes = texts().prop_map(|list| StringList { list });
        vec(btree_map(text(), scopes, 0..3).prop_map(|schemes| SecurityRequirement { schemes }), 0..3)
    }

    fn skill() -> impl Strategy<Value = AgentSkill> {
        (text(), text(), text(), texts(), texts(), texts(), texts(), requirements()).prop_map(
            |(id, name, description, tags, examples, input_modes, output_modes, security_requirements)| {
                AgentSkill {
                    id,
                    name,
                    description,
                    tags,
                    examples,
                    input_modes,
                    output_modes,
                    security_requirements,
                }
            },
        )
    }

    fn capabilities() -> impl Strategy<Value = AgentCapabilities> {
        let extension =
            (text(), of(said()), any::<bool>(), object()).prop_map(|(uri, description, required, params)| {
                AgentExtension { uri, description, required, params }
            });
        (any::<[Option<bool>; 3]>(), vec(extension, 0..3)).prop_map(
            |([streaming, push_notifications, extended_agent_card], extensions)| AgentCapabilities {
                streaming,
                push_notifications,
                extensions,
                extended_agent_card,
            },
        )
    }

    fn card() -> impl Strategy<Value = AgentCard> {
        let interface = (text(), text(), of(said()), text()).prop_map(
            |(url, protocol_binding, tenant, protocol_version)| AgentInterface {
                url,
                protocol_binding,
                tenant,
                protocol_version,
            },
        );
        let provider = (text(), text()).prop_map(|(url, organization)| AgentProvider { url, organization });
        let signature = (text(), text(), object())
            .prop_map(|(protected, signature, header)| AgentCardSignature { protected, signature, header });
        let about = (text(), text(), text(), of(text()), of(text()), of(provider));
        let use_of_it = (vec(interface, 0..3), capabilities(), texts(), texts(), vec(skill(), 0..3));
        let security = (btree_map(text(), scheme(), 0..4), requirements(), vec(signature, 0..3));
        (about, use_of_it, security).prop_map(|(about, use_of_it, security)| {
            let (name, description, version, documentation_url, icon_url, provider) = about;
            let (supported_interfaces, capabilities, default_input_modes, default_output_modes, skills) =
                use_of_it;
            let (security_schemes, security_requirements, signatures) = security;
            AgentCard {
                name,
                description,
                supported_interfaces,
                provider,
                version,
                documentation_url,
                capabilities,
                security_schemes,
                security_requirements,
                default_input_modes,
                default_output_modes,
                skills,
                signatures,
                icon_url,
            }
        })
    }

    // What they do not know, or JSON does not say.

    /// The value after a trip over the wire.
    fn sent<P: prost::Message + Default, M: Wire<P>>(model: M) -> M {
        let bytes = to_proto::<P, M>(model).unwrap().encode_to_vec();
        to_model(P::decode(&*bytes).unwrap()).unwrap()
    }

    fn carried(json: Json) -> Json {
        to_model(to_proto::<Encoded, _>(json).unwrap()).unwrap()
    }

    #[test]
    fn generations_have_the_field_numbers_of_protocol_1_1() {
        fn varint<P: prost::Message, M: Wire<P>>(model: M) -> Vec<u8> {
            let bytes = to_proto(model).unwrap().encode_to_vec();
            bytes[bytes.len() - 2..].to_vec()
        }
        let generation = Some(9);
        assert_eq!(varint(Task { generation, ..Task::default() }), [7 << 3, 9]);
        assert_eq!(varint(TaskStatusUpdateEvent { generation, ..Default::default() }), [5 << 3, 9]);
        assert_eq!(varint(TaskArtifactUpdateEvent { generation, ..Default::default() }), [7 << 3, 9]);
        assert_eq!(
            varint(GetTaskRequest { current_generation: generation, ..Default::default() }),
            [4 << 3, 9]
        );
        let configuration =
            SendMessageConfiguration { if_generation_match: generation, ..Default::default() };
        assert_eq!(varint(configuration), [5 << 3, 9]);
    }

    #[test]
    fn a_generation_of_zero_is_one_only_where_protobuf_can_say_so() {
        let task = Task { generation: Some(0), ..Task::default() };
        assert_eq!(sent::<proto::Task, _>(task).generation, None);
        let request = GetTaskRequest { current_generation: Some(0), ..GetTaskRequest::default() };
        assert_eq!(sent::<proto::GetTaskRequest, _>(request).current_generation, Some(0));
    }

    #[test]
    fn data_may_be_null_and_text_may_be_empty() {
        for part in [Part::data(&()).unwrap(), Part::text(""), Part::raw(""), Part::url("")] {
            assert_eq!(sent::<proto::Part, _>(part.clone()), part);
        }
    }

    #[test]
    fn null_is_read_whether_it_is_said_or_left_unsaid() {
        let json = Json::parse(r#"{"a":null,"b":[null]}"#).unwrap();
        assert_eq!(carried(json.clone()), json);
        assert_eq!(to_model::<Encoded, Json>(Encoded::new()).unwrap().as_str(), "null");
    }

    #[test]
    fn what_is_not_sent_is_left_to_those_who_check_the_request() {
        let request: SendMessageRequest = to_model(proto::SendMessageRequest::default()).unwrap();
        assert_eq!(request, SendMessageRequest::default());
        let error = Request::SendMessage(request).validate().unwrap_err();
        assert_eq!(error.field_violations().len(), 3);
    }

    #[test]
    fn nanoseconds_count_forward_also_before_1970() {
        let time: Timestamp = "1969-12-31T23:59:58.750Z".parse().unwrap();
        let proto: prost_types::Timestamp = to_proto(time).unwrap();
        assert_eq!(proto, prost_types::Timestamp { seconds: -2, nanos: 750_000_000 });
        assert_eq!(to_model::<_, Timestamp>(proto).unwrap(), time);
    }

    #[test]
    fn numbers_come_back_as_they_were_written_up_to_what_a_double_holds() {
        for (written, read) in [
            ("42", "42"),
            ("-42", "-42"),
            ("42.0", "42"),
            ("0.5", "0.5"),
            ("-1.2487871566686811e-213", "-1.2487871566686811e-213"),
            ("0", "0"),
            ("-0.0", "-0.0"),
            ("1e300", "1e+300"),
            ("9007199254740992", "9007199254740992"),
            ("9007199254740993", "9007199254740992"),
            ("12345678901234567890", "1.2345678901234567e+19"),
        ] {
            let json = Json::parse(written).unwrap();
            assert_eq!(carried(json).as_str(), read);
        }
    }

    #[test]
    fn json_that_protobuf_cannot_hold_is_our_error_and_no_panic() {
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        for text in [r#""\ud800""#, "1e999", &deep] {
            let error = to_proto::<Encoded, _>(Json::parse(text).unwrap()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Internal, "{text}");
        }
        let metadata: JsonObject = serde_json::from_str(r#"{"a":"\udc00"}"#).unwrap();
        let error = to_proto::<Encoded, _>(metadata).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal);
    }

    #[test]
    fn values_as_deep_as_we_take_them_need_little_stack() {
        fn nested(open: &str, depth: usize, close: &str) -> Json {
            Json::parse(&format!("{}0{}", open.repeat(depth), close.repeat(depth))).unwrap()
        }
        let check = || {
            for json in [nested("[", 100, "]"), nested(r#"{"a":"#, 100, "}")] {
                // The decoder counts messages, of which there are two or three to a level, and refuses in time.
                assert_eq!(
                    wrong::<_, Part>(to_proto::<proto::Part, _>(Part::new(Content::Data(json))).unwrap()),
                    "data"
                );
            }
            for json in [nested("[", 50, "]"), nested(r#"{"a":"#, 33, "}")] {
                assert_eq!(carried(json.clone()), json);
            }
        };
        std::thread::Builder::new().stack_size(512 * 1024).spawn(check).unwrap().join().unwrap();
    }

    // What is refused.

    fn refusal<P, M: Wire<P> + Debug>(proto: P) -> FieldViolation {
        let error = to_model::<P, M>(proto).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidParams);
        let [violation] = error.field_violations() else { panic!("{error:?}") };
        violation.clone()
    }

    fn wrong<P, M: Wire<P> + Debug>(proto: P) -> String {
        refusal::<P, M>(proto).field
    }

    fn number(value: f64) -> prost_types::Value {
        prost_types::Value { kind: Some(Kind::NumberValue(value)) }
    }

    fn object_with(key: &str, value: prost_types::Value) -> prost_types::Struct {
        prost_types::Struct { fields: BTreeMap::from([(key.to_owned(), value)]) }
    }

    fn metadata(key: &str, value: prost_types::Value) -> Option<Encoded> {
        Some(object_with(key, value).encode_to_vec())
    }

    fn data(value: prost_types::Value) -> proto::Part {
        proto::Part { content: Some(proto::Content::Data(value.encode_to_vec())), ..Default::default() }
    }

    #[test]
    fn a_message_is_refused_with_the_path_of_what_is_wrong() {
        let send = |message| {
            let message = Some(message);
            wrong::<_, SendMessageRequest>(proto::SendMessageRequest { message, ..Default::default() })
        };
        let parts = |parts| send(proto::Message { parts, ..Default::default() });
        let text = || proto::Part { content: Some(proto::Content::Text("a".into())), ..Default::default() };

        assert_eq!(send(proto::Message { role: 3, ..Default::default() }), "message.role");
        assert_eq!(parts(vec![text(), proto::Part::default()]), "message.parts[1]");
        assert_eq!(parts(vec![data(number(f64::NAN))]), "message.parts[0].data");
        let garbage = proto::Part { content: Some(proto::Content::Data(vec![0xff])), ..Default::default() };
        assert_eq!(parts(vec![garbage]), "message.parts[0].data");
        let garbage = proto::Part { metadata: Some(vec![0xff]), ..text() };
        assert_eq!(parts(vec![garbage]), "message.parts[0].metadata");
        let part = proto::Part { metadata: metadata("a_b", number(f64::INFINITY)), ..text() };
        assert_eq!(parts(vec![part]), "message.parts[0].metadata.a_b");

        let list = prost_types::ListValue { values: vec![number(0.0), number(f64::NEG_INFINITY)] };
        let list = prost_types::Value { kind: Some(Kind::ListValue(list)) };
        let inner = Kind::StructValue(object_with("inner", list));
        let metadata = metadata("outer", prost_types::Value { kind: Some(inner) });
        assert_eq!(
            send(proto::Message { metadata, ..Default::default() }),
            "message.metadata.outer.inner[1]"
        );
    }

    #[test]
    fn a_request_is_refused_with_the_path_of_what_is_wrong() {
        let bad = || metadata("x", number(f64::NAN));
        let send = proto::SendMessageRequest { metadata: bad(), ..Default::default() };
        assert_eq!(wrong::<_, SendMessageRequest>(send), "metadata.x");
        let cancel = proto::CancelTaskRequest { metadata: bad(), ..Default::default() };
        assert_eq!(wrong::<_, CancelTaskRequest>(cancel), "metadata.x");
        let configuration =
            Some(proto::SendMessageConfiguration { if_generation_match: Some(-1), ..Default::default() });
        let send = proto::SendMessageRequest { configuration, ..Default::default() };
        assert_eq!(wrong::<_, SendMessageRequest>(send), "configuration.ifGenerationMatch");
        let get = proto::GetTaskRequest { current_generation: Some(-1), ..Default::default() };
        assert_eq!(wrong::<_, GetTaskRequest>(get), "currentGeneration");
        let list = proto::ListTasksRequest { status: -1, ..Default::default() };
        assert_eq!(wrong::<_, ListTasksRequest>(list), "status");
        for (seconds, nanos) in
            [(0, -1), (0, 1_000_000_000), (i64::MAX, 0), (i64::MIN, 0), (-62_135_596_801, 0)]
        {
            let status_timestamp_after = Some(prost_types::Timestamp { seconds, nanos });
            let list = proto::ListTasksRequest { status_timestamp_after, ..Default::default() };
            assert_eq!(wrong::<_, ListTasksRequest>(list), "statusTimestampAfter");
        }
    }

    #[test]
    fn an_answer_is_refused_with_the_path_of_what_is_wrong() {
        let event = |payload| wrong::<_, StreamResponse>(proto::StreamResponse { payload });
        assert_eq!(event(None), "");
        assert_eq!(wrong::<_, SendMessageResponse>(proto::SendMessageResponse { payload: None }), "");

        let message = proto::Message { role: 3, ..Default::default() };
        let history = vec![proto::Message::default(), message.clone()];
        let task = proto::Task { history, ..Default::default() };
        assert_eq!(event(Some(proto::StreamPayload::Task(task))), "task.history[1].role");
        assert_eq!(event(Some(proto::StreamPayload::Message(message))), "message.role");
        let status = Some(proto::TaskStatus { state: 9, ..Default::default() });
        let update = proto::TaskStatusUpdateEvent { status, ..Default::default() };
        assert_eq!(event(Some(proto::StreamPayload::StatusUpdate(update))), "statusUpdate.status.state");
        let artifact = Some(proto::Artifact { parts: vec![proto::Part::default()], ..Default::default() });
        let update = proto::TaskArtifactUpdateEvent { artifact, ..Default::default() };
        assert_eq!(
            event(Some(proto::StreamPayload::ArtifactUpdate(update))),
            "artifactUpdate.artifact.parts[0]"
        );

        let card = |scheme| {
            let security_schemes = BTreeMap::from([("main".to_owned(), proto::SecurityScheme { scheme })]);
            wrong::<_, AgentCard>(proto::AgentCard { security_schemes, ..Default::default() })
        };
        assert_eq!(card(None), "securitySchemes.main");
        let oauth2 = Some(proto::Scheme::OAuth2(Default::default()));
        assert_eq!(card(oauth2), "securitySchemes.main.oauth2SecurityScheme.flows");
    }

    #[test]
    fn a_refusal_says_what_would_be_right() {
        let message = proto::Message { role: 7, ..Default::default() };
        assert_eq!(
            refusal::<_, Message>(message).description,
            "unknown number 7, expected one of: 0 (`ROLE_UNSPECIFIED`), 1 (`ROLE_USER`), 2 (`ROLE_AGENT`)"
        );
        assert_eq!(
            refusal::<_, Part>(proto::Part::default()).description,
            "a part needs exactly one of `text`, `raw`, `url` and `data`"
        );
        assert_eq!(
            refusal::<_, Part>(data(number(f64::NAN))).description,
            "`NaN` is not a number that JSON can hold"
        );
        assert_eq!(
            refusal::<_, SendMessageResponse>(proto::SendMessageResponse::default()).description,
            "no known member is set, expected exactly one of: `task` `message`"
        );
    }

    #[test]
    fn a_long_key_is_cut_in_the_path() {
        let part =
            proto::Part { metadata: metadata(&"é".repeat(1000), number(f64::NAN)), ..data(number(0.0)) };
        assert_eq!(wrong::<_, Part>(part), format!("metadata.{}", "é".repeat(64)));
    }
}
