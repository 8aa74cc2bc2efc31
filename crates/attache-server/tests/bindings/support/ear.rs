//! What is logged, for tests to read.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, Once};

use tracing::field::{Field, Visit};
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

/// Hears what this thread logs, until it is dropped.
pub(crate) struct Ear {
    heard: Lines,
    _listening: DefaultGuard,
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "message" => self.0 = format!("{value:?}{}", self.0),
            name => self.0 += &format!(" {name}={value:?}"),
        }
    }
}

impl<S: tracing::Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields(String::new());
        event.record(&mut fields);
        let line = format!("{} {}: {}", event.metadata().level(), event.metadata().target(), fields.0);
        self.0.lock().unwrap().push(line);
    }
}

impl Ear {
    pub(crate) fn new() -> Self {
        // While a thread has the only subscriber, a log statement that another thread is the first to reach is switched off for both.
        static FOR_ALL_THREADS: Once = Once::new();
        FOR_ALL_THREADS.call_once(|| {
            tracing::subscriber::set_global_default(tracing_subscriber::registry())
                .expect("there is no other");
        });
        let heard = Lines::default();
        let subscriber = tracing_subscriber::registry().with(heard.clone());
        Self { heard, _listening: tracing::subscriber::set_default(subscriber) }
    }

    /// All that was logged since one last asked.
    pub(crate) fn all(&self) -> Vec<String> {
        std::mem::take(&mut *self.heard.0.lock().unwrap())
    }

    /// What was denied since one last asked.
    pub(crate) fn audit(&self) -> Vec<String> {
        self.all()
            .into_iter()
            .filter_map(|line| Some(line.split_once(" attache::audit: ")?.1.to_owned()))
            .collect()
    }
}
