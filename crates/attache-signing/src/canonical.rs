//! What of a card is signed.
//!
//! The specification and the SDKs disagree about empty values. The specification keeps those of required members, as in
//! `"skills":[]`; the SDKs for Python and JavaScript drop every value that is empty, however deep, before they sign and before they
//! verify. A card without empty values is the same to both.

use attache_protocol::AgentCard;
use serde_json::{Map, Value};

use crate::strict::{self, NotStrict};

/// The card as the specification has it signed: its members of protocol 1.0 without the signatures, in the form of RFC 8785.
///
/// It fails where the parameters of an extension have a member twice, or nest too deep.
pub fn specified(card: &AgentCard) -> Result<Vec<u8>, NotStrict> {
    Ok(written(&projection(card)?))
}

/// The card as the SDKs for Python and JavaScript have it signed: the same without any empty value.
pub fn cleaned(card: &AgentCard) -> Result<Vec<u8>, NotStrict> {
    Ok(written(&without_empty(projection(card)?)))
}

/// The members of protocol 1.0, without the signatures.
pub(crate) fn projection(card: &AgentCard) -> Result<Map<String, Value>, NotStrict> {
    // Parameters of extensions are kept as text, so the whole is read from text.
    let json = serde_json::to_vec(card).unwrap_or_default();
    let mut members = strict::object(&json)?;
    members.remove("signatures");
    Ok(members)
}

/// An object in the form of RFC 8785.
pub(crate) fn written(members: &Map<String, Value>) -> Vec<u8> {
    // Numbers of JSON are finite, and nothing else could have no such form.
    serde_json_canonicalizer::to_vec(members).unwrap_or_default()
}

/// The object without values that are empty, or are when what is empty in them is gone. An empty object if nothing is left.
pub(crate) fn without_empty(members: Map<String, Value>) -> Map<String, Value> {
    members.into_iter().filter_map(|(name, value)| Some((name, kept(value)?))).collect()
}

fn kept(value: Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::String(text) => (!text.is_empty()).then_some(Value::String(text)),
        Value::Array(items) => {
            let items: Vec<_> = items.into_iter().filter_map(kept).collect();
            (!items.is_empty()).then_some(Value::Array(items))
        }
        Value::Object(members) => {
            let members = without_empty(members);
            (!members.is_empty()).then_some(Value::Object(members))
        }
        value @ (Value::Bool(_) | Value::Number(_)) => Some(value),
    }
}

#[cfg(test)]
mod tests {
    use attache_protocol::{AgentCapabilities, AgentCardSignature, AgentExtension, Json};
    use serde_json::json;

    use super::*;

    fn text(form: Result<Vec<u8>, NotStrict>) -> String {
        String::from_utf8(form.unwrap()).unwrap()
    }

    #[test]
    fn required_members_stay_and_other_empty_ones_go_as_in_the_example_of_the_specification() {
        let capabilities = AgentCapabilities {
            streaming: Some(false),
            push_notifications: Some(false),
            ..Default::default()
        };
        let card = AgentCard {
            name: "Example Agent".to_owned(),
            capabilities,
            signatures: vec![AgentCardSignature::default()],
            ..AgentCard::default()
        };
        assert_eq!(
            text(specified(&card)),
            r#"{"capabilities":{"pushNotifications":false,"streaming":false},"defaultInputModes":[],"defaultOutputModes":[],"description":"","name":"Example Agent","skills":[],"supportedInterfaces":[],"version":""}"#
        );
        assert_eq!(
            text(cleaned(&card)),
            r#"{"capabilities":{"pushNotifications":false,"streaming":false},"name":"Example Agent"}"#
        );
    }

    #[test]
    fn members_are_in_the_order_of_utf_16_and_numbers_as_in_ecmascript() {
        let params = r#"{"\ud83d\ude00":1.0,"\ufb33":1e21,"é":0.000001,"a":"\u20ac\u000a","n":{"x":[[],"",null,{"y":[""]}]}}"#;
        let extension = AgentExtension {
            params: Some(Json::parse(params).unwrap().read().unwrap()),
            ..AgentExtension::new("urn:x")
        };
        let mut card = AgentCard::new("N", "D").extension(extension);
        card.skills = Vec::new();
        let params = |form: String| {
            let at = form.find(r#""params":"#).unwrap() + 9;
            form[at..form.find(r#","uri""#).unwrap()].to_owned()
        };
        assert_eq!(
            params(text(specified(&card))),
            "{\"a\":\"€\\n\",\"n\":{\"x\":[[],\"\",null,{\"y\":[\"\"]}]},\"é\":0.000001,\"😀\":1,\"\u{fb33}\":1e+21}"
        );
        assert_eq!(
            params(text(cleaned(&card))),
            "{\"a\":\"€\\n\",\"é\":0.000001,\"😀\":1,\"\u{fb33}\":1e+21}"
        );
    }

    #[test]
    fn a_card_whose_parameters_have_two_meanings_has_no_canonical_form() {
        let params = Json::parse(r#"{"a":1,"a":2}"#).unwrap().read().unwrap();
        let card =
            AgentCard::new("N", "D").extension(AgentExtension { params: Some(params), ..Default::default() });
        assert_eq!(specified(&card), Err(NotStrict::Duplicate("a".to_owned())));
        let value = json!({"a": {}, "b": [null, {"c": ""}], "d": false, "e": 0});
        let Value::Object(members) = value else { unreachable!("it is an object") };
        assert_eq!(written(&without_empty(members)), br#"{"d":false,"e":0}"#);
    }
}
