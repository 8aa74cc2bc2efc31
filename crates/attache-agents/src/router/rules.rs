//! The rules of a router.

use attache_protocol::{AgentCard, Content, Message};

/// Which messages go to an agent. A message matches if it fulfils every condition that is given. A rule without conditions matches
/// every message.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Rule {
    /// The agent.
    pub agent: String,
    /// The text has one of these words or phrases, in upper or lower case, as whole words.
    pub keywords: Vec<String>,
    /// The text has one of the tags of a skill of the agent that is in this list. An empty list means no condition.
    pub tags: Vec<String>,
    /// A part has one of these media types. `image/*` is every image.
    pub media_types: Vec<String>,
}

impl Rule {
    /// A rule for an agent, without conditions.
    pub fn new(agent: impl Into<String>) -> Self {
        Self { agent: agent.into(), ..Self::default() }
    }

    /// Changes the rule.
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    pub(super) fn matches(&self, message: &Message, card: &AgentCard) -> bool {
        let text = words(&message.text());
        let has = |phrase: &String| contains(&text, &words(phrase));
        let has_tag = |tag: &String| {
            has(tag)
                && card.skills.iter().any(|skill| skill.tags.iter().any(|own| own.eq_ignore_ascii_case(tag)))
        };
        (self.keywords.is_empty() || self.keywords.iter().any(has))
            && (self.tags.is_empty() || self.tags.iter().any(has_tag))
            && (self.media_types.is_empty()
                || self.media_types.iter().any(|wanted| has_media_type(message, wanted)))
    }
}

/// The words of a text in lower case.
fn words(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect()
}

/// Whether a text has these words, one after the other.
fn contains(text: &[String], phrase: &[String]) -> bool {
    !phrase.is_empty() && text.windows(phrase.len()).any(|window| window == phrase)
}

fn has_media_type(message: &Message, wanted: &str) -> bool {
    message.parts.iter().any(|part| {
        let given = match (&part.media_type, &part.content) {
            (Some(given), _) => given.split(';').next().unwrap_or_default().trim(),
            (None, Content::Text(_)) => "text/plain",
            (None, Content::Data(_)) => "application/json",
            (None, Content::Raw(_) | Content::Url(_)) => "application/octet-stream",
        };
        match wanted.strip_suffix("/*") {
            Some("*") => true,
            Some(kind) => given.split('/').next().is_some_and(|own| own.eq_ignore_ascii_case(kind)),
            None => given.eq_ignore_ascii_case(wanted),
        }
    })
}

#[cfg(test)]
mod tests {
    use attache_protocol::{AgentSkill, Part};

    use super::*;

    fn matches(rule: Rule, text: &str) -> bool {
        let mut skill = AgentSkill::new("s", "S");
        skill.tags = vec!["Tax".to_owned()];
        rule.matches(&Message::user("m", text), &AgentCard::new("A", "a").skill(skill))
    }

    #[test]
    fn keywords_are_whole_words_in_any_case() {
        let rule =
            || Rule::new("a").with(|rule| rule.keywords = vec!["tax return".to_owned(), "VAT".to_owned()]);
        for text in ["my Tax return, please", "what is vat?", "a TAX\nRETURN"] {
            assert!(matches(rule(), text), "{text}");
        }
        for text in ["taxreturn", "private", "tax and return", ""] {
            assert!(!matches(rule(), text), "{text}");
        }
    }

    #[test]
    fn tags_are_those_of_the_agents_skills() {
        let rule = |tag: &str| Rule::new("a").with(|rule| rule.tags = vec![tag.to_owned()]);
        assert!(matches(rule("tax"), "a tax question"));
        assert!(!matches(rule("law"), "a law question"));
    }

    #[test]
    fn all_conditions_of_a_rule_have_to_match() {
        let rule = |media_type: &str| {
            Rule::new("a").with(|rule| {
                rule.keywords = vec!["see".to_owned()];
                rule.media_types = vec![media_type.to_owned()];
            })
        };
        let card = AgentCard::new("A", "a");
        let mut message = Message::user("m", "see this");
        assert!(rule("text/plain").matches(&message, &card));
        assert!(!rule("image/*").matches(&message, &card));
        message.parts.push(Part { media_type: Some("image/PNG; q=1".to_owned()), ..Part::raw(vec![1]) });
        assert!(rule("image/*").matches(&message, &card) && rule("image/png").matches(&message, &card));
    }
}
