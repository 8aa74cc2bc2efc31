//! The rules of the operator.

use std::time::Duration;

use super::pattern::PermissionPattern;
use super::roots::Roots;
use super::{PermissionAudit, PermissionRequest};

/// What happens with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PermissionAction {
    /// It is allowed.
    Allow,
    /// It is denied.
    Deny,
    /// The caller is asked.
    Ask,
}

/// A rule: which requests it is about, and what happens with them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermissionRule {
    /// The names of tools, or their kinds.
    pub tool: PermissionPattern,
    /// The paths. Any request, if there is none. A request without paths does not match a rule with one.
    pub path: Option<PermissionPattern>,
    /// What happens.
    pub action: PermissionAction,
}

impl PermissionRule {
    /// A rule for tools.
    pub fn new(tool: PermissionPattern, action: PermissionAction) -> Self {
        Self { tool, path: None, action }
    }

    /// The same rule for some paths only.
    pub fn path(mut self, path: PermissionPattern) -> Self {
        self.path = Some(path);
        self
    }

    /// A rule that allows must match all paths of a request. For the others, one is enough, in any way to write it.
    fn matches(&self, request: &PermissionRequest, roots: &Roots) -> bool {
        let names = std::iter::once(request.tool.as_str()).chain(request.kind.as_deref());
        if !names.into_iter().any(|name| self.tool.matches(name)) {
            return false;
        }
        let Some(pattern) = &self.path else { return true };
        let mut paths = request.paths.iter().map(|path| roots.forms(path));
        match self.action {
            PermissionAction::Allow => {
                // Another name of the directory is a link, which does not have to lead there for ever.
                let allows = |path: &str| pattern.is_absolute() && pattern.matches_path(path);
                !request.paths.is_empty()
                    && paths.all(|forms| {
                        forms.is_some_and(|forms| {
                            pattern.matches_path(&forms.shown)
                                || forms.resolved.as_deref().is_some_and(allows)
                        })
                    })
            }
            // A path that leads out of the workspace may be any path.
            PermissionAction::Deny | PermissionAction::Ask => paths
                .any(|forms| forms.is_none_or(|forms| forms.all().any(|path| pattern.matches_path(path)))),
        }
    }
}

/// What agents may do. Without rules and default, each agent has its own rule.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct PermissionPolicy {
    /// The first rule that matches counts.
    pub rules: Vec<PermissionRule>,
    /// What happens if no rule matches. What the agent does by itself, unless set.
    pub default: Option<PermissionAction>,
    /// How long the caller has to answer. Then the request is denied. As the agent has it, unless set.
    pub timeout: Option<Duration>,
    /// Where decisions are recorded. In the log, with the target `attache::audit`, unless set.
    pub audit: PermissionAudit,
}

impl PermissionPolicy {
    /// Adds a rule after the others.
    pub fn rule(mut self, rule: PermissionRule) -> Self {
        self.rules.push(rule);
        self
    }

    /// Sets what happens if no rule matches.
    pub fn default_action(mut self, action: PermissionAction) -> Self {
        self.default = Some(action);
        self
    }

    /// Sets how long the caller has to answer.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets where decisions are recorded.
    pub fn audit(mut self, audit: PermissionAudit) -> Self {
        self.audit = audit;
        self
    }

    /// Decides about a request whose relative paths are below `roots`.
    pub(super) fn decide(
        &self,
        request: &PermissionRequest,
        roots: &Roots,
        fallback: PermissionAction,
    ) -> Match {
        let rule = self.rules.iter().enumerate().find(|(_, rule)| rule.matches(request, roots));
        match (rule, self.default) {
            (Some((number, rule)), _) => Match { action: rule.action, rule: format!("rule {}", number + 1) },
            (None, Some(action)) => Match { action, rule: "default".to_owned() },
            (None, None) => Match { action: fallback, rule: "agent".to_owned() },
        }
    }
}

/// What was decided, and by which rule.
pub(super) struct Match {
    pub(super) action: PermissionAction,
    pub(super) rule: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(tool: &str, path: Option<&str>, action: PermissionAction) -> PermissionRule {
        PermissionRule { tool: tool.parse().unwrap(), path: path.map(|it| it.parse().unwrap()), action }
    }

    fn request(tool: &str, paths: &[&str]) -> PermissionRequest {
        let paths = paths.iter().map(|path| (*path).to_owned()).collect();
        PermissionRequest { paths, ..PermissionRequest::new("t", tool) }
    }

