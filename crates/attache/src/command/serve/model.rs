//! A language model as an agent.

use attache::prelude::*;
use attache_agents::model::Model;

use super::functions::Tokens;
use super::{Parts, Prepared, Serve, is_http, stopping};
use crate::command::Failure;
use crate::config::ModelArgs;

/// The environment variable with the key of the API.
pub(crate) const MODEL_KEY_VARIABLE: &str = "ATTACHE_MODEL_KEY";

/// Checks that there is a model, and that its key can be read.
pub(super) fn check(serve: &Serve) -> Result<Tokens, Failure> {
    if serve.functions.demo.demo {
        return Err(Failure::usage("`--demo` adds sample functions, which a model does not have")
            .hint("leave out one of them"));
    }
    serve.model.endpoint()?;
    key(serve)?;
    Ok(Tokens::default())
}

impl ModelArgs {
    /// The URL of the API and the name of the model.
    fn endpoint(&self) -> Result<(&str, &str), Failure> {
        match (&self.model, &self.model_name) {
            (Some(url), _) if !is_http(url) => {
                Err(Failure::usage(format!("`--model {url}` is not an `http` or `https` URL"))
                    .hint("try `--model https://api.openai.com/v1`"))
            }
            (Some(url), Some(name)) => Ok((url, name)),
            (Some(_), None) => Err(Failure::usage("the name of the model is missing")
                .hint("name it with `--model-name NAME`, or with `model.name` in the configuration file")),
            (None, _) => Err(Failure::usage("`agent` is `model`, and no endpoint is named").hint(
                "name it with `--model https://api.openai.com/v1`, or with `model.url` in the configuration file",
            )),
        }
    }
}

/// The key of the API: from the file of the flag, from the environment, or from the settings.
fn key(serve: &Serve) -> Result<Option<String>, Failure> {
    if let Some(path) = &serve.model.model_key_file {
        let key = std::fs::read_to_string(path).map_err(|error| {
            Failure::usage(format!("`--model-key-file {}` cannot be read: {error}", path.display()))
        })?;
        return match key.trim() {
            "" => Err(Failure::usage(format!("there is no key in `{}`", path.display()))),
            key => Ok(Some(key.to_owned())),
        };
    }
    if let Ok(key) = std::env::var(MODEL_KEY_VARIABLE) {
        return Ok(Some(key));
    }
    let file = serve.settings.file.as_ref();
    Ok(file.and_then(|file| file.settings.model.key.as_ref()).map(|key| key.0.clone()))
}

/// Serves a model until the process is stopped.
pub(super) async fn serve(serve: Serve, prepared: Prepared, parts: Parts) -> Result<(), Failure> {
    let store = serve.store.open().await?;
    let announcement = serve.announcement(&prepared)?;
    let (url, name) = serve.model.endpoint()?;
    let section = serve.settings.file.as_ref().map(|file| &file.settings.model).cloned().unwrap_or_default();
    let model = Model::new(section.options(url, name, key(&serve)?)).map_err(Failure::new)?;
    let images = section.images.then_some("image/*");
    let card = Card::new(name, format!("The language model {name}"))
        .input_modes(["text/plain", "text/*", "application/json"].into_iter().chain(images))
        .skill(Skill::new("chat", "General conversation").description("Answers in plain language"));
    let listening = serve.listen(Server::new(model).card(card), store, prepared, parts).await?;
    announcement.say(&listening.local_address().map_err(Failure::new)?, None);
    stopping::run(listening).await
}
