//! What every store promises, one test for each promise and store.
//!
//! A promise is a function that is given an empty store, or for stores that outlive their process, the means to open one again.
//! Where stores may differ, the promise says no more than what all of them keep.

/// Has each promise tested with every store.
macro_rules! promises {
    ($($promise:ident),+ $(,)?) => {
        promises!(@ memory Memory $($promise)+);
        promises!(@ sqlite Sqlite $($promise)+);
    };
    (@ $store:ident $bench:ident $($promise:ident)+) => {
        mod $store {
            use crate::bench::{$bench, Bench};
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $promise() {
                    let bench = $bench::new();
                    super::$promise(bench.open().await).await;
                }
            )+
        }
    };
}

/// Has each promise tested with every store that outlives its process.
macro_rules! durable_promises {
    ($($promise:ident),+ $(,)?) => {
        durable_promises!(@ sqlite Sqlite $($promise)+);
        durable_promises!(@ cramped_sqlite CrampedSqlite $($promise)+);
    };
    (@ $store:ident $bench:ident $($promise:ident)+) => {
        mod $store {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $promise() {
                    super::$promise(&crate::bench::$bench::new()).await;
                }
            )+
        }
    };
}

mod bench;
mod support;

mod abandoned;
mod appending;
mod durability;
mod keys;
mod leases;
mod listing;
mod model;
mod outbox;
mod owners;
mod pruning;
mod settling;
mod snapshots;
mod tailing;
mod values;
mod webhooks;
