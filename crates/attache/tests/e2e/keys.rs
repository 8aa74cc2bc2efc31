//! `attache keys`: the life of a key, and a server that follows it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::home::{Home, Ran};
use crate::support::{Program, until};

/// An operator with a key file.
struct Keeper {
    home: Home,
    file: String,
}

impl Keeper {
    fn new() -> Self {
        let home = Home::new();
        let file = home.path("deep/keys.json").display().to_string();
        Self { home, file }
    }

    async fn run(&self, arguments: &[&str]) -> Ran {
        self.home.run(&[&["keys"], arguments, &["--signing-keys", &self.file]].concat()).await
    }

    /// What a subcommand prints as JSON.
    async fn json(&self, arguments: &[&str]) -> Value {
        let ran = self.run(&[arguments, &["--json"]].concat()).await;
        assert_eq!(ran.code, Some(0), "{ran}");
        serde_json::from_str(&ran.stdout).expect("JSON")
    }

    /// Makes a key, and gives its name.
    async fn new_key(&self, algorithm: &str) -> String {
        let made = self.json(&["new", "--alg", algorithm]).await;
        assert_eq!((&made["alg"], &made["state"]), (&json!(algorithm), &json!("active")));
        made["kid"].as_str().expect("a name").to_owned()
    }

    /// All keys, with the state that each is in.
    async fn states(&self) -> Vec<(String, String)> {
        let listed = self.json(&["list"]).await;
        let text = |key: &Value, member: &str| key[member].as_str().expect("text").to_owned();
        let keys = listed["keys"].as_array().cloned().unwrap_or_default();
        keys.iter().map(|key| (text(key, "kid"), text(key, "state"))).collect()
    }

    /// The names of the keys that everybody may know.
    async fn published(&self) -> BTreeSet<String> {
        let ran = self.run(&["list", "--jwks"]).await;
        names(&serde_json::from_str(&ran.stdout).expect("JSON"))
    }

    /// What a command said, without what differs from run to run.
    fn masked(&self, ran: &Ran, keys: &[&str]) -> String {
        let text = ran.masked("http://nowhere").replace(&self.file, "KEYS");
        let numbered = keys.iter().enumerate();
        numbered.fold(text, |text, (at, key)| text.replace(key, &format!("KEY-{}", at + 1)))
    }
}

/// The names of the keys in a set, which has no order.
fn names(set: &Value) -> BTreeSet<String> {
    let keys = set["keys"].as_array().cloned().unwrap_or_default();
    // What is secret about a key has one of these names in a set of JSON Web Keys.
    let secrets = ["d", "p", "q", "dp", "dq", "qi", "k"];
    assert!(!keys.iter().any(|key| secrets.iter().any(|secret| key.get(secret).is_some())), "{set}");
    keys.iter().map(|key| key["kid"].as_str().expect("a name").to_owned()).collect()
}

fn owned(states: &[(&str, &str)]) -> Vec<(String, String)> {
    states.iter().map(|(kid, state)| ((*kid).to_owned(), (*state).to_owned())).collect()
}

#[tokio::test]
async fn a_key_is_made_rotated_and_retired() {
    let keeper = Keeper::new();
    let made = keeper.run(&["new"]).await;
    assert_eq!(made.code, Some(0), "{made}");
    let first = made.stdout.trim().to_owned();
    assert_eq!(keeper.states().await, owned(&[(&first, "active")]));
    insta::assert_snapshot!("list_one", keeper.masked(&keeper.run(&["list"]).await, &[&first]));

    let rotated = keeper.run(&["rotate"]).await;
    let second = rotated.stdout.trim().split(" -> ").nth(1).expect("another").to_owned();
    assert_eq!(rotated.stdout, format!("{first} -> {second}\n"), "{rotated}");
    assert_eq!(keeper.states().await, owned(&[(&first, "retiring"), (&second, "active")]));
    assert_eq!(
        keeper.published().await,
        BTreeSet::from([first.clone(), second.clone()]),
        "both are good meanwhile"
    );

    let retired = keeper.run(&["retire"]).await;
    insta::assert_snapshot!("retired", keeper.masked(&retired, &[&first, &second]));
    assert_eq!(keeper.states().await, owned(&[(&first, "retired"), (&second, "active")]));
    assert_eq!(keeper.published().await, BTreeSet::from([second.clone()]));
    let again = keeper.run(&["retire"]).await;
    assert_eq!((again.code, again.stdout.as_str()), (Some(0), "there was no key to retire\n"), "{again}");
}

