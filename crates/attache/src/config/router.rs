//! The settings of a router.

use attache_agents::router::{RouterOptions, Rule};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::settings::Router;

/// Which messages go to an agent. A message has to fulfil all conditions that are given.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct RouterRule {
    /// The agent
    agent: String,
    /// The text has one of these words or phrases
    #[serde(default)]
    keywords: Vec<String>,
    /// The text has one of these words, and it is a tag of a skill of the agent
    #[serde(default)]
    tags: Vec<String>,
    /// A part has one of these media types, such as `image/*`
    #[serde(default)]
    media_types: Vec<String>,
}

impl Router {
    /// The agents that messages are passed to, each with the path of the setting that names it.
    pub(crate) fn agents(&self) -> impl Iterator<Item = (String, &str)> {
        let default = self.default.iter().map(|name| ("default".to_owned(), name.as_str()));
        let rules = self.rules.iter().enumerate();
        default.chain(rules.map(|(index, rule)| (format!("rules[{index}].agent"), rule.agent.as_str())))
    }

    /// The options of the router.
    pub(crate) fn options(&self) -> RouterOptions {
        let rule = |rule: &RouterRule| {
            Rule::new(&rule.agent).with(|new| {
                new.keywords.clone_from(&rule.keywords);
                new.tags.clone_from(&rule.tags);
                new.media_types.clone_from(&rule.media_types);
            })
        };
        RouterOptions::new().with(|options| {
            options.default.clone_from(&self.default);
            options.rules = self.rules.iter().map(rule).collect();
        })
    }
}
