//! The files of a message, in a private folder that lasts as long as the turn.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use attache_protocol::{Content, Message};
use tempfile::TempDir;

use crate::child;

/// The files of a message.
pub(super) struct Files {
    /// The folder, if the message has files. It is removed when this is dropped.
    folder: Option<TempDir>,
    /// For each part of the message, the path of its file.
    paths: Vec<Option<PathBuf>>,
}

impl Files {
    /// Writes the files of a message.
    pub(super) async fn write(message: &Message) -> io::Result<Self> {
        let has_files = message.parts.iter().any(|part| matches!(part.content, Content::Raw(_)));
        if !has_files {
            return Ok(Self { folder: None, paths: vec![None; message.parts.len()] });
        }
        let parts = message.parts.clone();
        let written = tokio::task::spawn_blocking(move || {
            let folder = private_folder()?;
            let mut names = BTreeSet::new();
            let mut paths = Vec::with_capacity(parts.len());
            for (number, part) in parts.iter().enumerate() {
                let Content::Raw(bytes) = &part.content else {
                    paths.push(None);
                    continue;
                };
                let mut name = child::file_name(part.filename.as_deref().unwrap_or("file"));
                if !names.insert(name.clone()) {
                    name = format!("{}-{name}", number + 1);
                    names.insert(name.clone());
                }
                let path = folder.path().join(name);
                std::fs::write(&path, bytes)?;
                paths.push(Some(path));
            }
            Ok(Self { folder: Some(folder), paths })
        });
        written.await.map_err(io::Error::other)?
    }

    /// The folder, if the message has files.
    pub(super) fn folder(&self) -> Option<&Path> {
        self.folder.as_ref().map(TempDir::path)
    }

    /// The path of the file of a part.
    pub(super) fn path(&self, part: usize) -> Option<&Path> {
        self.paths.get(part)?.as_deref()
    }
}

fn private_folder() -> io::Result<TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("attache-");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(std::fs::Permissions::from_mode(0o700));
    }
    builder.tempdir()
}

#[cfg(test)]
mod tests {
    use attache_protocol::Part;

    use super::*;

    #[test]
    fn a_file_name_never_leaves_the_folder() {
        for (given, expected) in [
            ("a.txt", "a.txt"),
            ("../../etc/passwd", "passwd"),
            ("C:\\temp\\a.txt", "a.txt"),
            ("..", "_.."),
            ("", "file"),
            ("a/", "file"),
            ("-rf", "_-rf"),
            ("a\nb\0c", "a_b_c"),
        ] {
            assert_eq!(child::file_name(given), expected, "{given:?}");
        }
        assert_eq!(child::file_name(&"ä".repeat(300)).len(), 200);
    }

    #[tokio::test]
    async fn files_of_the_same_name_are_all_written_and_removed_with_the_turn() {
        let file = |bytes: &str| Part::raw(bytes).filename("a.txt");
        let message = Message::user("m", "text").part(file("one")).part(file("two"));
        let files = Files::write(&message).await.unwrap();
        let read = |part| std::fs::read_to_string(files.path(part).unwrap()).unwrap();
        assert_eq!((read(1).as_str(), read(2).as_str()), ("one", "two"));
        assert_eq!(files.path(0), None);
        let folder = files.folder().unwrap().to_owned();
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(std::fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
        }
        drop(files);
        assert!(!folder.exists());
    }

    #[tokio::test]
    async fn a_message_without_files_makes_no_folder() {
        assert!(Files::write(&Message::user("m", "text")).await.unwrap().folder().is_none());
    }
}
