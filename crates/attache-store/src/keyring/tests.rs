//! Tests of the keyring.

use std::fs;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::*;

fn keyring() -> (tempfile::TempDir, Keyring) {
    let dir = tempfile::tempdir().unwrap();
    let keyring = Keyring::from_file(dir.path().join("keys/keyring.json")).unwrap();
    (dir, keyring)
}

#[test]
fn a_sealed_secret_opens_for_its_purpose_only() {
    let (_dir, keyring) = keyring();
    let sealed = keyring.seal(b"task 1", b"secret").unwrap();
    assert!(!sealed.windows(6).any(|window| window == b"secret"));
    assert_eq!(**keyring.open(b"task 1", &sealed).unwrap(), *b"secret");
    assert!(matches!(keyring.open(b"task 2", &sealed), Err(KeyringError::Broken { .. })));
    let mut changed = sealed.clone();
    *changed.last_mut().unwrap() ^= 1;
    assert!(matches!(keyring.open(b"task 1", &changed), Err(KeyringError::Broken { .. })));
    for length in 0..sealed.len() {
        assert!(keyring.open(b"task 1", &sealed[..length]).is_err());
    }
}

#[test]
fn old_keys_open_what_they_sealed_until_they_are_retired() {
    let (_dir, keyring) = keyring();
    let old = keyring.ids().remove(0);
    let sealed = keyring.seal(b"", b"secret").unwrap();
    let new = keyring.rotate().unwrap();
    assert_eq!(keyring.ids(), [new.clone(), old.clone()]);
    assert!(!keyring.is_current(&sealed).unwrap() && keyring.open(b"", &sealed).is_ok());
    assert_eq!(keyring.retire_old().unwrap().join(","), old);
    let error = keyring.open(b"", &sealed).unwrap_err();
    assert!(error.to_string().contains(&old), "{error}");
}

#[test]
fn a_key_that_another_process_added_is_used() {
    let (dir, ours) = keyring();
    let theirs = Keyring::from_file(dir.path().join("keys/keyring.json")).unwrap();
    theirs.rotate().unwrap();
    let sealed = theirs.seal(b"", b"secret").unwrap();
    assert_eq!(**ours.open(b"", &sealed).unwrap(), *b"secret");
    assert_eq!(ours.ids(), theirs.ids());
}

#[test]
fn nothing_is_sealed_under_a_key_that_another_process_retired() {
    let (dir, ours) = keyring();
    let theirs = Keyring::from_file(dir.path().join("keys/keyring.json")).unwrap();
    let before = ours.seal(b"", b"secret").unwrap();
    let new = theirs.rotate().unwrap();
    theirs.retire_old().unwrap();
    assert!(!ours.is_current(&before).unwrap());
    assert!(theirs.open(b"", &ours.seal(b"", b"secret").unwrap()).is_ok());
    assert_eq!(ours.ids(), [new]);
    fs::remove_file(dir.path().join("keys/keyring.json")).unwrap();
    assert!(ours.seal(b"", b"secret").is_err());
}

#[test]
fn concurrent_processes_that_add_keys_lose_none() {
    let (dir, ours) = keyring();
    let path = dir.path().join("keys/keyring.json");
    let added: Vec<String> = std::thread::scope(|scope| {
        let rotate = || Keyring::from_file(&path).unwrap().rotate().unwrap();
        let processes: Vec<_> = (0..8).map(|_| scope.spawn(rotate)).collect();
        processes.into_iter().map(|process| process.join().unwrap()).collect()
    });
    ours.seal(b"", b"secret").unwrap();
    let ids = ours.ids();
    assert!(ids.len() == 9 && added.iter().all(|id| ids.contains(id)), "{ids:?}");
}

#[test]
fn concurrent_processes_create_one_keyring() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("keys/keyring.json");
    let made: Vec<_> = std::thread::scope(|scope| {
        let make = || Keyring::from_file(&path).unwrap().ids();
        let processes: Vec<_> = (0..8).map(|_| scope.spawn(make)).collect();
        processes.into_iter().map(|process| process.join().unwrap()).collect()
    });
    assert!(made.iter().all(|ids| *ids == made[0]), "{made:?}");
}

#[cfg(unix)]
#[test]
fn the_key_file_is_readable_by_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let (dir, keyring) = keyring();
    let path = dir.path().join("keys/keyring.json");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o600);
    keyring.rotate().unwrap();
    assert_eq!(mode(&path), 0o600);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let error = Keyring::from_file(&path).unwrap_err().to_string();
    assert!(error.contains("chmod 600"), "{error}");
}

#[test]
fn a_keyring_from_a_text_is_read_only() {
    let secret = STANDARD.encode([7; 32]);
    let text = format!(r#"{{"keys":[{{"id":"a","key":"{secret}"}},{{"id":"b","key":"{secret}"}}]}}"#);
    let keyring = Keyring::from_json(&text, "here").unwrap();
    assert_eq!(keyring.ids(), ["a", "b"]);
    assert!(matches!(keyring.rotate(), Err(KeyringError::ReadOnly { .. })));
    assert!(!format!("{keyring:?}").contains(&secret));
}

#[test]
fn an_invalid_keyring_is_refused_without_repeating_its_text() {
    for text in [
        "",
        "s3cret",
        r#"{"keys":[]}"#,
        r#"{"keys":[{"id":"a","key":"s3cret"}]}"#,
        r#"{"keys":[{"id":"","key":""}]}"#,
    ] {
        let error = Keyring::from_json(text, "here").unwrap_err().to_string();
        assert!(error.contains("here") && !error.contains("s3cret"), "{error}");
    }
}
