//! The canonical form of a card: the bytes that are signed.
//!
//! The specification and the SDKs treat empty values differently. The specification keeps those of required members, as in
//! `"skills":[]`. The SDKs for Python and JavaScript drop every empty value, at any depth, before they sign and before they
//! verify. For a card without empty values both forms are the same.

use attache_protocol::AgentCard;
use serde_json::{Map, Value};

use crate::strict::{self, StrictJsonError};

/// The form that the specification signs: the members of protocol 1.0 without the signatures, in the form of RFC 8785.
///
/// Fails if the parameters of an extension have a duplicate member or nest too deep.
pub fn specified(card: &AgentCard) -> Result<Vec<u8>, StrictJsonError> {
    Ok(encode(&projection(card)?))
}

/// The form that the SDKs for Python and JavaScript sign: the same, without any empty value.
pub fn cleaned(card: &AgentCard) -> Result<Vec<u8>, StrictJsonError> {
    Ok(encode(&remove_empty(projection(card)?)))
}

/// The members of protocol 1.0, without the signatures.
pub(crate) fn projection(card: &AgentCard) -> Result<Map<String, Value>, StrictJsonError> {
    // Parameters of extensions are stored as text, so the card is written to text and parsed again.
    let json = serde_json::to_vec(card).unwrap_or_default();
    let mut members = strict::object(&json)?;
    members.remove("signatures");
    Ok(members)
}

/// Encodes an object as RFC 8785 requires.
pub(crate) fn encode(members: &Map<String, Value>) -> Vec<u8> {
    // Encoding fails only for numbers that are not finite, which JSON does not have.
    serde_json_canonicalizer::to_vec(members).unwrap_or_default()
}

/// Removes empty values, at any depth. A value that becomes empty is removed too. Returns an empty object if nothing is left.
pub(crate) fn remove_empty(members: Map<String, Value>) -> Map<String, Value> {
    members.into_iter().filter_map(|(name, value)| Some((name, non_empty(value)?))).collect()
}

fn non_empty(value: Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::String(text) => (!text.is_empty()).then_some(Value::String(text)),
        Value::Array(items) => {
            let items: Vec<_> = items.into_iter().filter_map(non_empty).collect();
            (!items.is_empty()).then_some(Value::Array(items))
        }
        Value::Object(members) => {
            let members = remove_empty(members);
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

    fn text(form: Result<Vec<u8>, StrictJsonError>) -> String {
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
        assert_eq!(specified(&card), Err(StrictJsonError::Duplicate("a".to_owned())));
        let value = json!({"a": {}, "b": [null, {"c": ""}], "d": false, "e": 0});
        let Value::Object(members) = value else { unreachable!("it is an object") };
        assert_eq!(encode(&remove_empty(members)), br#"{"d":false,"e":0}"#);
    }
}
