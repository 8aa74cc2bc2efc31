//! An authenticator that another can take the place of while the server runs.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use attache_core::Identity;
use attache_protocol::{SecurityRequirement, SecurityScheme};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use tokio::sync::watch;

use super::{Authenticator, Denied, Head, Verdict};

/// An authenticator whose place another can take. Cheap to clone, and all clones are one.
///
/// Requests that were let in stay let in; the next one meets the new authenticator, and the card says what that one asks for.
///
/// ```
/// use attache_server::auth::{Everyone, Exchangeable, KnownCallers};
///
/// let callers = Exchangeable::new(Everyone);
/// // Server::echo().authenticate(callers.clone()), and later:
/// callers.exchange(KnownCallers::new().bearer("alice", "t0ken"));
/// ```
#[derive(Clone)]
pub struct Exchangeable {
    current: Arc<ArcSwap<Shared>>,
    exchanged: watch::Sender<()>,
}

/// A sized thing to point at, which a trait object is not.
struct Shared(Arc<dyn Authenticator>);

impl Exchangeable {
    /// Asks this authenticator, until it is exchanged.
    pub fn new(first: impl Authenticator) -> Self {
        let first = Arc::new(Shared(Arc::new(first)));
        Self { current: Arc::new(ArcSwap::new(first)), exchanged: watch::Sender::new(()) }
    }

    /// Asks another one from now on.
    pub fn exchange(&self, next: impl Authenticator) {
        self.current.store(Arc::new(Shared(Arc::new(next))));
        self.exchanged.send_replace(());
    }

    fn current(&self) -> Arc<dyn Authenticator> {
        self.current.load().0.clone()
    }
}

impl fmt::Debug for Exchangeable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchangeable").finish_non_exhaustive()
    }
}

impl Authenticator for Exchangeable {
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
        let exchanged = self.exchanged.subscribe();
        let next = |mut exchanged: watch::Receiver<()>| async move {
            exchanged.changed().await.ok()?;
            Some(((), exchanged))
        };
        stream::unfold(exchanged, next).boxed()
    }
}

/// Lets everyone in, as nobody in particular.
#[derive(Debug, Clone, Copy, Default)]
pub struct Everyone;

impl Authenticator for Everyone {
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

    async fn found(callers: &Exchangeable) -> Result<String, Denied> {
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
        let callers = Exchangeable::new(Everyone);
        assert_eq!(found(&callers).await.as_deref(), Ok("anonymous"));
        assert!(callers.schemes().is_empty() && callers.challenges().is_empty());
        callers.exchange(KnownCallers::new().bearer("alice", "t0ken"));
        assert_eq!(found(&callers).await.as_deref(), Ok("alice"));
        assert_eq!(callers.schemes()[0].0, "bearer");
        callers.clone().exchange(KnownCallers::new().bearer("alice", "another"));
        assert!(matches!(found(&callers).await, Err(Denied::Wrong(_))));
        callers.exchange(Slow("bob"));
        assert_eq!(found(&callers).await.as_deref(), Ok("bob"));
    }

    #[tokio::test]
    async fn who_listens_hears_of_an_exchange_since() {
        let callers = Exchangeable::new(Everyone);
        let mut changes = callers.changes();
        assert_eq!(changes.next().now_or_never(), None);
        callers.exchange(Everyone);
        assert_eq!(changes.next().await, Some(()));
        assert_eq!(changes.next().now_or_never(), None);
    }
}
