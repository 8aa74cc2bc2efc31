//! Keys in a file, and their rotation.

use std::fs;
use std::path::{Path, PathBuf};

use attache_protocol::{AgentCard, Timestamp};
use attache_signing::{Algorithm, KeySet, KeyState, KeysError, SigningKeys, Verifier};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn file(dir: &tempfile::TempDir) -> PathBuf {
    dir.path().join("below/signing-keys.json")
}

fn made(algorithm: Algorithm) -> (tempfile::TempDir, SigningKeys) {
    let dir = tempfile::tempdir().unwrap();
    SigningKeys::create(file(&dir), algorithm, NOW).unwrap();
    let keys = SigningKeys::open(file(&dir)).unwrap();
    (dir, keys)
}

fn trusts(pinned: &KeySet, keys: &SigningKeys) -> bool {
    let card = keys.current().sign(&AgentCard::new("N", "D"), None).unwrap();
    let json = serde_json::to_vec(&card).unwrap();
    Verifier::new().pin(pinned.clone()).verify_pinned(&json).is_ok()
}

fn states(keys: &SigningKeys) -> Vec<KeyState> {
    keys.list().iter().map(|key| key.state).collect()
}

#[test]
fn verifiers_with_the_old_key_and_with_the_new_key_trust_the_card_until_the_old_key_is_retired() {
    let (_dir, keys) = made(Algorithm::Es256);
    let old = keys.current().public_keys();
    let rotated = keys.rotate(None, NOW).unwrap();
    assert_eq!(states(&keys), [KeyState::Retiring, KeyState::Active]);
    let both = keys.current().public_keys();
    let new: KeySet = both.iter().filter(|key| key.kid() == rotated[0].1.kid).cloned().collect();
    assert_eq!((both.iter().count(), new.iter().count()), (2, 1));
    assert!(trusts(&old, &keys) && trusts(&new, &keys));
    assert_eq!(keys.retire(None).unwrap()[0].kid, rotated[0].0.kid);
    assert!(!trusts(&old, &keys) && trusts(&new, &keys));
    assert_eq!(keys.current().public_keys(), new);
    assert_eq!(states(&keys), [KeyState::Retired, KeyState::Active]);
}

#[test]
fn several_keys_sign_at_once_and_rotate_one_by_one() {
    let (_dir, keys) = made(Algorithm::Es256);
    let second = keys.add(Algorithm::EdDsa, NOW).unwrap();
    let card = keys.current().sign(&AgentCard::new("N", "D"), None).unwrap();
    assert_eq!(card.signatures.len(), 4, "each signs both forms of a card with empty values");
    let rotated = keys.rotate(Some(&second.kid), NOW).unwrap();
    assert_eq!((rotated.len(), rotated[0].1.algorithm), (1, Algorithm::EdDsa));
    assert_eq!(states(&keys), [KeyState::Active, KeyState::Retiring, KeyState::Active]);
    let again = keys.rotate(Some(&second.kid), NOW).unwrap_err();
    assert!(again.to_string().contains("is retiring: only an active key can be rotated"), "{again}");
    assert!(matches!(keys.rotate(Some("x"), NOW), Err(KeysError::Unknown(_))));
    assert!(matches!(keys.retire(Some("x")), Err(KeysError::Unknown(_))));
}

#[test]
fn the_last_active_key_cannot_be_retired() {
    let (_dir, keys) = made(Algorithm::Es256);
    let kid = keys.list()[0].kid.clone();
    assert!(matches!(keys.retire(Some(&kid)), Err(KeysError::LastActive(_))));
    assert!(keys.retire(None).unwrap().is_empty());
    keys.add(Algorithm::Es256, NOW).unwrap();
    assert_eq!(keys.retire(Some(&kid)).unwrap()[0].state, KeyState::Retired);
}

