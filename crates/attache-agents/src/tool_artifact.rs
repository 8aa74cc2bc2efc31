//! Files in the results of tools: `{"artifact": {"filename": …, "mediaType": …, "content": …}}`.
//!
//! Such a file becomes an artifact of the task. The reported result only describes it.

use attache_core::{AgentResult, Turn, safe_file_name};
use attache_protocol::{Artifact, Part};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

/// The member of a result that has the file.
const MEMBER: &str = "artifact";

/// The name of a file whose own name cannot be used.
const UNNAMED: &str = "artifact";

/// What the id of an artifact begins with. Names of files have no colon.
const ID_PREFIX: &str = "file:";

/// Takes the file out of a result. `None` if there is none, or if its content cannot be read: then the result is unchanged.
pub(crate) fn take(result: &mut Value) -> Option<Part> {
    let Value::Object(file) = result.as_object()?.get(MEMBER)? else { return None };
    let text = |names: &[&str]| names.iter().find_map(|name| file.get(*name)).and_then(Value::as_str);
    let content = match (text(&["content"]), text(&["bytes", "base64", "raw"])) {
        (Some(content), _) => content.as_bytes().to_vec(),
        (None, Some(encoded)) => STANDARD.decode(encoded).ok()?,
        (None, None) => return None,
    };
    let name = text(&["filename"]).and_then(safe_file_name).unwrap_or_else(|| UNNAMED.to_owned());
    let kind = text(&["mediaType", "media_type"]).unwrap_or("application/octet-stream").to_owned();
    let described = json!({"filename": name, "mediaType": kind, "byteSize": content.len()});
    if let Some(result) = result.as_object_mut() {
        result.insert(MEMBER.to_owned(), described);
    }
    Some(Part::raw(content).filename(name).media_type(kind))
}

/// The same for a result that is JSON text.
pub(crate) fn take_from_text(result: &str) -> Option<(Value, Part)> {
    if !result.contains(MEMBER) {
        return None;
    }
    let mut result = serde_json::from_str::<Map<String, Value>>(result).ok().map(Value::Object)?;
    take(&mut result).map(|file| (result, file))
}

/// Adds the file to the task. A later file of the same name replaces it.
pub(crate) async fn add(turn: &Turn, file: Option<Part>) -> AgentResult {
    let Some(file) = file else { return Ok(()) };
    turn.repeat_artifact(artifact(file)).await
}

/// The artifact with a file. Its id differs from those that agents choose for their answers, whatever the name of the file is.
fn artifact(file: Part) -> Artifact {
    let name = file.filename.clone().unwrap_or_else(|| UNNAMED.to_owned());
    Artifact {
        artifact_id: format!("{ID_PREFIX}{name}"),
        name: Some(name),
        parts: vec![file],
        ..Artifact::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_taken_out_of_a_result_and_described_there() {
        let mut result = json!({"ok": true, "artifact": {"filename": "../a.yml", "mediaType": "text/yaml", "content": "a: é"}});
        let file = take(&mut result).unwrap();
        assert_eq!(file, Part::raw("a: é".as_bytes()).filename("a.yml").media_type("text/yaml"));
        let described = json!({"filename": "a.yml", "mediaType": "text/yaml", "byteSize": 5});
        assert_eq!(result, json!({"ok": true, "artifact": described}));
        assert_eq!(take(&mut result), None, "it is only described");
        let mut encoded = json!({"artifact": {"base64": "AQI="}});
        let file = take(&mut encoded).unwrap();
        assert_eq!(file, Part::raw([1, 2]).filename("artifact").media_type("application/octet-stream"));
    }

    #[test]
    fn a_file_never_replaces_the_answer_of_an_agent() {
        for name in ["reply", "answer"] {
            let file = take(&mut json!({"artifact": {"filename": name, "content": "x"}})).unwrap();
            let artifact = artifact(file.clone());
            assert_eq!(artifact.artifact_id, format!("file:{name}"));
            assert_eq!((artifact.name.as_deref(), artifact.parts), (Some(name), vec![file]));
        }
    }

    #[test]
    fn a_result_without_a_file_stays_as_it_is() {
        for result in [
            json!("artifact"),
            json!({"artifact": "a.yml"}),
            json!({"artifact": {"filename": "a.yml"}}),
            json!({"artifact": {"base64": "?"}}),
            json!({"other": {"content": "a"}}),
        ] {
            let mut same = result.clone();
            assert_eq!((take(&mut same), &same), (None, &result));
            assert_eq!(take_from_text(&result.to_string()), None);
        }
    }
}
