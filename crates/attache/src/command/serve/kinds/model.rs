//! A language model.

use std::path::PathBuf;
use std::time::Duration;

use attache::client::Address;
use attache::core::Conversation;
use attache::prelude::*;
use attache_agents::model::Model;

use super::{AgentKind, AgentSection, BuildRequest, BuiltAgent, CheckContext, Serve, TurnTimes, is_of_kind};
use crate::command::Failure;
use crate::command::serve::is_http;
use crate::config::{self, HttpUrl, ModelTool, NamedAgent, Problems};

/// The environment variable with the key of the model at the root.
pub(crate) const MODEL_KEY_VARIABLE: &str = "ATTACHE_MODEL_KEY";

pub(super) struct ModelKind;

impl AgentKind for ModelKind {
    type Settings = config::Model;
    const NAME: &'static str = "model";
    const ABOUT: &'static str = "A language model";

    fn is_asked_for(serve: &Serve) -> bool {
        serve.model.model.is_some()
    }

    fn at_root(serve: &Serve, file: &config::Settings) -> Result<config::Model, Failure> {
        let (flags, section) = (&serve.model, file.model.clone());
        // The file of the flag comes first, then the environment, then the settings.
        let in_environment = || std::env::var(MODEL_KEY_VARIABLE).ok().map(config::Masked);
        let key = match &flags.model_key_file {
            Some(_) => None,
            None => in_environment().or(section.key.clone()),
        };
        Ok(config::Model {
            url: flags.model.clone().map(|url| config::FromText(HttpUrl(url))),
            name: flags.model_name.clone(),
            key,
            key_file: flags.model_key_file.clone(),
            ..section
        })
    }

    fn of_named(agent: &NamedAgent) -> Option<config::Model> {
        agent.model.clone()
    }

    fn check(model: &config::Model, context: &CheckContext<'_>, problems: &mut Problems<'_>) {
        check_access(model, problems);
        check_tools(model, context, problems);
    }

    fn calls_agents(model: &config::Model) -> bool {
        model.calls_agents()
    }

    fn times(model: &config::Model) -> TurnTimes {
        TurnTimes::new(model.longest_waits(), Duration::ZERO)
    }

    fn secret_files(model: &config::Model) -> Vec<PathBuf> {
        model.key_file.iter().cloned().collect()
    }

    async fn build(model: config::Model, request: BuildRequest) -> Result<BuiltAgent, Failure> {
        let (_, name) = endpoint(&model)?;
        let rules = request.context.conversation.rules_with_media(&model.media_types());
        let whole = Skill::new("chat", "General conversation").description("Answers in plain language");
        let mut card = Card::new(name, format!("The language model {name}")).input_modes(rules.input.modes());
        card.skills = request.card.whole(whole);
        let agent = request.context.tools.give(without_tools(&model, rules)?, &model.tools());
        Ok(match &model.budget {
            Some(budget) => {
                let budget = request.budget(budget).await?;
                BuiltAgent::new(budget.limit(agent.budget(budget.clone())), card, request.card)
            }
            None => BuiltAgent::new(agent, card, request.card),
        })
    }
}

/// A language model without tools.
pub(super) fn without_tools(model: &config::Model, rules: Conversation) -> Result<Model, Failure> {
    let (url, name) = endpoint(model)?;
    let options = model.options(url, name, key(model)?).with(|options| options.conversation = rules);
    Model::new(options).map_err(Failure::new)
}

/// Checks the tools of a model.
fn check_tools(model: &config::Model, context: &CheckContext<'_>, problems: &mut Problems<'_>) {
    for (index, tool) in model.tools().iter().enumerate() {
        let name = match tool {
            ModelTool::Mcp(name) | ModelTool::Agent(name) => Some(name),
            ModelTool::Functions => None,
        };
        if name.is_some_and(|name| problems.is_wrong(&format!("agents.{name}"))) {
            continue;
        }
        if let Some(flaw) = tool_flaw(tool, context) {
            problems.add([&format!("tools[{index}]"), "tools"], Failure::usage(flaw));
        }
    }
}

/// Why a model cannot have a tool, if it cannot.
fn tool_flaw(tool: &ModelTool, context: &CheckContext<'_>) -> Option<String> {
    let is = |name: &String, test| context.named.get(name).map(|agent| is_of_kind(agent, test));
    match tool {
        ModelTool::Mcp(name) => (is(name, AgentSection::offers_tools) != Some(true))
            .then(|| format!("the tool `{tool}` needs an agent `{name}` with a section `mcp` in `agents`")),
        ModelTool::Agent(name) => match is(name, AgentSection::calls_agents) {
            None => Some(format!("the tool `{tool}` needs an agent `{name}` in `agents`")),
            // Two agents that call each other would never end.
            Some(true) => Some(format!("the tool `{tool}` is an agent that calls other agents itself")),
            Some(false) => None,
        },
        ModelTool::Functions => {
            (!context.has_functions).then(|| "the tool `functions` needs `agent: functions`".to_owned())
        }
    }
}

/// Checks the URL of the API and its key. A key is only sent over TLS, or to this machine.
pub(super) fn check_access(model: &config::Model, problems: &mut Problems<'_>) {
    let url = problems.take(["url"], url(model));
    if model.url.is_some() {
        problems.take(["name"], name(model));
    }
    let key = problems.take(["key-file"], key(model)).flatten();
    if let (Some(url), Some(_)) = (url, key) {
        let address: Result<Address, _> = url.split(['?', '#']).next().unwrap_or(url).parse();
        let failure = |error| Failure::usage(format!("the key of the model: {error}"));
        problems.take(["url"], address.map_err(failure));
    }
}

/// The URL of the API and the name of the model.
pub(super) fn endpoint(model: &config::Model) -> Result<(&str, &str), Failure> {
    Ok((url(model)?, name(model)?))
}

fn url(model: &config::Model) -> Result<&str, Failure> {
    match model.url.as_ref().map(|url| url.0.0.as_str()) {
        Some(url) if is_http(url) => Ok(url),
        // One of a flag is not checked before.
        Some(url) => Err(Failure::usage(format!("`{url}` is not an `http` or `https` URL"))
            .hint("try `--model https://api.openai.com/v1`")),
        None => Err(Failure::usage("no endpoint is named").hint(
            "name it with `--model https://api.openai.com/v1`, or with `model.url` in the configuration file",
        )),
    }
}

fn name(model: &config::Model) -> Result<&str, Failure> {
    model.name.as_deref().ok_or_else(|| {
        Failure::usage("the name of the model is missing")
            .hint("name it with `--model-name NAME`, or with `model.name` in the configuration file")
    })
}

/// The key of the API: from its file, or from the settings.
fn key(model: &config::Model) -> Result<Option<String>, Failure> {
    let Some(path) = &model.key_file else { return Ok(model.key.as_ref().map(|key| key.0.clone())) };
    let key = std::fs::read_to_string(path)
        .map_err(|error| Failure::usage(format!("`{}` cannot be read: {error}", path.display())))?;
    match key.trim() {
        "" => Err(Failure::usage(format!("there is no key in `{}`", path.display()))),
        key => Ok(Some(key.to_owned())),
    }
}