#[test]
fn a_retired_key_leaves_no_secret_behind() {
    let (dir, keys) = made(Algorithm::Hs256);
    let text = || fs::read_to_string(file(&dir)).unwrap();
    let secret = text().split("\"secret\": \"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    keys.rotate(None, NOW).unwrap();
    assert!(text().contains(&secret));
    keys.retire(None).unwrap();
    assert!(!text().contains(&secret));
    assert!(!format!("{keys:?}").contains(&secret));
}

#[test]
fn the_keys_of_every_algorithm_are_the_same_when_they_are_read_again() {
    for algorithm in Algorithm::ALL {
        let (dir, keys) = made(algorithm);
        let again = SigningKeys::open(file(&dir)).unwrap();
        assert_eq!(again.list(), keys.list());
        assert_eq!(again.current().verifying_keys(), keys.current().verifying_keys());
        assert!(trusts(&keys.current().verifying_keys(), &again), "{algorithm}");
    }
}

#[test]
fn a_change_begins_with_what_another_process_has_done() {
    let (dir, ours) = made(Algorithm::EdDsa);
    let theirs = SigningKeys::open(file(&dir)).unwrap();
    theirs.add(Algorithm::EdDsa, NOW).unwrap();
    ours.rotate(None, NOW).unwrap();
    assert_eq!(states(&ours).len(), 4);
}

#[test]
fn no_key_is_lost_when_several_are_made_at_once() {
    let (dir, keys) = made(Algorithm::EdDsa);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let theirs = SigningKeys::open(file(&dir)).unwrap();
            scope.spawn(move || (0..5).for_each(|_| drop(theirs.add(Algorithm::EdDsa, NOW).unwrap())));
        }
    });
    keys.add(Algorithm::EdDsa, NOW).unwrap();
    assert_eq!(states(&keys).len(), 22);
}

#[test]
fn keys_stay_in_use_while_their_file_cannot_be_read() {
    let (dir, keys) = made(Algorithm::EdDsa);
    let public = keys.current().public_keys();
    fs::write(file(&dir), "{").unwrap();
    assert!(trusts(&public, &keys));
    assert!(keys.add(Algorithm::EdDsa, NOW).is_err(), "but nothing is written over what cannot be read");
    assert_eq!(fs::read_to_string(file(&dir)).unwrap(), "{");
}

#[cfg(unix)]
#[test]
fn the_file_is_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let (dir, keys) = made(Algorithm::EdDsa);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&file(&dir)), mode(file(&dir).parent().unwrap())), (0o600, 0o700));
    keys.rotate(None, NOW).unwrap();
    assert_eq!(mode(&file(&dir)), 0o600);
    fs::set_permissions(file(&dir), fs::Permissions::from_mode(0o640)).unwrap();
    let error = SigningKeys::open(file(&dir)).unwrap_err().to_string();
    assert!(error.contains("chmod 600"), "{error}");
}

#[test]
fn a_file_without_keys_is_refused_without_repeating_it() {
    let (dir, _keys) = made(Algorithm::EdDsa);
    let good = fs::read_to_string(file(&dir)).unwrap();
    let (_other, other) = made(Algorithm::EdDsa);
    for (text, reason) in [
        (String::new(), "line 1"),
        (good.replace("\"EdDSA\"", "\"s3cret\""), "line"),
        (good.replace("\"EdDSA\"", "\"ES256\""), "is not a key of ES256"),
        (good.replace("\"active\"", "\"retiring\""), "no active key"),
        (
            good.replace(&good.split('"').nth(5).unwrap().to_owned(), &other.list()[0].kid),
            "with that thumbprint",
        ),
        (r#"{"keys":[]}"#.to_owned(), "no active key"),
    ] {
        fs::write(file(&dir), &text).unwrap();
        let error = SigningKeys::open(file(&dir)).unwrap_err().to_string();
        assert!(error.contains(reason) && !error.contains("s3cret"), "{reason}: {error}");
    }
    fs::remove_file(file(&dir)).unwrap();
    assert!(matches!(SigningKeys::open(file(&dir)), Err(KeysError::Missing { .. })));
}

#[test]
fn a_shared_secret_has_the_id_that_its_users_agreed_on_and_is_not_published() {
    let secret = b"a secret of at least thirty-two bytes";
    let keys = SigningKeys::shared_secret("default", secret, NOW).unwrap();
    assert_eq!(keys.list()[0].kid, "default");
    assert_eq!(keys.current().public_keys().iter().count(), 0);
    assert!(trusts(&keys.current().verifying_keys(), &keys));
    let other = SigningKeys::shared_secret("default", b"another secret of thirty-two bytes", NOW).unwrap();
    assert!(!trusts(&other.current().verifying_keys(), &keys));
    assert!(matches!(SigningKeys::shared_secret("default", &secret[..31], NOW), Err(KeysError::ShortSecret)));
}
