//! Which files the rules about paths are about.

use attache_core::{
    Conversation, DefaultWorkspace, Permission, PermissionAction, PermissionPolicy, PermissionRequest,
    PermissionRule, Turn, Workspaces, agent_fn, conversational,
};
use attache_protocol::{Part, TaskState};
use serde_json::{Value, json};

use crate::support::{Client, Host, Say, host_with, say, status_text};

/// An agent that asks whether it may edit the file of the message. It opens its workspace before, if the message asks for that.
fn host(workspaces: Workspaces, rules: &[(&str, PermissionAction)]) -> Host {
    let agent = agent_fn(|turn: Turn| async move {
        let text = turn.text();
        let path = text.strip_prefix("open ").unwrap_or(&text);
        if text.starts_with("open ") {
            turn.context().workspace().await?;
        }
        let request = PermissionRequest::new("call-1", "edit").input(json!({"path": path}));
        match turn.permission(&request, PermissionAction::Ask) {
            Permission::Allowed => turn.complete_with("allowed").await,
            Permission::Denied => turn.complete_with("denied").await,
            Permission::Ask => turn.ask_permission(request, false).await.map(drop),
        }
    });
    let agent = conversational(agent, Conversation::default().with(|rules| rules.workspaces = workspaces));
    let policy = rules.iter().fold(PermissionPolicy::default(), |policy, (path, action)| {
        let rule = PermissionRule::new("edit".parse().expect("a pattern"), *action);
        policy.rule(rule.path(path.parse().expect("a pattern")))
    });
    host_with(agent, |_, options| options.permissions = policy)
}

/// What was decided about a path, and the path that the caller was asked about.
async fn decide(client: &Client, say: Say) -> (String, Option<String>) {
    let task = client.send(say).await;
    if task.status.state != TaskState::InputRequired {
        return (status_text(&task), None);
    }
    let message = task.status.message.as_ref().expect("a question");
    let question: Value =
        message.parts.iter().find_map(Part::as_data).expect("a data part").read().expect("JSON");
    client.cancel(&task.id).await.expect("canceled");
    ("asked".to_owned(), question["permission"]["paths"][0].as_str().map(str::to_owned))
}

struct Folders(tempfile::TempDir);

impl Folders {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        for name in ["default/src", "project/src"] {
            std::fs::create_dir_all(folder.path().join(name)).expect("a directory");
        }
        Self(folder)
    }

    fn at(&self, name: &str) -> String {
        self.0.path().canonicalize().expect("a directory").join(name).to_str().expect("text").to_owned()
    }

    fn workspaces(&self) -> Workspaces {
        Workspaces::default()
            .allow([self.at("")])
            .default_to(DefaultWorkspace::Shared(self.at("default").into()))
    }
}

fn naming(text: &str, workspace: &str) -> Say {
    say(text).with_metadata("attache", json!({"workspace": workspace}))
}

#[tokio::test]
async fn files_of_the_default_directory_are_not_files_of_another_workspace() {
    let folders = Folders::new();
    let host = host(folders.workspaces(), &[("src/**", PermissionAction::Allow)]);
    let client = host.client();
    let (ours, theirs) = (folders.at("project/src/x"), folders.at("default/src/x"));
    for open in ["", "open "] {
        let context = if open.is_empty() { "closed" } else { "opened" };
        let project = folders.at("project");
        let first = naming(&format!("{open}{theirs}"), &project).in_context(context);
        assert_eq!(decide(&client, first).await, ("asked".into(), Some(theirs.clone())), "{context}");
        // The context is bound to its workspace: later messages need not name it.
        let later = |path: &str| say(&format!("{open}{path}")).in_context(context);
        assert_eq!(decide(&client, later(&theirs)).await, ("asked".into(), Some(theirs.clone())));
        for path in [&ours, "src/x"] {
            assert_eq!(decide(&client, later(path)).await.0, "allowed", "{context} {path}");
        }
        // A context without another workspace works in the default one.
        assert_eq!(decide(&client, say(&format!("{open}{theirs}"))).await.0, "allowed");
        assert_eq!(decide(&client, say(&format!("{open}{ours}"))).await.0, "asked");
    }
}

#[tokio::test]
async fn absolute_rules_decide_about_files_of_the_workspace() {
    let folders = Folders::new();
    let project = folders.at("project");
    std::os::unix::fs::symlink(&project, folders.at("link")).expect("a link");
    for (name, workspaces) in [
        ("named", folders.workspaces()),
        ("default", Workspaces::default().default_to(DefaultWorkspace::Shared(project.clone().into()))),
        ("linked", Workspaces::default().default_to(DefaultWorkspace::Shared(folders.at("link").into()))),
    ] {
        let rules = [
            (&*format!("{project}/.ssh/**"), PermissionAction::Deny),
            (&*format!("{project}/src/**"), PermissionAction::Allow),
        ];
        let host = host(workspaces, &rules);
        let client = host.client();
        let say = |text: &str| match name {
            "named" => naming(&format!("open {text}"), &project),
            _ => say(&format!("open {text}")),
        };
        for path in [".ssh/id", "src/../.ssh/id", &format!("{project}/.ssh/id")] {
            assert_eq!(decide(&client, say(path)).await.0, "denied", "{name} {path}");
        }
        for path in ["src/a", &format!("{project}/src/a")] {
            assert_eq!(decide(&client, say(path)).await.0, "allowed", "{name} {path}");
        }
        // Callers see the path below the workspace.
        for path in ["other/a", &format!("{project}/other/a")] {
            assert_eq!(decide(&client, say(path)).await, ("asked".into(), Some("other/a".into())), "{name}");
        }
    }
}

#[tokio::test]
async fn a_name_that_the_caller_chose_for_the_workspace_allows_nothing() {
    let folders = Folders::new();
    let link = folders.at("link");
    std::os::unix::fs::symlink(folders.at("project"), &link).expect("a link");
    let pattern = format!("{link}/src/**");
    for (action, expected) in [(PermissionAction::Allow, "asked"), (PermissionAction::Deny, "denied")] {
        let host = host(folders.workspaces(), &[(&*pattern, action)]);
        for path in ["src/a", &format!("{link}/src/a")] {
            assert_eq!(decide(&host.client(), naming(&format!("open {path}"), &link)).await.0, expected);
        }
    }
}
