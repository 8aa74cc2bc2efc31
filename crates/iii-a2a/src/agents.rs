//! Reads the credentials for other agents from a file.

use std::path::Path;

use attache_agents::{AgentCredentials, AgentFault, AgentSettings};
use serde_json::error::Category;

use crate::Failure;

/// The flag for the file.
const FLAG: &str = "--agent-credentials";

/// Reads the file, if there is one.
pub(crate) fn credentials(file: Option<&Path>) -> Result<AgentCredentials, Failure> {
    let Some(path) = file else { return Ok(AgentCredentials::new(Default::default(), FLAG)) };
    let wrong = |why: &str| Failure::usage(format!("`{FLAG} {}`: {why}", path.display()));
    let text =
        std::fs::read_to_string(path).map_err(|error| wrong(&format!("cannot read the file: {error}")))?;
    let list: Vec<AgentSettings> = serde_json::from_str(&text).map_err(|error| {
        wrong(&describe(&error))
            .hint(r#"such as `[{"url": "https://other.example.com", "bearer-file": "PATH"}]`"#)
    })?;
    let book = AgentSettings::book(&list).map_err(|AgentFault { path, text, hint }| {
        let place = if path.is_empty() { String::new() } else { format!("`{path}`: ") };
        let failure = wrong(&format!("{place}{text}"));
        match hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    })?;
    Ok(AgentCredentials::new(book, FLAG))
}

/// Describes an error in the file. A value of the wrong type may be a secret, so it is not repeated.
fn describe(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let names_keys = ["unknown field", "missing field"].iter().any(|known| text.starts_with(known));
    match error.classify() {
        Category::Data if !names_keys => {
            format!("a value of another type was expected at line {} column {}", error.line(), error.column())
        }
        Category::Data | Category::Io | Category::Syntax | Category::Eof => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_for(text: &str) -> String {
        let path = std::env::temp_dir().join(format!("agents-{}-{}.json", std::process::id(), text.len()));
        std::fs::write(&path, text).unwrap();
        let error = credentials(Some(&path)).err().map(|failure| failure.error);
        std::fs::remove_file(&path).unwrap();
        error.unwrap_or_default().replace(&path.display().to_string(), "FILE")
    }

    #[test]
    fn faults_of_the_file_are_reported_without_its_secrets() {
        assert_eq!(error_for(r#"[{"url": "https://a.example", "bearer": "s3cret"}]"#), "");
        for (text, expected) in [
            ("[{", "EOF while parsing"),
            (r#"[{"url": "https://a.example", "berer": "s3cret"}]"#, "unknown field `berer`"),
            (
                r#"[{"url": "https://a.example", "basic": "s3cret!"}]"#,
                "a value of another type was expected at line 1",
            ),
            (r#"["s3cret"]"#, "a value of another type was expected at line 1"),
            (
                r#"[{"url": "http://a.example", "bearer": "s3cret2"}]"#,
                "`[0].url`: `http://a.example` is not an address",
            ),
        ] {
            let error = error_for(text);
            assert!(error.starts_with(&format!("`--agent-credentials FILE`: {expected}")), "{error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
    }
}
