//! Credentials that clients of iac-code send in the metadata of a message.
//!
//! That system reads the key of a model and those of a cloud from there. This server has no use for them, so they are removed before
//! anything is stored: neither the history, nor a stream, nor an agent has them.

use attache_protocol::JsonObject;
use serde_json::{Map, Value};

use crate::Namespace;

/// What the names of all members for the cloud begin with.
const CLOUD: &str = "alibaba_cloud_";

/// The key of the model.
const MODEL_KEY: &str = "iac_code_api_key";

/// Removes the credentials from metadata: in the object of iac-code, and beside it.
pub(super) fn remove(metadata: &mut Option<JsonObject>) {
    let Some(object) = metadata else { return };
    // Nearly all metadata have none. JSON can write a name with escapes.
    let text = object.as_str();
    if ![CLOUD, MODEL_KEY, "\\"].iter().any(|name| text.contains(name)) {
        return;
    }
    let Ok(mut members) = object.read::<Map<String, Value>>() else { return };
    let mut has_changed = remove_from(&mut members);
    if let Some(Value::Object(inner)) = members.get_mut(Namespace::IacCode.name()) {
        has_changed |= remove_from(inner);
    }
    if has_changed {
        *metadata = JsonObject::new(&members).ok();
    }
}

/// Returns whether there were any.
fn remove_from(members: &mut Map<String, Value>) -> bool {
    let before = members.len();
    members.retain(|name, _| name != MODEL_KEY && !name.starts_with(CLOUD));
    members.len() != before
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn credentials_are_removed_and_everything_else_stays() {
        let left = |metadata: Value| {
            let mut metadata = JsonObject::new(&metadata).ok();
            remove(&mut metadata);
            metadata.unwrap().read::<Value>().unwrap()
        };
        let keys = json!({"iac_code_api_key": "k", "alibaba_cloud_access_key_id": "i", "alibaba_cloud_access_key_secret": "s",
            "alibaba_cloud_security_token": "t", "alibaba_cloud_region_id": "r"});
        let mut with = keys.clone();
        with["cwd"] = json!("/a");
        assert_eq!(
            left(json!({"iac_code": with.clone(), "mine": 1})),
            json!({"iac_code": {"cwd": "/a"}, "mine": 1})
        );
        assert_eq!(left(with), json!({"cwd": "/a"}));
        let others = json!({"mine": keys, "iac_code": {"user_id": "a\\b"}});
        assert_eq!(left(others.clone()), others);
        let mut escaped: Option<JsonObject> =
            serde_json::from_str("{\"iac_code\": {\"iac_code_api_\\u006bey\": \"k\"}}").ok();
        remove(&mut escaped);
        assert_eq!(escaped.unwrap().read::<Value>().unwrap(), json!({"iac_code": {}}));
    }
}
