//! `attache login` and what follows from it.

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, BufReader};

use crate::agent::{Asks, start};
use crate::browser::{Consent, visit};
use crate::home::{Home, Ran};
use crate::peers::keep;
use crate::provider::{Provider, absent, introspect};

/// Runs a login, and opens the page that it names in a browser.
pub(crate) async fn login(home: &Home, arguments: &[&str], consent: Consent) -> Ran {
    let mut child = home.command(arguments).stderr(Stdio::piped()).spawn().expect("the command starts");
    let mut lines = BufReader::new(child.stderr.take().expect("it is ours")).lines();
    let mut stderr = String::new();
    let mut opened = false;
    while let Some(line) = lines.next_line().await.expect("it can be read") {
        stderr.push_str(&line);
        stderr.push('\n');
        let url = line.trim().strip_prefix("or open ").unwrap_or(line.trim());
        if !opened && url.starts_with("http://") {
            opened = true;
            visit(url, "ann", consent).await;
        }
    }
    let output = child.wait_with_output().await.expect("it ends");
    let stdout = String::from_utf8(output.stdout).expect("text");
    Ran { code: output.status.code(), stdout, stderr }
}

/// What a command said, without what differs from run to run.
fn masked(ran: &Ran, provider: &Provider, agent: &str) -> String {
    let text = ran.to_string().replace(&provider.issuer, "SERVER").replace(agent, "AGENT");
    let words = text.split_inclusive([' ', '\n', '=']).map(|word| {
        let code = word.trim_end();
        let is_code = code.len() == 9
            && code.char_indices().all(|(at, c)| if at == 4 { c == '-' } else { c.is_ascii_uppercase() });
        if is_code { word.replace(code, "CODE") } else { word.to_owned() }
    });
    words.collect()
}

#[test]
fn a_program_logs_in_and_other_commands_need_no_credentials() {
    keep("a_program_logs_in_and_other_commands_need_no_credentials", absent(), async {
        let provider = Provider::start().await;
        let agent = start(&provider, Asks::ClientCredentials).await;
        let (home, url) = (Home::new(), agent.url.as_str());
        let secret = home.file("secret.txt", "secret of the program\n");
        home.run(&["agents", "add", "staff", url]).await;
        let refused = home.run(&["send", "staff", "hi"]).await;
        insta::assert_snapshot!("login_needed", masked(&refused, &provider, url));
        let arguments =
            ["login", "staff", "--client-id", "program", "--client-secret-file", &secret, "--scope", "ask"];
        let unsure = home.run(&arguments).await;
        insta::assert_snapshot!("login_other_server", masked(&unsure, &provider, url));
        let agreed = [&arguments[..], &["--server", &provider.issuer, "--json"]].concat();
        insta::assert_snapshot!("login_program", masked(&home.run(&agreed).await, &provider, url));
        let said = home.run(&["send", "staff", "hi"]).await;
        assert_eq!((said.code, said.stdout.as_str()), (Some(0), "hello program\n"), "{said}");
        insta::assert_snapshot!("login_list", masked(&home.run(&["agents", "list"]).await, &provider, url));
        insta::assert_snapshot!(
            "login_list_json",
            masked(&home.run(&["agents", "list", "--json"]).await, &provider, url)
        );
        assert_eq!(
            home.run(&["send", url, "hi"]).await.code,
            Some(4),
            "what is kept with a name is for that name"
        );
        insta::assert_snapshot!("logout", masked(&home.run(&["logout", "staff"]).await, &provider, url));
        assert_eq!(home.run(&["send", "staff", "hi"]).await.code, Some(4));
        insta::assert_snapshot!(
            "logout_again",
            masked(&home.run(&["logout", "staff"]).await, &provider, url)
        );
    });
}

#[test]
fn a_person_logs_in_with_a_code_and_is_known_from_then_on() {
    keep("a_person_logs_in_with_a_code_and_is_known_from_then_on", absent(), async {
        let provider = Provider::start().await;
        let agent = start(&provider, Asks::OpenIdConnect).await;
        let (home, url) = (Home::new(), agent.url.as_str());
        let arguments = ["login", url, "--client-id", "laptop", "--server", &provider.issuer, "--device"];
        let ran = login(&home, &arguments, Consent::Give).await;
        insta::assert_snapshot!("login_device", masked(&ran, &provider, url));
        let said = home.run(&["send", url, "hi"]).await;
        assert_eq!((said.code, said.stdout.as_str()), (Some(0), "hello ann\n"), "{said}");

        // The next command replaces an expired token. A command reports that its login has ended.
        provider.revoke(&kept(&home, "accessToken")).await;
        let said = home.run(&["send", url, "hi"]).await;
        assert_eq!((said.code, said.stdout.as_str()), (Some(0), "hello ann\n"), "{said}");
        provider.revoke(&kept(&home, "refreshToken")).await;
        let out = home.run(&["send", url, "hi"]).await;
        insta::assert_snapshot!("login_over", masked(&out, &provider, url));
    });
}

