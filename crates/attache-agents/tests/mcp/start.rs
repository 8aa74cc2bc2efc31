//! Servers that cannot be used from the beginning, and options that are wrong.

use std::time::Duration;

use attache_agents::mcp::{Mcp, McpOptions, McpServer};

use crate::support::options;

async fn refusal(options: McpOptions) -> String {
    Mcp::connect(options).await.unwrap_err().to_string()
}

#[tokio::test]
async fn a_server_that_cannot_be_used_is_an_error_that_says_why() {
    let missing = McpOptions::new(McpServer::program(["/nothing/here"]));
    assert!(refusal(missing).await.starts_with("cannot start the MCP server `/nothing/here`: "));
    for (mode, why) in [
        ("exit", "it ended before it was ready; its standard error is in the log"),
        ("chatter", "it ended before it was ready; its standard error is in the log"),
        ("refuse", "it refused the connection: not today"),
        ("no-tools", "it has no tools"),
    ] {
        assert_eq!(
            refusal(options(mode)).await,
            format!("cannot use the MCP server `python3`: {why}"),
            "{mode}"
        );
    }
}

#[tokio::test]
async fn a_server_that_is_silent_is_given_up() {
    let silent = options("silent").with(|options| options.start_timeout = Duration::from_millis(300));
    assert_eq!(refusal(silent).await, "cannot use the MCP server `python3`: it was not ready within 0.3 s");
}

#[tokio::test]
async fn pages_of_tools_are_followed_up_to_a_limit() {
    let many = Mcp::connect(options("many")).await.unwrap();
    assert_eq!(many.tools().len(), 1_000);
    assert_eq!(Mcp::connect(options("loop")).await.unwrap().tools().len(), 1);
}

#[tokio::test]
async fn wrong_options_are_explained() {
    let none = McpOptions::new(McpServer::program::<String>([]));
    assert_eq!(refusal(none).await, "the command of the MCP server is empty");
    let token = options("normal").with(|options| options.token = Some("s3cret".into()));
    assert!(refusal(token).await.contains("give a program its secrets as environment variables"));
    let calls = options("normal").with(|options| options.max_calls = 0);
    assert!(refusal(calls).await.contains("at least 1"));
    for (url, expected) in [
        ("ftp://a.example", "must begin with `http://` or `https://`"),
        ("not a url", "cannot be parsed"),
        ("https://me:pw@a.example/mcp", "must have no user name"),
    ] {
        let error = McpServer::url(url).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let remote = |change: fn(&mut McpOptions)| {
        McpOptions::new(McpServer::url("http://a.example/mcp").unwrap()).with(change)
    };
    let plain = refusal(remote(|options| options.token = Some("s3cret".into()))).await;
    assert!(plain.contains("without TLS") && !plain.contains("s3cret"), "{plain}");
    let own = refusal(remote(|options| {
        options.headers.insert("Mcp-Session-Id".into(), "x".into());
    }))
    .await;
    assert_eq!(own, "the header `Mcp-Session-Id` is set by the protocol");
    let refused = refusal(
        McpOptions::new(McpServer::url("http://127.0.0.1:9/mcp").unwrap())
            .with(|options| options.policy = Some(attache_outbound::Policy::default())),
    )
    .await;
    assert!(refused.starts_with("cannot use the MCP server `http://127.0.0.1:9/mcp`: "), "{refused}");
}
