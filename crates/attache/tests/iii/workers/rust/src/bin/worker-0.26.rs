//! The worker with iii-sdk 0.26, which has observers instead of triggers: of those it has the ones for HTTP requests.

#[path = "../worker.rs"]
mod worker;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    worker::run().await;
}

/// What the worker uses, as this version spells it.
mod sdk {
    use iii_sdk_0_26::channel::{ChannelReader, ChannelWriter};
    use iii_sdk_0_26::runtime::{FunctionRef, WorkerMetadata};
    use iii_sdk_0_26::{
        CallAction, CallRequest, Error, IIIClient, InitOptions, RegisterFunction, Source, register_worker,
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
        let mut request = CallRequest::new(function, payload);
        request.action = void.then_some(CallAction::Void);
        iii.call(request).await.map_err(|error| error.to_string())
    }

    pub fn trigger(iii: &Client, kind: &str, function: &str, config: Value) {
        if kind == "http" {
            let path = config["api_path"].as_str().unwrap_or_default().trim_start_matches('/');
            let args = serde_json::json!({"method": config["http_method"], "path": format!("/{path}")});
            iii.observe(Source::function("http::on-request").args(args), function);
        }
    }

    pub fn provide(_: &Client, _: &str, _: &str, _: Bells) {}

    pub fn writer(engine: &str, channel: &Value) -> Result<ChannelWriter, String> {
        let channel = serde_json::from_value(channel.clone()).map_err(|error| error.to_string())?;
        Ok(ChannelWriter::new(engine, &channel))
    }

    pub fn reader(engine: &str, channel: &Value) -> Result<ChannelReader, String> {
        let channel = serde_json::from_value(channel.clone()).map_err(|error| error.to_string())?;
        Ok(ChannelReader::new(engine, &channel))
    }
}
