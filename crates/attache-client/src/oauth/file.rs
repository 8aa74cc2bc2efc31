//! Tokens in a file that only its owner can read. All processes of the user share it.

use std::io;
use std::path::PathBuf;

use attache_files as private;
use attache_protocol::Timestamp;
use futures::future::{BoxFuture, FutureExt};
use serde::{Deserialize, Serialize};

use super::tokens::{LockedTokens, TokenKey, TokenStore, TokenStoreError, Tokens};

/// The version of the file format.
const VERSION: u32 = 1;

/// A token store in a file.
///
/// Only the user can read the file. It is replaced atomically. Processes that share it renew a token once.
#[derive(Debug, Clone)]
pub struct FileTokens {
    path: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct Content {
    version: u32,
    #[serde(default)]
    tokens: Vec<Record>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    #[serde(flatten)]
    key: TokenKey,
    access_token: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refresh_token: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    renew: Option<Timestamp>,
}

impl Record {
    fn new(key: &TokenKey, tokens: &Tokens) -> Self {
        Self {
            key: key.clone(),
            access_token: tokens.access.reveal().to_owned(),
            refresh_token: tokens.refresh.as_ref().map(|token| token.reveal().to_owned()),
            renew: tokens.renew,
        }
    }

    fn into_parts(self) -> (TokenKey, Tokens) {
        let refresh = self.refresh_token.map(Into::into);
        (self.key, Tokens { access: self.access_token.into(), refresh, renew: self.renew })
    }
}

impl FileTokens {
    /// The token store in this file. The file and its directory are created with the first write.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// All stored tokens.
    pub fn list(&self) -> Result<Vec<(TokenKey, Tokens)>, TokenStoreError> {
        Ok(self.content()?.into_iter().map(Record::into_parts).collect())
    }

    /// Removes the tokens whose key matches, and returns them.
    pub fn take(
        &self,
        mut is_taken: impl FnMut(&TokenKey) -> bool,
    ) -> Result<Vec<(TokenKey, Tokens)>, TokenStoreError> {
        if !self.path.exists() {
            return Ok(Vec::new());
        }
        let _lock = private::lock(&self.path).map_err(|cause| self.failed("locked", cause))?;
        let (taken, kept): (Vec<_>, Vec<_>) =
            self.content()?.into_iter().partition(|record| is_taken(&record.key));
        if !taken.is_empty() {
            self.replace(kept)?;
        }
        Ok(taken.into_iter().map(Record::into_parts).collect())
    }

    fn failed(&self, doing: &'static str, cause: io::Error) -> TokenStoreError {
        TokenStoreError::File { path: self.path.clone(), doing, cause }
    }

    fn content(&self) -> Result<Vec<Record>, TokenStoreError> {
        let text = match private::read(&self.path) {
            Ok(private::Content::Private(text, _)) => text,
            Ok(private::Content::Exposed) => return Err(TokenStoreError::Exposed(self.path.clone())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(self.failed("read", error)),
        };
        // Gives only the position, because the content is secret.
        let content: Content = serde_json::from_str(&text).map_err(|error| TokenStoreError::Broken {
            path: self.path.clone(),
            line: error.line(),
            column: error.column(),
        })?;
        if content.version > VERSION {
            let (path, found) = (self.path.clone(), content.version);
            return Err(TokenStoreError::Newer { path, found, known: VERSION });
        }
        Ok(content.tokens)
    }

    fn replace(&self, tokens: Vec<Record>) -> Result<(), TokenStoreError> {
        let written = serde_json::to_vec_pretty(&Content { version: VERSION, tokens })
            .map_err(io::Error::from)
            .and_then(|text| private::write(&self.path, &text));
        written.map_err(|cause| self.failed("written", cause))
    }
}

impl TokenStore for FileTokens {
    fn read(&self, key: &TokenKey) -> Result<Option<Tokens>, TokenStoreError> {
        let mut records = self.content()?.into_iter();
        Ok(records.find(|record| record.key == *key).map(|record| record.into_parts().1))
    }

    fn lock<'a>(
        &'a self,
        key: &'a TokenKey,
    ) -> BoxFuture<'a, Result<Box<dyn LockedTokens + 'a>, TokenStoreError>> {
        async move {
            let path = self.path.clone();
            // Another process may hold the lock while it waits for an authorization server.
            let held =
                tokio::task::spawn_blocking(move || private::lock(&path)).await.map_err(io::Error::from);
            let lock = held.and_then(|held| held).map_err(|cause| self.failed("locked", cause))?;
            Ok(Box::new(LockedEntry { tokens: self, key, _lock: lock }) as Box<dyn LockedTokens>)
        }
        .boxed()
    }
}

struct LockedEntry<'a> {
    tokens: &'a FileTokens,
    key: &'a TokenKey,
    _lock: private::Lock,
}

