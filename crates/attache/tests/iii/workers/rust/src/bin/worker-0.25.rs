//! The worker with iii-sdk 0.25.

#[path = "../worker.rs"]
mod worker;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    worker::run().await;
}

/// What the worker uses, as this version spells it.
mod sdk {
    use iii_sdk::channel::{ChannelReader, ChannelWriter};
    use iii_sdk::protocol::{RegisterTriggerInput, TriggerRequest};
    use iii_sdk::runtime::{FunctionRef, WorkerMetadata};
    use iii_sdk::trigger::{TriggerConfig, TriggerHandler};
    use iii_sdk::{
        Error, IIIClient, InitOptions, RegisterFunction, RegisterTriggerType, TriggerAction, register_worker,
    };
    use serde_json::Value;

    use crate::worker::Bells;

    pub type Answer = Result<Value, String>;
    pub type Client = IIIClient;

    #[derive(Default)]
    pub struct About {
        pub description: Option<&'static str>,
        pub schema: Option<Value>,
        pub metadata: Option<Value>,
    }

    pub fn connect(engine: &str, name: &str) -> Client {
        let metadata = WorkerMetadata { name: name.to_owned(), ..WorkerMetadata::default() };
        register_worker(engine, InitOptions { metadata: Some(metadata), ..InitOptions::default() })
    }

    pub fn register<H, F>(iii: &Client, id: &str, about: About, handler: H) -> FunctionRef
    where
        H: Fn(Value) -> F + Send + Sync + 'static,
        F: Future<Output = Answer> + Send + 'static,
    {
        let mut function = RegisterFunction::new_async(move |input: Value| {
            let answer = handler(input);
            async move { answer.await.map_err(Error::Handler) }
        });
        if let Some(description) = about.description {
            function = function.description(description);
        }
        if let Some(schema) = about.schema {
            function = function.request_format(schema);
        }
        if let Some(metadata) = about.metadata {
            function = function.metadata(metadata);
        }
        iii.register_function(id, function)
    }

    pub async fn call(iii: &Client, function: &str, payload: Value, void: bool) -> Answer {
        let mut request = TriggerRequest::new(function, payload);
        request.action = void.then_some(TriggerAction::Void);
        iii.trigger(request).await.map_err(|error| error.to_string())
    }

    #[expect(deprecated, reason = "engines up to 0.25 know nothing else")]
    pub fn trigger(iii: &Client, kind: &str, function: &str, config: Value) {
        let input = RegisterTriggerInput::new(kind, function, config);
        iii.register_trigger(input).expect("a trigger can be registered");
    }

    #[expect(deprecated, reason = "engines up to 0.25 know nothing else")]
    pub fn provide(iii: &Client, kind: &str, description: &str, bells: Bells) {
        iii.register_trigger_type(RegisterTriggerType::new(kind, description, Provider(bells)));
    }

    pub fn writer(engine: &str, channel: &Value) -> Result<ChannelWriter, String> {
        let channel = serde_json::from_value(channel.clone()).map_err(|error| error.to_string())?;
        Ok(ChannelWriter::new(engine, &channel))
    }

    pub fn reader(engine: &str, channel: &Value) -> Result<ChannelReader, String> {
        let channel = serde_json::from_value(channel.clone()).map_err(|error| error.to_string())?;
        Ok(ChannelReader::new(engine, &channel))
    }

    struct Provider(Bells);

    #[async_trait::async_trait]
    impl TriggerHandler for Provider {
        async fn register_trigger(&self, bell: TriggerConfig) -> Result<(), Error> {
            if bell.config["broken"] == true {
                return Err(Error::Handler("a broken bell cannot be rung".to_owned()));
            }
            self.0.lock().unwrap().insert(bell.id, (bell.function_id, bell.config));
            Ok(())
        }

        async fn unregister_trigger(&self, bell: TriggerConfig) -> Result<(), Error> {
            self.0.lock().unwrap().remove(&bell.id);
            Ok(())
        }
    }
}
