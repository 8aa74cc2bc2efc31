//! The section `card` of the file: what the operator says about the agent.

use std::collections::HashSet;

use attache::protocol::{AgentCard, AgentExtension, AgentProvider, AgentSkill};
use attache::server::{CardTransports, GrpcAddress, NamedAgent as ServedAgent, SchemeNames, ServerOptions};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::error::ConfigError;
use super::resolve::{DisplayValue, Source};
use super::settings::Card;
use super::{ConfigFile, ResolvedSettings};
use crate::command::Failure;

/// How the card names the gRPC interface.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum CardGrpc {
    /// By its URL, which Google ADK needs
    #[default]
    Url,
    /// By host and port, which the gRPC clients of most SDKs need
    HostPort,
    /// Not at all
    Hidden,
}

impl From<CardGrpc> for GrpcAddress {
    fn from(grpc: CardGrpc) -> Self {
        match grpc {
            CardGrpc::Url => Self::Url,
            CardGrpc::HostPort => Self::HostPort,
            CardGrpc::Hidden => Self::Hidden,
        }
    }
}

/// Which cards list the transports that are not part of the specification.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ListTransports {
    /// Those for clients that ask for them with the extension for transports
    #[default]
    Stated,
    /// All
    All,
    /// None
    Hidden,
}

impl From<ListTransports> for CardTransports {
    fn from(listed: ListTransports) -> Self {
        match listed {
            ListTransports::Stated => Self::Stated,
            ListTransports::All => Self::All,
            ListTransports::Hidden => Self::Hidden,
        }
    }
}

/// A skill in the card. One with the id of a skill that the agent has describes that one.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct CardSkill {
    /// Its id, which is unique
    id: String,
    /// What it is called; the id if nothing is said
    name: Option<String>,
    /// What it does
    description: Option<String>,
    /// Words to find it by
    #[serde(default)]
    tags: Vec<String>,
    /// What one may ask for
    #[serde(default)]
    examples: Vec<String>,
    /// The media types that it takes; those of the agent if nothing is said
    #[serde(default)]
    input_modes: Vec<String>,
    /// The media types that it produces; those of the agent if nothing is said
    #[serde(default)]
    output_modes: Vec<String>,
}

/// What the security schemes are called in the card.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct CardSchemes {
    /// The name for `auth.bearer`; `bearerAuth` if nothing is said
    bearer: Option<String>,
    /// The name for `auth.basic`; `basicAuth` if nothing is said
    basic: Option<String>,
    /// The name for `auth.api-key`; `apiKeyAuth` if nothing is said
    api_key: Option<String>,
    /// The name for issuers in `auth.jwt` with `jwks`; `jwtAuth` if nothing is said
    jwt: Option<String>,
    /// The name for the other issuers in `auth.jwt`; `openIdConnect` if nothing is said
    openid: Option<String>,
    /// The name for `auth.mtls`; `mutualTls` if nothing is said
    mtls: Option<String>,
}

impl CardSchemes {
    /// The names; those that are not set are as `names` has them. Fails with the key of one that cannot be used.
    fn over(&self, mut names: SchemeNames) -> Result<SchemeNames, (&'static str, Box<ConfigError>)> {
        let given = [
            ("bearer", &self.bearer, &mut names.bearer),
            ("basic", &self.basic, &mut names.basic),
            ("api-key", &self.api_key, &mut names.api_key),
            ("jwt", &self.jwt, &mut names.jwt),
            ("openid", &self.openid, &mut names.openid),
            ("mtls", &self.mtls, &mut names.mtls),
        ];
        for (key, name, place) in given {
            let Some(name) = name else { continue };
            if name.is_empty()
                || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
            {
                let text = format!("expected letters, digits, `.`, `_` and `-`, not `{name}`");
                return Err((key, Box::new(ConfigError::new(text))));
            }
            place.clone_from(name);
        }
        let mut seen = HashSet::new();
        let SchemeNames { bearer, basic, api_key, jwt, openid, mtls, .. } = &names;
        let all = [
            ("bearer", bearer),
            ("basic", basic),
            ("api-key", api_key),
            ("jwt", jwt),
            ("openid", openid),
            ("mtls", mtls),
        ];
        let twice = all.into_iter().find(|(_, name)| !seen.insert(name.as_str()));
        match twice.map(|(key, name)| (key, format!("two kinds of schemes are called `{name}`"))) {
            Some((key, text)) => Err((key, Box::new(ConfigError::new(text)))),
            None => Ok(names),
        }
    }
}