    #[test]
    fn the_first_rule_that_matches_counts() {
        use PermissionAction::{Allow, Ask, Deny};
        let policy = PermissionPolicy::default()
            .rule(rule("*", Some("**/.env"), Deny))
            .rule(rule("edit*", Some("src/**"), Allow))
            .rule(rule("read", None, Allow))
            .rule(rule("execute", None, Ask));
        for (tool, paths, expected, by) in [
            ("edit_file", vec!["src/a.rs"], Allow, "rule 2"),
            ("edit_file", vec!["src/a.rs", "src/b.rs"], Allow, "rule 2"),
            // One path outside is enough to not allow it.
            ("edit_file", vec!["src/a.rs", "Cargo.toml"], Ask, "agent"),
            ("edit_file", vec![], Ask, "agent"),
            ("edit_file", vec!["src/../Cargo.toml"], Ask, "agent"),
            ("edit_file", vec!["src/.env"], Deny, "rule 1"),
            ("edit_file", vec!["src/a.rs", "src/.env"], Deny, "rule 1"),
            // A path that leads out may be any path.
            ("edit_file", vec!["../x"], Deny, "rule 1"),
            ("read", vec![], Allow, "rule 3"),
            ("read", vec![".env"], Deny, "rule 1"),
            ("execute", vec![], Ask, "rule 4"),
            ("other", vec!["src/a"], Ask, "agent"),
        ] {
            let Match { action, rule } = policy.decide(&request(tool, &paths), &Roots::default(), Ask);
            assert_eq!((action, rule.as_str()), (expected, by), "{tool} {paths:?}");
        }
        let policy = policy.default_action(Deny);
        assert_eq!(policy.decide(&request("other", &[]), &Roots::default(), Allow).action, Deny);
    }

    #[test]
    fn absolute_rules_are_about_files_of_the_workspace_too() {
        use PermissionAction::{Allow, Ask, Deny};
        // The workspace is `/home/alice`. `/ws` is a link to it.
        let roots = Roots::new(Some("/home/alice".into()), ["/ws".into()]);
        let action = |path: &str, pattern: &str, action| {
            let policy = PermissionPolicy::default().rule(rule("*", Some(pattern), action)).default_action(
                match action {
                    Allow => Deny,
                    Deny | Ask => Allow,
                },
            );
            policy.decide(&request("read", &[path]), &roots, Ask).rule == "rule 1"
        };
        let names = [".ssh/id", "./.ssh/id", "/home/alice/.ssh/id", "/ws/.ssh/id", "file:///ws/x/../.ssh/id"];
        for path in names {
            for pattern in
                ["/home/alice/.ssh/**", "/ws/.ssh/**", ".ssh/**", "**/.ssh/**", "/home/*/.ssh/*", "/home/**"]
            {
                assert!(action(path, pattern, Deny), "deny {pattern} {path}");
                assert!(action(path, pattern, Ask), "ask {pattern} {path}");
            }
            for pattern in ["/home/alice/.ssh/**", ".ssh/*", "**/.ssh/**", "/home/**"] {
                assert!(action(path, pattern, Allow), "allow {pattern} {path}");
            }
            // A link may lead elsewhere later. A pattern that begins with any text is not about where the workspace is.
            for pattern in ["/ws/.ssh/**", "**/alice/**", "/home/bob/**", "home/alice/**"] {
                assert!(!action(path, pattern, Allow), "allow {pattern} {path}");
            }
        }
        for (path, pattern) in [("/etc/passwd", "/etc/**"), ("/etc/../home/bob/x", "/home/bob/**")] {
            assert!(action(path, pattern, Allow) && action(path, pattern, Deny), "{pattern} {path}");
        }
        for (path, pattern) in
            [("/home/alice/../bob/x", "/home/alice/**"), ("/home/alicia/x", "/home/alice/**")]
        {
            assert!(!action(path, pattern, Allow), "allow {pattern} {path}");
        }
        // Where the workspace is not known, a relative path is in no absolute directory.
        let unknown = PermissionPolicy::default().rule(rule("*", Some("/**"), Allow));
        let decided = unknown.decide(&request("read", &["a"]), &Roots::default(), Ask);
        assert_eq!(decided.action, Ask);
    }

    #[test]
    fn a_rule_matches_the_kind_of_a_tool_too() {
        let policy = PermissionPolicy::default().rule(rule("edit", None, PermissionAction::Allow));
        let request = PermissionRequest {
            kind: Some("edit".to_owned()),
            ..PermissionRequest::new("t", "Edit main.rs")
        };
        assert_eq!(
            policy.decide(&request, &Roots::default(), PermissionAction::Ask).action,
            PermissionAction::Allow
        );
    }
}
