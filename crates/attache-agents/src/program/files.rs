//! The files of messages, in a private folder that lasts as long as the process that reads them.

use std::io;
use std::path::{Path, PathBuf};

use attache_protocol::{Content, Message, Part};
use tempfile::TempDir;

use crate::child;

/// How many bytes the files of all messages of a process may have.
const MAX_SIZE: usize = 256 * 1024 * 1024;

/// The files of the messages that a process gets.
#[derive(Default)]
pub(super) struct Files {
    /// The folder, if a message has files. It is removed when this is dropped.
    folder: Option<TempDir>,
    /// For each part of the last message, the path of its file.
    paths: Vec<Option<PathBuf>>,
    count: usize,
    size: usize,
}

impl Files {
    /// Writes the files of a message.
    pub(super) async fn write(message: &Message) -> io::Result<Self> {
        Self::default().with(message).await
    }

    /// Adds the files of another message. The earlier ones stay.
    pub(super) async fn with(mut self, message: &Message) -> io::Result<Self> {
        let has_files = message.parts.iter().any(|part| matches!(part.content, Content::Raw(_)));
        if !has_files {
            self.paths = vec![None; message.parts.len()];
            return Ok(self);
        }
        let parts = message.parts.clone();
        let written = tokio::task::spawn_blocking(move || {
            self.paths.clear();
            for part in &parts {
                let path = self.add(part)?;
                self.paths.push(path);
            }
            Ok(self)
        });
        written.await.map_err(io::Error::other)?
    }

    /// Writes the file of a part, if it has one.
    fn add(&mut self, part: &Part) -> io::Result<Option<PathBuf>> {
        let Content::Raw(bytes) = &part.content else { return Ok(None) };
        self.count += 1;
        self.size += bytes.len();
        if self.size > MAX_SIZE {
            let text = format!("the files of the messages of a program have more than {MAX_SIZE} bytes");
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, text));
        }
        let folder = match &mut self.folder {
            Some(folder) => folder,
            empty @ None => empty.insert(private_folder()?),
        };
        let name = child::file_name(part.filename.as_deref().unwrap_or("file"));
        let path = folder.path().join(child::free_name(folder.path(), &name, self.count));
        std::fs::write(&path, bytes)?;
        Ok(Some(path))
    }

    /// The folder, if a message has files.
    pub(super) fn folder(&self) -> Option<&Path> {
        self.folder.as_ref().map(TempDir::path)
    }

    /// The path of the file of a part of the last message.
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
    builder.tempdir_in(attache_core::private_temporary_directory()?)
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
    async fn no_file_replaces_another_one_whatever_their_names_are() {
        let file = |name: &str, bytes: &str| Part::raw(bytes).filename(name);
        let parts = vec![file("3-a.txt", "one"), file("a.txt", "two"), file("a.txt", "three")];
        let files = Files::write(&Message { parts, ..Message::user("m", "") }).await.unwrap();
        let paths = [0, 1, 2].map(|part| files.path(part).unwrap().to_owned());
        let more = Message { parts: vec![file("a.txt", "four")], ..Message::user("m2", "") };
        let files = files.with(&more).await.unwrap();
        let paths = paths.iter().map(PathBuf::as_path).chain(files.path(0));
        let read: Vec<String> = paths.map(|path| std::fs::read_to_string(path).unwrap()).collect();
        assert_eq!(read, ["one", "two", "three", "four"]);
        assert_eq!(files.path(1), None, "the message has one part");
    }

    #[tokio::test]
    async fn files_of_the_same_name_are_all_written_and_removed_in_the_end() {
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