#[tokio::test]
async fn one_key_of_several_is_chosen_by_its_name() {
    let keeper = Keeper::new();
    let mut keys = Vec::new();
    for algorithm in ["ES256", "EdDSA", "HS256"] {
        keys.push(keeper.new_key(algorithm).await);
    }
    let [es, ed, hs] = &keys[..] else { panic!("{keys:?}") };
    assert_eq!(
        keeper.published().await,
        BTreeSet::from([es.clone(), ed.clone()]),
        "a secret is not published"
    );
    insta::assert_snapshot!("list_three", keeper.masked(&keeper.run(&["list"]).await, &[es, ed, hs]));

    let rotated = keeper.json(&["rotate", ed]).await;
    assert_eq!(rotated["rotated"][0]["old"]["kid"], json!(ed));
    assert_eq!(rotated["rotated"][0]["new"]["alg"], "EdDSA");
    let next = rotated["rotated"][0]["new"]["kid"].as_str().expect("a name");
    let expected = [(es.as_str(), "active"), (ed, "retiring"), (hs, "active"), (next, "active")];
    assert_eq!(keeper.states().await, owned(&expected));
    let retired = keeper.json(&["retire", es]).await;
    assert_eq!(
        (&retired["retired"][0]["kid"], &retired["retired"][0]["state"]),
        (&json!(es), &json!("retired"))
    );
    let expected = [(es.as_str(), "retired"), (ed, "retiring"), (hs, "active"), (next, "active")];
    assert_eq!(keeper.states().await, owned(&expected));
}

#[tokio::test]
async fn what_cannot_be_done_with_keys_says_what_would_be_right() {
    let keeper = Keeper::new();
    for subcommand in ["list", "rotate", "retire"] {
        let ran = keeper.run(&[subcommand]).await;
        assert_eq!(ran.code, Some(1), "{ran}");
        insta::assert_snapshot!("no_keys", keeper.masked(&ran, &[]));
    }
    insta::assert_snapshot!(
        "unknown_algorithm",
        keeper.masked(&keeper.run(&["new", "--alg", "none"]).await, &[])
    );
    let first = keeper.new_key("ES256").await;
    insta::assert_snapshot!("last_active", keeper.masked(&keeper.run(&["retire", &first]).await, &[&first]));
    insta::assert_snapshot!(
        "unknown_key",
        keeper.masked(&keeper.run(&["rotate", "nobody"]).await, &[&first])
    );
    keeper.run(&["rotate"]).await;
    insta::assert_snapshot!("not_active", keeper.masked(&keeper.run(&["rotate", &first]).await, &[&first]));
    let ran = keeper.run(&["list", "--json", "--jwks"]).await;
    assert_eq!(ran.code, Some(2), "{ran}");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = |path: &str| std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
        assert_eq!(mode(&keeper.file), 0o600);
        std::fs::set_permissions(&keeper.file, PermissionsExt::from_mode(0o644)).expect("it is ours");
        insta::assert_snapshot!("exposed", keeper.masked(&keeper.run(&["list"]).await, &[]));
    }
    std::fs::remove_file(&keeper.file).expect("it is ours");
    keeper.home.file("deep/keys.json", "{}");
    #[cfg(unix)]
    std::fs::set_permissions(&keeper.file, std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .expect("it is ours");
    insta::assert_snapshot!("no_key_file", keeper.masked(&keeper.run(&["new"]).await, &[]));
}

#[tokio::test]
async fn without_a_place_keys_are_kept_for_the_user() {
    let home = Home::new();
    let made = home.run(&["keys", "new"]).await;
    assert_eq!(made.code, Some(0), "{made}");
    let file = home.path(".config/attache/signing-keys.json");
    assert!(file.exists());
    let said = made.stderr.replace(&file.display().to_string(), "KEYS");
    insta::assert_snapshot!("next_steps", said);
    let ran = home.run(&["keys", "list", "--json"]).await;
    assert!(ran.stdout.contains(made.stdout.trim()), "{ran}");
}

#[tokio::test]
async fn a_server_signs_with_the_keys_that_there_are_now() {
    let keeper = Keeper::new();
    let first = keeper.new_key("EdDSA").await;
    let arguments = ["serve", "--agent", "echo", "--listen", "127.0.0.1:0", "--signing-keys", &keeper.file];
    let (program, _) = Program::command(&arguments).await;
    let fetch = async |path: &str| -> Value {
        let answer = reqwest::get(format!("{}/.well-known/{path}", program.url)).await.expect("an answer");
        answer.json().await.expect("JSON")
    };
    let signatures = async || fetch("agent-card.json").await["signatures"].as_array().map_or(0, Vec::len);
    assert_eq!(names(&fetch("jwks.json").await), BTreeSet::from([first.clone()]));
    assert_eq!(signatures().await, 1);

    let rotated = keeper.json(&["rotate"]).await;
    let second = rotated["rotated"][0]["new"]["kid"].as_str().expect("a name").to_owned();
    let both = BTreeSet::from([first, second.clone()]);
    until("both keys are published", async || names(&fetch("jwks.json").await) == both).await;
    until("both keys sign", async || signatures().await == 2).await;
    // A client with either key trusts the card.
    let set = keeper.home.file("pinned.json", &keeper.run(&["list", "--jwks"]).await.stdout);
    let ran = keeper.home.run(&["card", &program.url, "--verify", "--key", &set]).await;
    assert_eq!(ran.code, Some(0), "{ran}");

    keeper.run(&["retire"]).await;
    let one = BTreeSet::from([second]);
    until("one key is published", async || names(&fetch("jwks.json").await) == one).await;
    until("one key signs", async || signatures().await == 1).await;
}