/// How the server completes the card of an agent.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct CardPresentation {
    /// What the security schemes are called.
    schemes: SchemeNames,
    /// How the card names the gRPC interface, if the section says so.
    grpc: Option<GrpcAddress>,
    /// Which cards list further transports, if the section says so.
    transports: Option<CardTransports>,
}

impl CardPresentation {
    /// What the security schemes are called.
    pub(super) fn schemes(&self) -> &SchemeNames {
        &self.schemes
    }

    /// For the agent at the root.
    pub(crate) fn apply_to_server(&self, options: &mut ServerOptions) {
        let Self { schemes, grpc, transports } = self;
        options.scheme_names.clone_from(schemes);
        options.grpc_address = grpc.unwrap_or(options.grpc_address);
        options.card_transports = transports.unwrap_or(options.card_transports);
    }

    /// For an agent with a name.
    pub(crate) fn apply_to_agent(&self, agent: ServedAgent) -> ServedAgent {
        let Self { schemes, grpc, transports } = self.clone();
        let agent = agent.scheme_names(schemes);
        let agent = grpc.into_iter().fold(agent, ServedAgent::grpc_address);
        transports.into_iter().fold(agent, ServedAgent::card_transports)
    }
}

/// What the operator says about the agent, whichever it is.
#[derive(Debug, Clone, Default)]
pub(crate) struct CardOverrides {
    name: Option<String>,
    description: Option<String>,
    provider: Option<String>,
    provider_url: Option<String>,
    docs_url: Option<String>,
    settings: Card,
    presentation: CardPresentation,
    /// The extensions that every request has to activate.
    required_extensions: Vec<String>,
}

impl ResolvedSettings {
    /// What the operator says about the agent at the root.
    pub(crate) fn card(&self) -> Result<CardOverrides, Failure> {
        let settings = self.file.as_ref().map(|file| file.settings.card.clone()).unwrap_or_default();
        let overrides = self.card_of(&settings, "card", SchemeNames::default())?;
        // Some of these can be flags or variables of the environment.
        Ok(CardOverrides {
            name: self.said("card.name"),
            description: self.said("card.description"),
            provider: self.said("card.provider"),
            provider_url: self.said("card.provider-url"),
            docs_url: self.said("card.docs-url"),
            ..overrides
        })
    }

    /// What a section of the file says about an agent. `path` is the path of the section. Security schemes that it gives no names have
    /// those of `names`.
    pub(super) fn card_of(
        &self,
        settings: &Card,
        path: &str,
        names: SchemeNames,
    ) -> Result<CardOverrides, Failure> {
        let schemes = settings
            .schemes
            .over(names)
            .map_err(|(key, error)| self.card_error(&format!("{path}.schemes.{key}"), *error))?;
        let mut ids = HashSet::new();
        for (index, skill) in settings.skills.iter().enumerate() {
            if skill.id.is_empty() || !ids.insert(skill.id.as_str()) {
                let text = format!("expected an id that no other skill in this list has, not `{}`", skill.id);
                return Err(self.card_error(&format!("{path}.skills[{index}].id"), ConfigError::new(text)));
            }
        }
        Ok(CardOverrides {
            name: settings.name.clone(),
            description: settings.description.clone(),
            provider: settings.provider.clone(),
            provider_url: settings.provider_url.clone(),
            docs_url: settings.docs_url.clone(),
            settings: settings.clone(),
            presentation: CardPresentation {
                schemes,
                grpc: settings.grpc.map(GrpcAddress::from),
                transports: settings.transports.map(CardTransports::from),
            },
            required_extensions: self
                .file
                .iter()
                .flat_map(|file| &file.settings.required_extensions)
                .map(|uri| uri.0.to_string())
                .collect(),
        })
    }

