//! The client of the library.

use attache::client::{
    Client, ClientError, ClientOptions, Flow, LoginError, LoginMethod, LoginPrompt, MemoryTokens, OAuth,
    Reply, Revocation, TokenKey, TokenStore,
};

use crate::agent::{Asks, Running, start};
use crate::browser::{Consent, visit};
use crate::peers::keep;
use crate::provider::{Provider, absent, introspect};

async fn connect(agent: &Running, oauth: OAuth) -> Client {
    let options = ClientOptions::default().with_credentials(oauth);
    Client::connect_with(&agent.url, options).await.expect("it is there")
}

async fn greeted(client: &Client) -> Result<String, ClientError> {
    match client.send("hi").await? {
        Reply::Message(message) => Ok(message.text()),
        Reply::Task(task) => panic!("a task: {task:?}"),
    }
}

/// Logs in as a user with a browser.
async fn login(
    oauth: &OAuth,
    client: &Client,
    flow: Flow,
    consent: Consent,
) -> Result<TokenKey, ClientError> {
    let offers = LoginMethod::from_card(&client.card());
    let (show, shown) = tokio::sync::oneshot::channel();
    let show = std::sync::Mutex::new(Some(show));
    let visit_page = |page: LoginPrompt<'_>| {
        let url = match page {
            LoginPrompt::Browser { url } => url,
            LoginPrompt::Code { url_with_code, .. } => url_with_code.expect("the server says so"),
            other => panic!("{other:?}"),
        };
        let show = show.lock().expect("nobody panics with it").take().expect("it is shown once");
        show.send(url.to_owned()).expect("somebody is there");
    };
    let person = async move {
        let url = shown.await.expect("something is shown");
        visit(&url, "ann", consent).await
    };
    let (logged_in, _) = tokio::join!(oauth.login(client, &offers[0], flow, &visit_page), person);
    logged_in
}

#[test]
fn a_program_gets_its_token_by_itself_and_uses_it_again() {
    keep("a_program_gets_its_token_by_itself_and_uses_it_again", absent(), async {
        let provider = Provider::start().await;
        let agent = start(&provider, Asks::ClientCredentials).await;
        for in_body in [false, true] {
            let mut oauth = OAuth::new("program").secret("secret of the program").scopes(["ask"]);
            if in_body {
                oauth = oauth.secret_in_body();
            }
            let client = connect(&agent, oauth.server(&provider.issuer).unwrap()).await;
            for _ in 0..2 {
                assert_eq!(greeted(&client).await.unwrap(), "hello program");
            }
        }
        assert_eq!(agent.tokens().len(), 2, "one for each client");
    });
}

#[test]
fn a_secret_is_not_sent_to_a_server_that_nobody_agreed_to() {
    keep("a_secret_is_not_sent_to_a_server_that_nobody_agreed_to", absent(), async {
        let provider = Provider::start().await;
        let agent = start(&provider, Asks::ClientCredentials).await;
        let oauth = OAuth::new("program").secret("secret of the program");
        let client = connect(&agent, oauth.clone().server("https://auth.example.com").unwrap()).await;
        let error = greeted(&client).await.unwrap_err();
        assert!(matches!(error, ClientError::Credentials { .. }), "{error}");
        let offers = LoginMethod::from_card(&client.card());
        let error = oauth.login(&client, &offers[0], Flow::ClientCredentials, &|_| ()).await.unwrap_err();
        assert!(
            matches!(&error, ClientError::Login { server, why: LoginError::NotAgreed } if *server == provider.issuer)
        );
        assert_eq!(agent.tokens(), [""; 0]);
    });
}

#[test]
fn a_wrong_secret_is_refused_in_the_words_of_the_server() {
    keep("a_wrong_secret_is_refused_in_the_words_of_the_server", absent(), async {
        let provider = Provider::start().await;
        let agent = start(&provider, Asks::ClientCredentials).await;
        let oauth = OAuth::new("program").secret("s3cret").server(&provider.issuer).unwrap();
        let error = greeted(&connect(&agent, oauth).await).await.unwrap_err();
        let text = error.to_string().replace(&provider.issuer, "SERVER");
        assert_eq!(
            text,
            "cannot log in at `SERVER`: it refused with `invalid_client`: client authentication failed"
        );
    });
}

