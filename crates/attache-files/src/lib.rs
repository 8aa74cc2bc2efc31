//! Files with secrets in them: keys, tokens, logins.
//!
//! Only the owner of a file can read it. A write replaces the file as a whole, so a reader sees the old content or the new content. A
//! process that changes a file depending on its content holds the [lock](lock()) of the file meanwhile, so that two processes do not
//! overwrite each other's changes.
//!
//! The parts that depend on the operating system are in [`permissions`], [`identity`] and [`durability`]. Each states its fallback for
//! systems other than Unix.

pub mod durability;
pub mod identity;
pub mod permissions;

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use zeroize::Zeroizing;

use self::identity::FileIdentity;

/// A version of a file. It differs after the file was changed or replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    changed: Option<SystemTime>,
    length: u64,
    /// A replaced file has another identity.
    identity: Option<FileIdentity>,
}

impl Stamp {
    /// The current version of a file.
    pub fn of(path: &Path) -> io::Result<Self> {
        fs::metadata(path).map(|metadata| Self::new(&metadata))
    }

    fn new(metadata: &fs::Metadata) -> Self {
        Self {
            changed: metadata.modified().ok(),
            length: metadata.len(),
            identity: FileIdentity::of(metadata),
        }
    }
}

/// The content of a file.
#[derive(PartialEq, Eq)]
pub enum Content {
    /// The text of a file that only its owner can read.
    Private(Zeroizing<String>, Stamp),
    /// Other users can access the file, so it was not read.
    Exposed,
}

/// Does not write the text.
impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Private(_, stamp) => f.debug_tuple("Private").field(stamp).finish_non_exhaustive(),
            Self::Exposed => f.write_str("Exposed"),
        }
    }
}

/// Reads a file if only its owner can access it.
pub fn read(path: &Path) -> io::Result<Content> {
    let mut file = File::open(path)?;
    let metadata = file.metadata()?;
    if permissions::shared_mode(&metadata).is_some() {
        return Ok(Content::Exposed);
    }
    let mut text = Zeroizing::new(String::new());
    file.read_to_string(&mut text)?;
    Ok(Content::Private(text, Stamp::new(&metadata)))
}

/// Creates a file with its folders, or replaces it as a whole. A line break is added to the text.
pub fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    create_folder_of(path)?;
    let (next, mut file) = create_temporary(path)?;
    let written = file
        .write_all(text)
        .and_then(|()| file.write_all(b"\n"))
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&next, path));
    if let Err(error) = written {
        // The incomplete file is of no use. An error of the removal would hide the error of the write.
        let _ = fs::remove_file(&next);
        return Err(error);
    }
    // Otherwise the old file can be back after a power failure.
    durability::sync_folder_of(path)
}

/// A lock that prevents other processes from changing a file while it is held. Reading needs no lock.
#[must_use = "other processes can change the file as soon as this is dropped"]
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// Waits for the lock of a file, and takes it. The file need not exist. Its folders are created.
pub fn lock(path: &Path) -> io::Result<Lock> {
    create_folder_of(path)?;
    let mut options = OpenOptions::new();
    permissions::owner_only_file(&mut options).create(true).append(true);
    let file = options.open(path.with_extension("lock"))?;
    file.lock()?;
    Ok(Lock { _file: file })
}

fn create_folder_of(path: &Path) -> io::Result<()> {
    match path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) => permissions::create_owner_only_folder(folder),
        None => Ok(()),
    }
}

/// Creates an empty file with a unique name next to a file. Other processes can be about to replace the same file.
fn create_temporary(path: &Path) -> io::Result<(PathBuf, File)> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    loop {
        let mut name = OsString::from(path);
        name.push(format!(".{}-{}.new", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)));
        let next = PathBuf::from(name);
        let mut options = OpenOptions::new();
        match permissions::owner_only_file(&mut options).write(true).create_new(true).open(&next) {
            // A process with the same id was killed and has left it behind.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => return created.map(|file| (next, file)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;

    fn text(path: &Path) -> String {
        match read(path).unwrap() {
            Content::Private(text, _) => text.to_string(),
            Content::Exposed => panic!("other users can read it"),
        }
    }

    /// The names of the files in a folder.
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
            // The next change makes the file private again. Until then it is not read.
            fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
            assert_eq!(read(&path).unwrap(), Content::Exposed);
        }
        drop(lock(&path).unwrap());
        assert_eq!(mode("deep/down/keys.lock"), 0o600);
    }

    #[test]
    fn debug_output_does_not_contain_the_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.json");
        write(&path, b"s3cret").unwrap();
        assert!(!format!("{:?}", read(&path).unwrap()).contains("s3cret"));
    }

    #[test]
    fn a_reader_sees_the_old_or_the_new_content_during_concurrent_writes() {
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
    fn a_failed_write_leaves_the_old_file() {
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
        // The superuser can write everywhere.
        if fs::write(folder.path().join("probe"), "").is_err() {
            assert_eq!(write(&path, b"new").unwrap_err().kind(), io::ErrorKind::PermissionDenied);
            assert_eq!(lock(&path).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
            assert_eq!(text(&path), "old\n");
        }
        open(0o700);
    }

    #[test]
    fn a_process_that_waited_for_the_lock_sees_the_writes_of_the_holder() {
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
