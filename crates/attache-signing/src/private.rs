//! Files with secrets in them: keys, tokens, how somebody logs in.
//!
//! Only their owner can read them, and at every moment there is the old one or the new one, whole. Who changes a file by what was
//! in it before holds its [lock](lock()) meanwhile, so that two who do so at once do not undo each other.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use zeroize::Zeroizing;

/// What tells that a file is another than before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    changed: Option<SystemTime>,
    length: u64,
    /// A file that is replaced gets another number.
    number: u64,
}

impl Stamp {
    /// That of the file as it is now.
    pub fn of(path: &Path) -> io::Result<Self> {
        fs::metadata(path).map(|metadata| Self::new(&metadata))
    }

    fn new(metadata: &fs::Metadata) -> Self {
        #[cfg(unix)]
        let number = std::os::unix::fs::MetadataExt::ino(metadata);
        #[cfg(not(unix))]
        let number = 0;
        Self { changed: metadata.modified().ok(), length: metadata.len(), number }
    }
}

/// What a file holds.
#[derive(PartialEq, Eq)]
pub enum Content {
    /// This, which nobody else can have read.
    Private(Zeroizing<String>, Stamp),
    /// Others than its owner can read it, so it is not looked at.
    Exposed,
}

/// Shows nothing of what is in there.
impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Private(_, stamp) => f.debug_tuple("Private").field(stamp).finish_non_exhaustive(),
            Self::Exposed => f.write_str("Exposed"),
        }
    }
}

/// Reads a file, if it is for its owner only.
pub fn read(path: &Path) -> io::Result<Content> {
    let mut file = File::open(path)?;
    let metadata = file.metadata()?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        if metadata.permissions().mode() & 0o077 != 0 {
            return Ok(Content::Exposed);
        }
    }
    let mut text = Zeroizing::new(String::new());
    file.read_to_string(&mut text)?;
    Ok(Content::Private(text, Stamp::new(&metadata)))
}

/// Makes a file, with the folders that it is in, or replaces it as a whole. The text gets the end of its last line.
pub fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    make_folder(path)?;
    let (next, mut file) = make_beside(path)?;
    let written = file
        .write_all(text)
        .and_then(|()| file.write_all(b"\n"))
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&next, path));
    if let Err(error) = written {
        // What is there of the new one is of no use to anybody. That it did not come about is what counts.
        let _ = fs::remove_file(&next);
        return Err(error);
    }
    match folder(path) {
        // Otherwise the machine may come back with the old one after it lost its power.
        Some(folder) if cfg!(unix) => File::open(folder)?.sync_all(),
        Some(_) | None => Ok(()),
    }
}

/// Keeps others who do the same from changing a file, for as long as what comes back is held. Whoever only reads it need not wait.
#[must_use = "others may change the file as soon as this is dropped"]
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// Waits until nobody else holds the lock of a file, which need not be there yet. The folders that it will be in are made.
pub fn lock(path: &Path) -> io::Result<Lock> {
    make_folder(path)?;
    let file = for_owner().create(true).append(true).open(path.with_extension("lock"))?;
    file.lock()?;
    Ok(Lock { _file: file })
}

/// The folder that a file is in, if its path says so.
fn folder(path: &Path) -> Option<&Path> {
    path.parent().filter(|parent| !parent.as_os_str().is_empty())
}

/// Makes the folder of a file for its owner only, with those above it. One that is there is left as it is.
fn make_folder(path: &Path) -> io::Result<()> {
    let Some(folder) = folder(path) else { return Ok(()) };
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(folder)
}

/// Makes an empty file beside another, which is nobody else's: others may be about to replace the same one.
fn make_beside(path: &Path) -> io::Result<(PathBuf, File)> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    loop {
        let mut name = OsString::from(path);
        name.push(format!(".{}-{}.new", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)));
        let next = PathBuf::from(name);
        match for_owner().write(true).create_new(true).open(&next) {
            // Left behind by a process of the same number that was killed.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made.map(|file| (next, file)),
        }
    }
}

/// How a file is opened that is for its owner only, if it is made.
fn for_owner() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;

    fn text(path: &Path) -> String {
        match read(path).unwrap() {
            Content::Private(text, _) => text.to_string(),
            Content::Exposed => panic!("others can read it"),
        }
    }

    /// What is in a folder.
    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = entries.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[cfg(unix)]
    #[test]
    fn a_file_and_its_folders_are_for_their_owner_only() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/down/keys.json");
        let mode =
            |below: &str| fs::metadata(folder.path().join(below)).unwrap().permissions().mode() & 0o777;
        for round in ["one", "two"] {
            write(&path, round.as_bytes()).unwrap();
            assert_eq!(text(&path), format!("{round}\n"));
            assert_eq!([mode("deep"), mode("deep/down"), mode("deep/down/keys.json")], [0o700, 0o700, 0o600]);
            // Whoever opened it to others has it closed again with the next change, not before.
            fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
            assert_eq!(read(&path).unwrap(), Content::Exposed);
        }
        drop(lock(&path).unwrap());
        assert_eq!(mode("deep/down/keys.lock"), 0o600);
    }

    #[test]
    fn nothing_of_the_text_is_in_what_is_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.json");
        write(&path, b"s3cret").unwrap();
        assert!(!format!("{:?}", read(&path).unwrap()).contains("s3cret"));
    }

    #[test]
    fn who_reads_sees_the_old_one_or_the_new_one_whoever_writes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.json");
        let texts = ["a", "b", "c"].map(|letter| letter.repeat(100_000));
        let whole: Vec<_> = texts.iter().map(|text| format!("{text}\n")).collect();
        write(&path, texts[0].as_bytes()).unwrap();
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    assert!(whole.contains(&text(&path)));
                }
            });
            let writers: Vec<_> = texts
                .iter()
                .map(|text| scope.spawn(|| (0..20).for_each(|_| write(&path, text.as_bytes()).unwrap())))
                .collect();
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            done.store(true, Ordering::Relaxed);
            reader.join().unwrap();
        });
        assert_eq!(names(folder.path()), ["tokens.json"], "nothing else is left behind");
    }

    #[test]
    fn what_cannot_be_written_leaves_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.json");
        fs::create_dir(&path).unwrap();
        write(&path.join("inside"), b"kept").unwrap();
        assert!(write(&path, b"new").is_err(), "a folder is not replaced");
        assert_eq!(
            (names(folder.path()), text(&path.join("inside"))),
            (vec!["keys.json".to_owned()], "kept\n".to_owned())
        );
        let below = path.join("inside/keys.json");
        assert!(write(&below, b"new").is_err() && lock(&below).is_err(), "a file is no folder");
        assert_eq!(names(&path), ["inside"]);
    }

    #[cfg(unix)]
    #[test]
    fn a_folder_that_cannot_be_written_is_an_error_and_the_file_stays() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.json");
        write(&path, b"old").unwrap();
        let open = |mode| fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
        open(0o500);
        // Whoever may do everything cannot be kept out.
        if fs::write(folder.path().join("probe"), "").is_err() {
            assert_eq!(write(&path, b"new").unwrap_err().kind(), io::ErrorKind::PermissionDenied);
            assert_eq!(lock(&path).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
            assert_eq!(text(&path), "old\n");
        }
        open(0o700);
    }

    #[test]
    fn who_waits_for_the_lock_sees_what_its_holder_wrote() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/agents.json");
        let held = lock(&path).unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let _lock = lock(&path).unwrap();
                text(&path)
            });
            write(&path, b"first").unwrap();
            write(&path, b"second").unwrap();
            drop(held);
            assert_eq!(waiting.join().unwrap(), "second\n");
        });
    }
}