#[test]
fn a_person_logs_in_with_a_browser_and_a_token_that_ends_is_replaced_once() {
    keep("a_person_logs_in_with_a_browser_and_a_token_that_ends_is_replaced_once", absent(), async {
        let provider = Provider::start().await;
        let agent = start(&provider, Asks::OpenIdConnect).await;
        let store = MemoryTokens::new();
        let oauth = OAuth::new("laptop").server(&provider.issuer).unwrap().store(store.clone());
        let client = connect(&agent, oauth.clone()).await;
        let error = greeted(&client).await.unwrap_err();
        assert!(matches!(error, ClientError::Credentials { .. }), "nobody is asked by a request: {error}");
        let key = login(&oauth, &client, Flow::Browser, Consent::Give).await.unwrap();
        assert_eq!((key.agent.as_str(), &*key.server), (agent.url.as_str(), &*provider.description()));
        assert_eq!(greeted(&client).await.unwrap(), "hello ann");

        // In the middle of everything the token ends.
        let first = store.read(&key).unwrap().expect("somebody is logged in");
        provider.revoke(first.access.reveal()).await;
        let (a, b, c) = tokio::join!(greeted(&client), greeted(&client), greeted(&client));
        for greeting in [a, b, c] {
            assert_eq!(greeting.unwrap(), "hello ann");
        }
        assert_eq!(agent.tokens().len(), 2, "it was renewed once");
        let second = store.read(&key).unwrap().expect("somebody is logged in");
        assert!(second.access != first.access && second.refresh != first.refresh, "both were replaced");

        // A user whose session was ended has to log in again.
        provider.revoke(second.refresh.expect("there is one").reveal()).await;
        let error = greeted(&client).await.unwrap_err();
        let ClientError::Login { why: LoginError::Refused { code, .. }, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!(code, "invalid_grant");
        assert_eq!(store.read(&key).unwrap(), None);
        let error = greeted(&client).await.unwrap_err();
        assert!(matches!(error, ClientError::Credentials { .. }), "{error}");
    });
}

#[test]
fn a_person_who_refuses_is_not_logged_in() {
    keep("a_person_who_refuses_is_not_logged_in", absent(), async {
        let provider = Provider::start().await;
        let agent = start(&provider, Asks::OpenIdConnect).await;
        let oauth = OAuth::new("laptop").server(&provider.issuer).unwrap();
        let client = connect(&agent, oauth.clone()).await;
        let error = login(&oauth, &client, Flow::Browser, Consent::Refuse).await.unwrap_err();
        let ClientError::Login { why: LoginError::Refused { code, .. }, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!(code, "access_denied");
    });
}

#[test]
fn a_token_is_shown_to_no_other_agent_than_the_one_that_it_is_for() {
    keep("a_token_is_shown_to_no_other_agent_than_the_one_that_it_is_for", absent(), async {
        let provider = Provider::start().await;
        let (agent, other) =
            (start(&provider, Asks::OpenIdConnect).await, start(&provider, Asks::OpenIdConnect).await);
        let oauth = OAuth::new("laptop").server(&provider.issuer).unwrap();
        let client = connect(&agent, oauth.clone()).await;
        login(&oauth, &client, Flow::Browser, Consent::Give).await.unwrap();
        assert_eq!(greeted(&client).await.unwrap(), "hello ann");
        let error = greeted(&connect(&other, oauth).await).await.unwrap_err();
        assert!(matches!(error, ClientError::Credentials { .. }), "{error}");
        assert_eq!(other.tokens(), [""; 0]);
    });
}

#[test]
fn a_token_that_was_given_back_is_good_no_longer() {
    keep("a_token_that_was_given_back_is_good_no_longer", absent(), async {
        let provider = Provider::start().await;
        let agent = start(&provider, Asks::OpenIdConnect).await;
        let store = MemoryTokens::new();
        let oauth = OAuth::new("laptop").server(&provider.issuer).unwrap().store(store.clone());
        let client = connect(&agent, oauth.clone()).await;
        let key = login(&oauth, &client, Flow::Browser, Consent::Give).await.unwrap();
        let tokens = store.read(&key).unwrap().expect("somebody is logged in");
        let out = oauth.logout(&key, ClientOptions::default()).await.unwrap();
        assert_eq!(out, Some(Revocation::Revoked));
        assert_eq!(store.read(&key).unwrap(), None);
        assert_eq!(oauth.logout(&key, ClientOptions::default()).await.unwrap(), None);
        assert_eq!(introspect(&provider.issuer, tokens.access.reveal()).await["active"], false);
        let (status, said) = provider.refresh(tokens.refresh.expect("there is one").reveal()).await;
        assert!(status == 400 && said.contains("invalid_grant"), "{said}");
        let error = greeted(&client).await.unwrap_err();
        assert!(matches!(error, ClientError::Credentials { .. }), "{error}");
    });
}

#[test]
fn a_program_gives_its_token_back_although_the_card_does_not_say_where() {
    keep("a_program_gives_its_token_back_although_the_card_does_not_say_where", absent(), async {
        let provider = Provider::start().await;
        let agent = start(&provider, Asks::ClientCredentials).await;
        let store = MemoryTokens::new();
        let oauth = OAuth::new("program").secret("secret of the program").scopes(["ask"]);
        let oauth = oauth.server(&provider.issuer).unwrap().store(store.clone());
        let client = connect(&agent, oauth.clone()).await;
        let offers = LoginMethod::from_card(&client.card());
        let key = oauth.login(&client, &offers[0], Flow::ClientCredentials, &|_| ()).await.unwrap();
        let tokens = store.read(&key).unwrap().expect("it is logged in");
        assert_eq!(introspect(&provider.issuer, tokens.access.reveal()).await["active"], true);
        let out = oauth.revoke(&key, &tokens, ClientOptions::default()).await.unwrap();
        assert_eq!(out, Revocation::Revoked);
        assert_eq!(introspect(&provider.issuer, tokens.access.reveal()).await["active"], false);
    });
}

#[test]
fn a_person_logs_in_on_another_device() {
    keep("a_person_logs_in_on_another_device", absent(), async {
        let provider = Provider::start().await;
        let agent = start(&provider, Asks::DeviceCode).await;
        let oauth = OAuth::new("laptop").server(&provider.issuer).unwrap().scopes(["openid"]);
        let client = connect(&agent, oauth.clone()).await;
        login(&oauth, &client, Flow::Device, Consent::Give).await.unwrap();
        assert_eq!(greeted(&client).await.unwrap(), "hello ann");
    });
}
