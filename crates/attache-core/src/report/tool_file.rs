//! Files in the results of tools: `{"artifact": {"filename": …, "mediaType": …, "content": …}}`.
//!
//! Such a file becomes an artifact of the task. The reported result only describes it.

use std::collections::HashSet;

use attache_protocol::{Artifact, Content, Part};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::artifact::emit;
use crate::turn::Emitted;
use crate::{Turn, safe_file_name};

/// The member of a result that has the file.
const MEMBER: &str = "artifact";

/// The name of a file whose own name cannot be used.
const UNNAMED: &str = "artifact";

/// What the id of an artifact begins with. Names of files have no colon.
const ID_PREFIX: &str = "file:";

/// Takes the file out of the result of a tool. The result describes it then. `None` if there is none, or if its content cannot be
/// read: then the result is unchanged.
pub fn take_tool_file(result: &mut Value) -> Option<Part> {
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
pub fn take_tool_file_from_text(result: &str) -> Option<(Value, Part)> {
    if !result.contains(MEMBER) {
        return None;
    }
    let mut result = serde_json::from_str::<Map<String, Value>>(result).ok().map(Value::Object)?;
    take_tool_file(&mut result).map(|file| (result, file))
}

/// Takes the file out of a result, which can be JSON text.
pub(super) fn take(result: &mut Value) -> Option<Part> {
    let Value::String(text) = result else { return take_tool_file(result) };
    let (described, file) = take_tool_file_from_text(text)?;
    *result = described;
    Some(file)
}

/// The files that tools have produced in a turn.
#[derive(Default)]
pub(crate) struct ToolFiles {
    ids: HashSet<String>,
    /// Digests of names and contents. An agent may report the same result several times.
    known: HashSet<[u8; 32]>,
}

impl ToolFiles {
    /// The id of the artifact with a file. It differs from those of other files of the task, and from those that agents choose for their
    /// answers, whatever the name of the file is. `None` if the turn has added this file already.
    fn id(&mut self, file: &Part, is_taken: impl Fn(&str) -> bool) -> Option<String> {
        let name = file.filename.as_deref().unwrap_or(UNNAMED);
        let mut digest = Sha256::new();
        digest.update(name.as_bytes());
        digest.update([0]);
        if let Content::Raw(bytes) = &file.content {
            digest.update(bytes);
        }
        if !self.known.insert(digest.finalize().into()) {
            return None;
        }
        let numbered = (2_u64..).map(|number| format!("{ID_PREFIX}{name}:{number}"));
        let mut ids = std::iter::once(format!("{ID_PREFIX}{name}")).chain(numbered);
        let id = ids.find(|id| !self.ids.contains(id) && !is_taken(id))?;
        self.ids.insert(id.clone());
        Some(id)
    }
}

impl Turn {
    /// Adds a file that a tool has produced, as an artifact of its own. Its id is `file:` and the name of the file; for further files of
    /// this name, a number follows. A file with the same name and content that this turn has added before is not added again.
    ///
    /// [`report`](Self::report) does this for the files in results.
    pub fn add_file(&self, file: Part) -> Emitted {
        let before = self.inner.before();
        let task = before.as_ref().map(|snapshot| snapshot.task());
        let is_taken = |id: &str| {
            task.as_ref().is_some_and(|task| task.artifacts.iter().any(|artifact| artifact.artifact_id == id))
        };
        let id = self.inner.tool_files.lock().id(&file, is_taken);
        let Some(id) = id else { return Emitted::new(Ok(0)) };
        let name = file.filename.clone().unwrap_or_else(|| UNNAMED.to_owned());
        let artifact =
            Artifact { artifact_id: id, name: Some(name), parts: vec![file], ..Artifact::default() };
        emit(self, artifact, false, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_taken_out_of_a_result_and_described_there() {
        let mut result = json!({"ok": true, "artifact": {"filename": "../a.yml", "mediaType": "text/yaml", "content": "a: é"}});
        let file = take_tool_file(&mut result).unwrap();
        assert_eq!(file, Part::raw("a: é".as_bytes()).filename("a.yml").media_type("text/yaml"));
        let described = json!({"filename": "a.yml", "mediaType": "text/yaml", "byteSize": 5});
        assert_eq!(result, json!({"ok": true, "artifact": described}));
        assert_eq!(take_tool_file(&mut result), None, "it is only described");
        let mut encoded = json!({"artifact": {"base64": "AQI="}});
        let file = take_tool_file(&mut encoded).unwrap();
        assert_eq!(file, Part::raw([1, 2]).filename("artifact").media_type("application/octet-stream"));
        let mut text = json!(json!({"artifact": {"base64": "AQI="}}).to_string());
        assert_eq!(take(&mut text), Some(file));
        assert_eq!(text["artifact"]["byteSize"], 2);
    }

    #[test]
    fn files_have_different_ids_and_never_replace_the_answer_of_an_agent() {
        let mut files = ToolFiles::default();
        let mut id =
            |name: &str, content: &str| files.id(&Part::raw(content).filename(name), |id| id == "file:b");
        for (name, content, expected) in [
            ("answer", "x", Some("file:answer")),
            ("a", "1", Some("file:a")),
            ("a", "2", Some("file:a:2")),
            ("a", "1", None),
            ("a", "3", Some("file:a:3")),
            ("b", "1", Some("file:b:2")),
        ] {
            assert_eq!(id(name, content).as_deref(), expected, "{name} {content}");
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
            assert_eq!(take_tool_file_from_text(&result.to_string()), None);
        }
    }
}
