//! Runs one test of the suite on a Tokio runtime.

use tokio::runtime::{Builder, Runtime};

use crate::StoreFactory;
use crate::support::TestStore;

/// Makes a factory for a new, empty location.
pub type NewFactory = fn() -> Box<dyn StoreFactory>;

/// Runs a test that takes an open, empty store.
pub fn open_store<F: Future<Output = ()>>(new_factory: NewFactory, test: fn(TestStore) -> F) {
    runtime().block_on(async {
        let factory = new_factory();
        test(factory.open_store().await).await;
    });
}

/// Runs a test that opens the store of one location several times.
pub fn factory<F: Future<Output = ()>>(new_factory: NewFactory, test: fn(Box<dyn StoreFactory>) -> F) {
    runtime().block_on(test(new_factory()));
}

/// Runs a test that needs several locations.
pub fn new_factory<F: Future<Output = ()>>(new_factory: NewFactory, test: fn(NewFactory) -> F) {
    runtime().block_on(test(new_factory));
}

fn runtime() -> Runtime {
    // Two threads, so that the concurrent parts of a test run at the same time.
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a Tokio runtime")
}

impl dyn StoreFactory + '_ {
    pub(crate) async fn open_store(&self) -> TestStore {
        TestStore::new(self.open().await)
    }
}