    fn card_error(&self, path: &str, error: ConfigError) -> Failure {
        // Such settings can only be in the file.
        match &self.file {
            Some(file) => ConfigFile::error(file, path, error),
            None => Failure::usage(format!("`{path}` is wrong")),
        }
    }

    /// The text of a setting, unless it is the default.
    fn said(&self, key: &str) -> Option<String> {
        let setting = self.resolved.iter().find(|setting| setting.key == key)?;
        match (&setting.value, &setting.source) {
            (_, Source::Default)
            | (DisplayValue::Nothing | DisplayValue::Switch(_) | DisplayValue::List(_), _) => None,
            (DisplayValue::Text(text), _) => Some(text.clone()),
        }
    }
}

impl CardOverrides {
    /// How the server completes the card.
    pub(crate) fn presentation(&self) -> &CardPresentation {
        &self.presentation
    }

    /// Sets what the section does not say about interfaces to what holds for the whole server.
    pub(crate) fn follow_server(&mut self, grpc: CardGrpc, transports: ListTransports) {
        self.presentation.grpc.get_or_insert(grpc.into());
        self.presentation.transports.get_or_insert(transports.into());
    }

    /// The skill that stands for a whole agent, unless the operator names other skills.
    pub(crate) fn whole(&self, skill: AgentSkill) -> Vec<AgentSkill> {
        let named = &self.settings.skills;
        let is_replaced = !named.is_empty() && named.iter().all(|named| named.id != skill.id);
        if is_replaced { Vec::new() } else { vec![skill] }
    }

    /// Changes a card of the agent.
    pub(crate) fn apply(&self, card: &mut AgentCard) {
        let Self {
            name,
            description,
            provider,
            provider_url,
            docs_url,
            settings,
            presentation: _, // The server applies it.
            required_extensions,
        } = self;
        for uri in required_extensions {
            let known = &mut card.capabilities.extensions;
            match known.iter_mut().find(|known| known.uri == *uri) {
                Some(known) => known.required = true,
                None => known.push(AgentExtension::new(uri).required()),
            }
        }
        let Card { version, icon_url, input_modes, output_modes, skills, .. } = settings;
        let replace = |place: &mut String, text: &Option<String>| {
            if let Some(text) = text {
                place.clone_from(text);
            }
        };
        replace(&mut card.name, name);
        replace(&mut card.description, description);
        replace(&mut card.version, version);
        if provider.is_some() || provider_url.is_some() {
            let said = card.provider.get_or_insert_with(AgentProvider::default);
            replace(&mut said.organization, provider);
            replace(&mut said.url, provider_url);
        }
        if card.provider.as_ref().is_some_and(|provider| provider.organization.is_empty()) {
            card.provider = None;
        }
        let or_none = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        if let Some(url) = docs_url {
            card.documentation_url = or_none(url);
        }
        if let Some(url) = icon_url {
            card.icon_url = Some(url.0.to_string());
        }
        replace_list(&mut card.default_input_modes, input_modes);
        replace_list(&mut card.default_output_modes, output_modes);
        for skill in skills {
            match card.skills.iter_mut().find(|known| known.id == skill.id) {
                Some(known) => skill.describe(known),
                None => {
                    let name = skill.name.as_ref().unwrap_or(&skill.id);
                    let mut new = AgentSkill::new(&skill.id, name).description(name);
                    skill.describe(&mut new);
                    card.skills.push(new);
                }
            }
        }
    }
}

impl CardSkill {
    fn describe(&self, skill: &mut AgentSkill) {
        if let Some(name) = &self.name {
            skill.name.clone_from(name);
        }
        if let Some(description) = &self.description {
            skill.description.clone_from(description);
        }
        replace_list(&mut skill.tags, &self.tags);
        replace_list(&mut skill.examples, &self.examples);
        replace_list(&mut skill.input_modes, &self.input_modes);
        replace_list(&mut skill.output_modes, &self.output_modes);
    }
}

