//! The message of a call, from its payload.

use std::collections::BTreeMap;

use attache_client::Outgoing;
use attache_core::TraceParent;
use attache_iii::HOPS_EXTENSION;
use attache_protocol::{Content, Json, JsonObject, Message, Part, Role};
use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::skills::{Skill, SkillInput};

/// The members of a payload that can be the text of the message, in order of preference.
const TEXT_MEMBERS: [&str; 4] = ["input", "text", "message", "prompt"];

/// The message that calls a skill. `hops` is the number of agents that the request has come through, this one included.
pub(super) fn build_message(
    skill: &Skill,
    payload: &RawValue,
    hops: u64,
) -> Result<Message, serde_json::Error> {
    let mut message = Message { role: Role::User, ..Message::default() };
    match skill.input {
        SkillInput::Payload => {
            #[derive(Serialize)]
            struct Call<'a> {
                function_id: &'a str,
                payload: &'a RawValue,
            }
            message.parts.push(Part::data(&Call { function_id: &skill.id, payload })?);
        }
        SkillInput::Message => fill(&mut message, Json::parse(payload.get())?)?,
    }
    message.metadata = Some(JsonObject::new(&json!({ "skillId": skill.id, HOPS_EXTENSION: hops }))?);
    Ok(message)
}

/// Fills a message from a payload in free form.
fn fill(message: &mut Message, payload: Json) -> Result<(), serde_json::Error> {
    if let Ok(text) = payload.read::<String>() {
        message.parts.push(Part::text(text));
        return Ok(());
    }
    let Ok(mut members) = payload.read::<BTreeMap<String, Json>>() else {
        message.parts.push(Part::new(Content::Data(payload)));
        return Ok(());
    };
    let mut take = |key: &str| {
        let text = members.get(key)?.read::<String>().ok()?;
        members.remove(key);
        Some(text)
    };
    message.task_id = take("taskId").map(Into::into);
    message.context_id = take("contextId").map(Into::into);
    message.parts.extend(TEXT_MEMBERS.into_iter().find_map(take).map(Part::text));
    if !members.is_empty() || message.parts.is_empty() {
        message.parts.push(Part::data(&members)?);
    }
    Ok(())
}

/// The message with an idempotency key, so that the agent processes it once if the client sends it again.
pub(super) fn outgoing(message: Message, trace_parent: Option<TraceParent>) -> Outgoing {
    let outgoing = Outgoing::new(message).idempotency_key(uuid::Uuid::new_v4().to_string());
    match trace_parent {
        Some(trace_parent) => outgoing.trace_parent(trace_parent.as_str()),
        None => outgoing,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use serde_json::value::to_raw_value;

    use super::*;

    fn sent(input: SkillInput, payload: Value) -> Value {
        let skill = Skill { id: "quote".to_owned(), input };
        let message = build_message(&skill, &to_raw_value(&payload).unwrap(), 3).unwrap();
        assert_eq!(message.metadata.as_ref().unwrap().get::<String>("skillId").unwrap(), "quote");
        assert_eq!(message.metadata.as_ref().unwrap().get::<u64>(HOPS_EXTENSION), Some(3));
        let mut value = serde_json::to_value(message).unwrap();
        for key in ["messageId", "role", "metadata"] {
            value.as_object_mut().unwrap().remove(key);
        }
        value
    }

    #[test]
    fn a_function_gets_its_payload_unchanged() {
        let payload = json!({"taskId": "t", "input": "hi"});
        assert_eq!(
            sent(SkillInput::Payload, payload.clone()),
            json!({"parts": [{"data": {"function_id": "quote", "payload": payload}}]})
        );
    }

    #[test]
    fn a_text_member_becomes_text_and_the_rest_becomes_data() {
        for (payload, parts) in [
            (json!({"input": "hi"}), json!([{"text": "hi"}])),
            (json!("hi"), json!([{"text": "hi"}])),
            (
                json!({"prompt": "hi", "style": "brief"}),
                json!([{"text": "hi"}, {"data": {"style": "brief"}}]),
            ),
            (json!({"message": "b", "text": "a"}), json!([{"text": "a"}, {"data": {"message": "b"}}])),
            (json!({"input": 7}), json!([{"data": {"input": 7}}])),
            (json!({}), json!([{"data": {}}])),
            (json!([1, 2]), json!([{"data": [1, 2]}])),
            (json!(null), json!([{"data": null}])),
        ] {
            assert_eq!(sent(SkillInput::Message, payload), json!({ "parts": parts }));
        }
    }

    #[test]
    fn a_payload_can_continue_a_task() {
        assert_eq!(
            sent(SkillInput::Message, json!({"taskId": "t1", "contextId": "c1", "text": "the blue one"})),
            json!({"taskId": "t1", "contextId": "c1", "parts": [{"text": "the blue one"}]})
        );
        assert_eq!(
            sent(SkillInput::Message, json!({"taskId": 7})),
            json!({"parts": [{"data": {"taskId": 7}}]})
        );
    }
}
