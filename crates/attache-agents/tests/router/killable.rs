//! A server that ends as a process does that is killed: nothing of it runs any more, and nothing more is written.

use std::time::Duration;

use attache_core::Agent;
use attache_server::Server;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

/// The lease of the server. Its successor waits for its end.
const SHORT_LEASE: Duration = Duration::from_secs(1);

/// How long a test waits for an event before it fails.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// A server in a runtime of its own.
pub(crate) struct Killable {
    pub(crate) url: String,
    runtime: Option<Runtime>,
}

impl Killable {
    /// Starts the server that `make` makes within the new runtime.
    pub(crate) async fn start<A: Agent>(make: impl FnOnce() -> Server<A> + Send + 'static) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (sender, address) = oneshot::channel();
        runtime.spawn(async move {
            let server = make().service_options(|options| options.lease = SHORT_LEASE).bind("127.0.0.1:0");
            let listening = server.listen().await.unwrap();
            sender.send(listening.address().unwrap()).unwrap();
            listening.run_until(std::future::pending()).await.unwrap();
        });
        Self { url: format!("http://{}", address.await.unwrap()), runtime: Some(runtime) }
    }

    /// Ends everything at once.
    pub(crate) async fn kill(mut self) {
        if let Some(runtime) = self.runtime.take() {
            let ending = tokio::task::spawn_blocking(move || runtime.shutdown_timeout(TEST_TIMEOUT));
            ending.await.unwrap();
        }
    }
}

impl Drop for Killable {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