#[test]
fn a_person_logs_in_with_a_browser_or_refuses() {
    keep("a_person_logs_in_with_a_browser_or_refuses", absent(), async {
        let provider = Provider::start().await;
        let agent = start(&provider, Asks::OpenIdConnect).await;
        let (home, url) = (Home::new(), agent.url.as_str());
        let arguments = ["login", url, "--client-id", "laptop", "--server", &provider.issuer, "--no-browser"];
        let refused = login(&home, &arguments, Consent::Refuse).await;
        assert_eq!(refused.code, Some(4), "{refused}");
        assert!(refused.stderr.contains("it refused with `access_denied`"), "{refused}");
        assert_eq!(home.run(&["send", url, "hi"]).await.code, Some(4));
        let ran = login(&home, &arguments, Consent::Give).await;
        assert_eq!(ran.code, Some(0), "{ran}");
        let said = home.run(&["send", url, "hi"]).await;
        assert_eq!((said.code, said.stdout.as_str()), (Some(0), "hello ann\n"), "{said}");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let file = std::fs::metadata(home.path(".config/attache/tokens.json")).expect("it is there");
            assert_eq!(file.permissions().mode() & 0o777, 0o600);
        }
    });
}

#[test]
fn who_logs_out_leaves_no_tokens_that_are_good() {
    keep("who_logs_out_leaves_no_tokens_that_are_good", absent(), async {
        let provider = Provider::start().await;
        let agent = start(&provider, Asks::OpenIdConnect).await;
        let (home, url) = (Home::new(), agent.url.as_str());
        let arguments = ["login", url, "--client-id", "laptop", "--server", &provider.issuer, "--device"];
        login(&home, &arguments, Consent::Give).await;
        let (access, refresh) = (kept(&home, "accessToken"), kept(&home, "refreshToken"));
        assert_eq!(introspect(&provider.issuer, &access).await["active"], true);
        insta::assert_snapshot!("logout_person", masked(&home.run(&["logout", url]).await, &provider, url));
        assert_eq!(introspect(&provider.issuer, &access).await["active"], false);
        let (status, said) = provider.refresh(&refresh).await;
        assert!(status == 400 && said.contains("invalid_grant"), "{said}");
        assert_eq!(home.run(&["send", url, "hi"]).await.code, Some(4));

        login(&home, &arguments, Consent::Give).await;
        let out = home.run(&["logout", url, "--json"]).await;
        insta::assert_snapshot!("logout_person_json", masked(&out, &provider, url));
    });
}

#[test]
fn who_forgets_an_agent_that_they_logged_in_to_leaves_no_tokens_that_are_good() {
    keep("who_forgets_an_agent_that_they_logged_in_to_leaves_no_tokens_that_are_good", absent(), async {
        let provider = Provider::start().await;
        let agent = start(&provider, Asks::OpenIdConnect).await;
        let (home, url) = (Home::new(), agent.url.as_str());
        for forget in [&["agents", "rm", "staff"][..], &["agents", "add", "staff", url, "--replace"]] {
            home.run(&["agents", "add", "staff", url]).await;
            let arguments =
                ["login", "staff", "--client-id", "laptop", "--server", &provider.issuer, "--device"];
            login(&home, &arguments, Consent::Give).await;
            let (access, refresh) = (kept(&home, "accessToken"), kept(&home, "refreshToken"));
            let ran = home.run(forget).await;
            assert_eq!(ran.code, Some(0), "{ran}");
            assert!(ran.stderr.contains(&format!("{} has revoked the tokens", provider.issuer)), "{ran}");
            assert_eq!(introspect(&provider.issuer, &access).await["active"], false);
            let (status, said) = provider.refresh(&refresh).await;
            assert!(status == 400 && said.contains("invalid_grant"), "{said}");
        }
    });
}

#[test]
fn who_logs_out_while_the_server_is_gone_is_told_that_the_tokens_are_good() {
    keep("who_logs_out_while_the_server_is_gone_is_told_that_the_tokens_are_good", absent(), async {
        for (json, name) in [(&[][..], "logout_unreachable"), (&["--json"], "logout_unreachable_json")] {
            let provider = Provider::start().await;
            let agent = start(&provider, Asks::OpenIdConnect).await;
            let (home, url) = (Home::new(), agent.url.as_str());
            let arguments = ["login", url, "--client-id", "laptop", "--server", &provider.issuer, "--device"];
            login(&home, &arguments, Consent::Give).await;
            let issuer = provider.stop().await;
            let ran = home.run(&[&["logout", url], json].concat()).await;
            let shown = ran.to_string().replace(&issuer, "SERVER").replace(url, "AGENT");
            insta::assert_snapshot!(name, shown);
            let tokens =
                std::fs::read_to_string(home.path(".config/attache/tokens.json")).expect("it is there");
            let tokens: serde_json::Value = serde_json::from_str(&tokens).expect("it is JSON");
            assert_eq!(tokens["tokens"], serde_json::json!([]));
        }
    });
}

/// A member of the only tokens that are kept.
pub(crate) fn kept(home: &Home, member: &str) -> String {
    let text = std::fs::read_to_string(home.path(".config/attache/tokens.json")).expect("it is there");
    let kept: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    kept["tokens"][0][member].as_str().expect("it is there").to_owned()
}