/// Replaces a list by another one, unless that one is empty.
fn replace_list(place: &mut Vec<String>, list: &[String]) {
    if !list.is_empty() {
        place.clear();
        place.extend_from_slice(list);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn overrides(settings: Card) -> CardOverrides {
        CardOverrides { settings, ..CardOverrides::default() }
    }

    #[test]
    fn the_skill_of_a_whole_agent_is_there_unless_the_operator_names_others() {
        let skills = |ids: &[&str]| {
            let skills = ids.iter().map(|id| json!({"id": id})).collect();
            let skills = serde_json::from_value(serde_json::Value::Array(skills)).unwrap();
            let mut card = AgentCard::new("words", "d");
            let overrides = overrides(Card { skills, ..Card::default() });
            card.skills = overrides.whole(AgentSkill::new("words", "words"));
            overrides.apply(&mut card);
            card.skills.into_iter().map(|skill| skill.id).collect::<Vec<_>>()
        };
        assert_eq!(skills(&[]), ["words"]);
        assert_eq!(skills(&["count"]), ["count"]);
        assert_eq!(skills(&["count", "words"]), ["words", "count"]);
    }

    #[test]
    fn a_skill_with_a_known_id_describes_that_skill_and_others_are_added() {
        let skills = json!([
            {"id": "echo", "description": "Says it again", "tags": ["talk"]},
            {"id": "more", "examples": ["something else"]},
        ]);
        let skills = serde_json::from_value(skills).unwrap();
        let mut card = AgentCard::new("Echo", "d").skill(AgentSkill::new("echo", "Echo").example("Hello"));
        overrides(Card { skills, ..Card::default() }).apply(&mut card);
        assert_eq!(
            serde_json::to_value(&card.skills).unwrap(),
            json!([
                {"id": "echo", "name": "Echo", "description": "Says it again", "tags": ["talk"],
                 "examples": ["Hello"]},
                {"id": "more", "name": "more", "description": "more", "tags": ["more"],
                 "examples": ["something else"]},
            ])
        );
    }

    #[test]
    fn what_the_operator_does_not_say_stays() {
        let before = AgentCard::new("Echo", "d").provider("Acme", "https://acme.example");
        let mut card = before.clone();
        overrides(Card::default()).apply(&mut card);
        assert_eq!(card, before);
        let said = CardOverrides {
            name: Some("Ours".to_owned()),
            provider: Some("House".to_owned()),
            docs_url: Some("https://docs.example".to_owned()),
            settings: Card {
                version: Some("7".to_owned()),
                input_modes: vec!["image/png".to_owned()],
                ..Card::default()
            },
            ..CardOverrides::default()
        };
        said.apply(&mut card);
        let expected = before
            .version("7")
            .provider("House", "https://acme.example")
            .documentation("https://docs.example")
            .input_modes(["image/png"]);
        assert_eq!(card, AgentCard { name: "Ours".to_owned(), ..expected });
    }

    #[test]
    fn names_of_schemes_differ_and_are_plain() {
        let names = |schemes: serde_json::Value| {
            let schemes: CardSchemes = serde_json::from_value(schemes).unwrap();
            schemes.over(SchemeNames::default()).map_err(|(key, error)| (key, format!("{error:?}")))
        };
        let named = names(json!({"bearer": "token", "basic": "bearerAuth"})).unwrap();
        assert_eq!((named.bearer.as_str(), named.basic.as_str()), ("token", "bearerAuth"));
        assert_eq!(names(json!({"mtls": "a b"})).unwrap_err().0, "mtls");
        assert_eq!(names(json!({"basic": "bearerAuth"})).unwrap_err().0, "basic");
    }

    #[test]
    fn names_of_schemes_that_are_not_set_are_those_of_the_server() {
        let own: CardSchemes = serde_json::from_value(json!({"basic": "password"})).unwrap();
        let server = SchemeNames::default().with(|names| names.bearer = "token".to_owned());
        let names = own.over(server.clone()).unwrap();
        assert_eq!((names.bearer.as_str(), names.basic.as_str()), ("token", "password"));
        let same: CardSchemes = serde_json::from_value(json!({"basic": "token"})).unwrap();
        assert_eq!(same.over(server).unwrap_err().0, "basic");
    }
}
