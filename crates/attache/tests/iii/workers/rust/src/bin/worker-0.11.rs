//! The worker with iii-sdk 0.11.

#[path = "../worker.rs"]
mod worker;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    worker::run().await;
}

/// What the worker uses, as this version spells it.
mod sdk {
    use iii_sdk_0_11::{
        ChannelReader, ChannelWriter, FunctionRef, III, IIIError, InitOptions, RegisterFunctionMessage,
        RegisterTriggerInput, RegisterTriggerType, TriggerAction, TriggerConfig, TriggerHandler,
        TriggerRequest, WorkerMetadata, register_worker,
    };
    use serde_json::Value;

    use crate::worker::Bells;

    pub type Answer = Result<Value, String>;
    pub type Client = III;

    #[derive(Default)]
    pub struct About {
        pub description: Option<&'static str>,
        pub schema: Option<Value>,
        pub metadata: Option<Value>,
    }

    pub fn connect(engine: &str, name: &str) -> Client {
        let metadata = WorkerMetadata { name: name.to_owned(), ..WorkerMetadata::default() };
        register_worker(engine, InitOptions { metadata: Some(metadata), headers: None, otel: None })
    }

    pub fn register<H, F>(iii: &Client, id: &str, about: About, handler: H) -> FunctionRef
    where
        H: Fn(Value) -> F + Send + Sync + 'static,
        F: Future<Output = Answer> + Send + 'static,
    {
        let message = RegisterFunctionMessage {
            id: id.to_owned(),
            description: about.description.map(str::to_owned),
            request_format: about.schema,
            response_format: None,
            metadata: about.metadata,
            invocation: None,
        };
        iii.register_function_with(message, move |input: Value| {
            let answer = handler(input);
            async move { answer.await.map_err(IIIError::Handler) }
        })
    }

    pub async fn call(iii: &Client, function: &str, payload: Value, void: bool) -> Answer {
        let action = void.then_some(TriggerAction::Void);
        let request = TriggerRequest { function_id: function.to_owned(), payload, action, timeout_ms: None };
        iii.trigger(request).await.map_err(|error| error.to_string())
    }

    pub fn trigger(iii: &Client, kind: &str, function: &str, config: Value) {
        let input = RegisterTriggerInput {
            trigger_type: kind.to_owned(),
            function_id: function.to_owned(),
            config,
            metadata: None,
        };
        iii.register_trigger(input).expect("a trigger can be registered");
    }

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
        async fn register_trigger(&self, bell: TriggerConfig) -> Result<(), IIIError> {
            if bell.config["broken"] == true {
                return Err(IIIError::Handler("a broken bell cannot be rung".to_owned()));
            }
            self.0.lock().unwrap().insert(bell.id, (bell.function_id, bell.config));
            Ok(())
        }

        async fn unregister_trigger(&self, bell: TriggerConfig) -> Result<(), IIIError> {
            self.0.lock().unwrap().remove(&bell.id);
            Ok(())
        }
    }
}