impl LockedTokens for LockedEntry<'_> {
    fn read(&mut self) -> Result<Option<Tokens>, TokenStoreError> {
        self.tokens.read(self.key)
    }

    fn write(&mut self, tokens: Option<&Tokens>) -> Result<(), TokenStoreError> {
        let mut records = self.tokens.content()?;
        records.retain(|record| record.key != *self.key);
        records.extend(tokens.map(|tokens| Record::new(self.key, tokens)));
        self.tokens.replace(records)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn key(agent: &str) -> TokenKey {
        TokenKey {
            server: "https://auth.example/token".to_owned(),
            client: "c".to_owned(),
            scopes: vec!["read".to_owned()],
            resource: None,
            agent: agent.to_owned(),
            account: None,
        }
    }

    fn tokens(access: &str) -> Tokens {
        let renew = Some(Timestamp::from_millis(1_700_000_000_000));
        Tokens { access: access.into(), refresh: Some("r-1".into()), renew }
    }

    async fn write(store: &FileTokens, key: &TokenKey, tokens: Option<&Tokens>) {
        store.lock(key).await.unwrap().write(tokens).unwrap();
    }

    #[tokio::test]
    async fn tokens_are_kept_for_the_user_only_and_each_for_its_agent() {
        let folder = tempfile::tempdir().unwrap();
        let store = FileTokens::new(folder.path().join("deep/tokens.json"));
        let (a, b) = (key("https://a.example"), key("https://b.example"));
        assert_eq!(store.read(&a).unwrap(), None);
        write(&store, &a, Some(&tokens("t-a"))).await;
        write(&store, &b, Some(&tokens("t-b"))).await;
        write(&store, &a, Some(&tokens("t-a2"))).await;
        let again = FileTokens::new(folder.path().join("deep/tokens.json"));
        assert_eq!(again.read(&a).unwrap(), Some(tokens("t-a2")));
        assert_eq!(again.read(&b).unwrap(), Some(tokens("t-b")));
        assert_eq!(again.read(&TokenKey { scopes: Vec::new(), ..a.clone() }).unwrap(), None);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode =
                |path: &str| fs::metadata(folder.path().join(path)).unwrap().permissions().mode() & 0o777;
            assert_eq!((mode("deep"), mode("deep/tokens.json")), (0o700, 0o600));
        }
        assert_eq!(again.take(|key| key.agent == b.agent).unwrap(), [(b.clone(), tokens("t-b"))]);
        assert_eq!(again.take(|key| key.agent == b.agent).unwrap(), []);
        assert_eq!(again.list().unwrap(), [(a.clone(), tokens("t-a2"))]);
        write(&store, &a, None).await;
        assert_eq!(again.list().unwrap(), []);
    }

    #[tokio::test]
    async fn a_file_that_is_broken_or_of_a_later_version_is_named_and_left_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.json");
        let store = FileTokens::new(&path);
        for (text, said) in [
            (
                "{\"version\": 1,\n \"tokens\": [{\"accessToken\": \"s3cret\"}]}",
                "is not a file of tokens (line 2",
            ),
            ("s3cret", "is not a file of tokens (line 1"),
            ("{\"version\": 9, \"tokens\": []}", "newer version of Attaché (format 9, this one knows 1)"),
        ] {
            private::write(&path, text.as_bytes()).unwrap();
            let error = store.read(&key("https://a.example")).unwrap_err().to_string();
            assert!(error.contains(said) && !error.contains("s3cret"), "{error}");
            let key = key("https://a.example");
            assert!(store.lock(&key).await.unwrap().write(Some(&tokens("t"))).is_err());
            assert_eq!(fs::read_to_string(&path).unwrap().trim_end(), text);
        }
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_file_that_others_can_read_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.json");
        private::write(&path, b"{\"version\": 1}").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let error = FileTokens::new(&path).list().unwrap_err();
        assert!(matches!(error, TokenStoreError::Exposed(_)), "{error}");
    }

    #[tokio::test]
    async fn the_next_holder_of_the_lock_sees_what_the_previous_one_wrote() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.json");
        let (store, other) = (FileTokens::new(&path), FileTokens::new(&path));
        let key = key("https://a.example");
        let mut held = store.lock(&key).await.unwrap();
        let waiting = tokio::spawn({
            let key = key.clone();
            async move { other.lock(&key).await.unwrap().read().unwrap() }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        held.write(Some(&tokens("t-new"))).unwrap();
        drop(held);
        assert_eq!(waiting.await.unwrap(), Some(tokens("t-new")));
    }
}
