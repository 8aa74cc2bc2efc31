//! An authenticator that can be replaced while the server runs.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use attache_core::Identity;
use attache_protocol::{SecurityRequirement, SecurityScheme};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use tokio::sync::watch;

use super::{Authenticator, Denied, Head, Verdict};

/// An authenticator that can be replaced at run time. Cheap to clone; all clones are one authenticator.
///
/// Requests that were admitted go on. The next request meets the new authenticator, and the card lists its security schemes.
///
/// ```
/// use attache_server::auth::{AnonymousAccess, Reloadable, KnownCallers};
///
/// let callers = Reloadable::new(AnonymousAccess);
/// // Server::echo().authenticate(callers.clone()), and later:
/// callers.replace(KnownCallers::new().bearer("alice", "t0ken"));
/// ```
#[derive(Clone)]
pub struct Reloadable {
    current: Arc<ArcSwap<Shared>>,
    replaced: watch::Sender<()>,
}

/// `ArcSwap` needs a sized type.
struct Shared(Arc<dyn Authenticator>);

impl Reloadable {
    /// Starts with this authenticator.
    pub fn new(first: impl Authenticator) -> Self {
        let first = Arc::new(Shared(Arc::new(first)));
        Self { current: Arc::new(ArcSwap::new(first)), replaced: watch::Sender::new(()) }
    }

    /// Replaces the authenticator.
    pub fn replace(&self, next: impl Authenticator) {
        self.current.store(Arc::new(Shared(Arc::new(next))));
        self.replaced.send_replace(());
    }

    fn current(&self) -> Arc<dyn Authenticator> {
        self.current.load().0.clone()
    }
}

impl fmt::Debug for Reloadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloadable").finish_non_exhaustive()
    }
}

impl Authenticator for Reloadable {
    fn authenticate<'a>(&'a self, head: Head<'a>) -> Verdict<'a> {
        let current = self.current();
        match current.authenticate(head) {
            Verdict::Known(identity) => return Verdict::Known(identity),
            Verdict::Denied(denied) => return Verdict::Denied(denied),
            Verdict::Later(_) => {}
        }
        // What takes a while borrows the authenticator, which must then be kept for as long.
        Verdict::Later(Box::pin(async move {
            match current.authenticate(head) {
                Verdict::Known(identity) => Ok(identity),
                Verdict::Denied(denied) => Err(denied),
                Verdict::Later(found) => found.await,
            }
        }))
    }

    fn schemes(&self) -> Vec<(String, SecurityScheme)> {
        self.current().schemes()
    }

    fn requirements(&self) -> Vec<SecurityRequirement> {
        self.current().requirements()
    }

    fn challenges(&self) -> Vec<String> {
        self.current().challenges()
    }

    fn challenges_for(&self, head: Head<'_>, denied: &Denied) -> Vec<String> {
        self.current().challenges_for(head, denied)
    }

    fn admits_everyone(&self) -> bool {
        self.current.load().0.admits_everyone()
    }

    fn changes(&self) -> BoxStream<'static, ()> {
        let replaced = self.replaced.subscribe();
        let next = |mut replaced: watch::Receiver<()>| async move {
            replaced.changed().await.ok()?;
            Some(((), replaced))
        };
        stream::unfold(replaced, next).boxed()
    }
}

/// No authentication: every caller is admitted as anonymous.
#[derive(Debug, Clone, Copy, Default)]
pub struct AnonymousAccess;

impl Authenticator for AnonymousAccess {
    fn authenticate<'a>(&'a self, _: Head<'a>) -> Verdict<'a> {
        Verdict::Known(Identity::default())
    }

    fn schemes(&self) -> Vec<(String, SecurityScheme)> {
        Vec::new()
    }

    fn challenges(&self) -> Vec<String> {
        Vec::new()
    }

    fn admits_everyone(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use attache_core::BoxFuture;
    use futures::FutureExt;
    use http::{HeaderMap, HeaderValue};

    use super::super::{Denied, KnownCallers};
    use super::*;

    /// Someone who has to be asked elsewhere about.
    struct Slow(&'static str);

    impl Authenticator for Slow {
        fn authenticate<'a>(&'a self, _: Head<'a>) -> Verdict<'a> {
            let found: BoxFuture<'a, _> = Box::pin(async { Ok(Identity::named(self.0)) });
            Verdict::Later(found)
        }

        fn schemes(&self) -> Vec<(String, SecurityScheme)> {
            Vec::new()
        }

        fn challenges(&self) -> Vec<String> {
            Vec::new()
        }
    }

    async fn found(callers: &Reloadable) -> Result<String, Denied> {
        let headers =
            HeaderMap::from_iter([(http::header::AUTHORIZATION, HeaderValue::from_static("Bearer t0ken"))]);
        match callers.authenticate(Head { headers: &headers, query: None, peer: None }) {
            Verdict::Known(identity) => Ok(identity.principal.to_string()),
            Verdict::Denied(denied) => Err(denied),
            Verdict::Later(found) => found.await.map(|identity| identity.principal.to_string()),
        }
    }

    #[tokio::test]
    async fn the_next_request_meets_the_new_authenticator() {
        let callers = Reloadable::new(AnonymousAccess);
        assert_eq!(found(&callers).await.as_deref(), Ok("anonymous"));
        assert!(callers.schemes().is_empty() && callers.challenges().is_empty());
        callers.replace(KnownCallers::new().bearer("alice", "t0ken"));
        assert_eq!(found(&callers).await.as_deref(), Ok("alice"));
        assert_eq!(callers.schemes()[0].0, "bearerAuth");
        callers.clone().replace(KnownCallers::new().bearer("alice", "another"));
        assert!(matches!(found(&callers).await, Err(Denied::Wrong(_))));
        callers.replace(Slow("bob"));
        assert_eq!(found(&callers).await.as_deref(), Ok("bob"));
    }

    #[tokio::test]
    async fn a_listener_is_notified_of_a_replacement() {
        let callers = Reloadable::new(AnonymousAccess);
        let mut changes = callers.changes();
        assert_eq!(changes.next().now_or_never(), None);
        callers.replace(AnonymousAccess);
        assert_eq!(changes.next().await, Some(()));
        assert_eq!(changes.next().now_or_never(), None);
    }
}
