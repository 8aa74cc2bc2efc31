//! The card: a document that can be cached, and that promises nothing the server does not keep.

use a2a_pb::protojson;
use attache_protocol::AgentCard;
use attache_server::Server;
use insta::assert_json_snapshot;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Binding, Reply, Running, canonical, card, fetch, player, playing, send, serve};

const PATH: &str = "/.well-known/agent-card.json";
const OLDEST_PATH: &str = "/.well-known/agent.json";

async fn read(server: &Running) -> Reply {
    fetch(server.bare(Method::GET, PATH)).await
}

/// The card for clients of 1.0.
async fn pure(server: &Running) -> Reply {
    fetch(server.bare(Method::GET, PATH).header("A2A-Version", "1.0")).await
}

#[tokio::test]
async fn the_card_is_there_for_everyone_whatever_they_speak() {
    let server = serve(player().options(|options| options.strict_version = true)).await;
    for request in [
        server.bare(Method::GET, PATH),
        server.bare(Method::GET, PATH).header("A2A-Version", "9.9"),
        server.bare(Method::GET, PATH).header("Accept", "text/html"),
        server.bare(Method::GET, &format!("{PATH}?x=1")),
    ] {
        let reply = fetch(request).await;
        assert_eq!((reply.status.as_u16(), reply.header("content-type")), (200, "application/json"));
        assert_eq!(reply.json()["name"], "Player");
    }
}

#[tokio::test]
async fn the_card_of_the_echo_agent() {
    let server = serve(Server::echo().base_url("https://echo.example.com/")).await;
    let card = pure(&server).await.json();
    assert_json_snapshot!("echo", card);
    assert_json_snapshot!("echo_for_both", read(&server).await.json());
    assert_json_snapshot!("echo_for_the_oldest", fetch(server.bare(Method::GET, OLDEST_PATH)).await.json());
    let theirs = canonical::<protojson::AgentCard>(&card);
    assert_eq!(theirs["supportedInterfaces"], card["supportedInterfaces"], "a peer reads the same");
}

#[tokio::test]
async fn everything_that_is_required_is_in_the_card() {
    let server = serve(Server::new(crate::support::Player)).await;
    let card = read(&server).await.json();
    for member in ["name", "description", "version"] {
        assert!(card[member].as_str().is_some_and(|text| !text.is_empty()), "{member}");
    }
    for member in ["supportedInterfaces", "defaultInputModes", "defaultOutputModes", "skills"] {
        assert!(card[member].is_array(), "{member}");
    }
    assert!(card["capabilities"].is_object());
    let interfaces = card["supportedInterfaces"].as_array().unwrap();
    let versions: Vec<_> = interfaces.iter().map(|interface| &interface["protocolVersion"]).collect();
    assert_eq!(versions, ["1.0", "1.0", "1.0", "0.3", "0.3", "0.3"]);
    assert!(interfaces.iter().all(|interface| interface.get("tenant").is_none()));
}

#[tokio::test]
async fn who_speaks_1_0_gets_the_card_of_1_0_alone() {
    let server = playing().await;
    let both = read(&server).await;
    assert_eq!(both.json()["preferredTransport"], "JSONRPC");
    let stated = |version: &str| server.bare(Method::GET, PATH).header("A2A-Version", version);
    let in_query = server.bare(Method::GET, &format!("{PATH}?A2A-Version=1.0"));
    for request in [stated("1.0"), stated("1.1"), in_query] {
        let pure = fetch(request).await;
        let card = pure.json();
        for member in ["url", "protocolVersion", "preferredTransport", "additionalInterfaces"] {
            assert!(card.get(member).is_none(), "{member}");
        }
        assert_eq!(card["supportedInterfaces"].as_array().unwrap().len(), 3);
        assert_ne!(pure.header("etag"), both.header("etag"));
        assert_eq!(pure.header("vary"), "A2A-Version");
    }
    for version in ["0.3", "", "nonsense"] {
        assert_eq!(fetch(stated(version)).await.json(), both.json(), "{version}");
    }
}

#[tokio::test]
async fn a_server_can_be_set_to_the_card_of_1_0_alone() {
    for server in [
        player().options(|options| options.pure_card = true),
        player().options(|options| options.strict_version = true),
    ] {
        let card = read(&serve(server).await).await.json();
        assert!(card.get("url").is_none(), "{card}");
        assert_eq!(card["supportedInterfaces"].as_array().unwrap().len(), 3);
    }
}

#[tokio::test]
async fn the_oldest_readers_find_the_card_where_they_look() {
    let server = playing().await;
    let card = fetch(server.bare(Method::GET, OLDEST_PATH)).await;
    assert_eq!(card.json()["url"], format!("{}/a2a/rpc", server.base));
    assert!(card.header("etag").len() > 10);
    let again = server.bare(Method::GET, OLDEST_PATH).header("If-None-Match", card.header("etag"));
    assert_eq!(fetch(again).await.status, 304);
    assert_eq!(fetch(server.bare(Method::POST, OLDEST_PATH)).await.status, 405);
}

#[tokio::test]
async fn every_interface_in_the_card_answers() {
    let server = playing().await;
    let card = pure(&server).await.json();
    let interfaces = card["supportedInterfaces"].as_array().unwrap();
    let url = |binding: &str| {
        let of = interfaces.iter().find(|interface| interface["protocolBinding"] == *binding);
        of.and_then(|interface| interface["url"].as_str()).expect(binding).to_owned()
    };
    assert_eq!(interfaces.len(), 3);

    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": send("hi")});
    let request = server.http.post(url("JSONRPC")).header("A2A-Version", "1.0").json(&call);
    assert!(fetch(request).await.json()["result"]["task"].is_object());

    let request = server.http.post(format!("{}/message:send", url("HTTP+JSON"))).header("A2A-Version", "1.0");
    assert!(fetch(request.json(&send("hi"))).await.json()["task"].is_object());

    let grpc = url("GRPC");
    assert!(!grpc.contains("://"), "host and port: {grpc}");
    let mut client =
        a2a_pb::proto::a2a_service_client::A2aServiceClient::connect(format!("http://{grpc}")).await.unwrap();
    let list = client.list_tasks(a2a_pb::proto::ListTasksRequest::default()).await.unwrap().into_inner();
    assert_eq!(list.total_size, 2, "one agent behind all of them");
}

#[tokio::test]
async fn the_card_advertises_the_url_that_clients_know() {
    for (base, jsonrpc, grpc) in [
        ("https://agents.example.com", "https://agents.example.com/a2a", "agents.example.com:443"),
        ("https://agents.example.com/", "https://agents.example.com/a2a", "agents.example.com:443"),
        ("http://10.0.0.1:8080/x", "http://10.0.0.1:8080/x/a2a", "10.0.0.1:8080"),
        ("http://[::1]:9/", "http://[::1]:9/a2a", "[::1]:9"),
        ("http://[::1]", "http://[::1]/a2a", "[::1]:80"),
    ] {
        let card = read(&serve(player().base_url(base)).await).await.json();
        assert_eq!(card["supportedInterfaces"][0]["url"], *jsonrpc);
        assert_eq!(card["supportedInterfaces"][2]["url"], *grpc);
    }
    let server = playing().await;
    assert_eq!(read(&server).await.json()["supportedInterfaces"][0]["url"], format!("{}/a2a", server.base));
}

#[tokio::test]
async fn interfaces_that_the_card_names_itself_are_left_alone() {
    let mut own = card();
    own.supported_interfaces =
        vec![attache_protocol::AgentInterface::new("https://example.com/x", "JSONRPC")];
    own.capabilities.streaming = Some(false);
    let served = read(&serve(player().card(own)).await).await.json();
    assert_eq!(served["supportedInterfaces"].as_array().unwrap().len(), 1);
    assert_eq!(served["capabilities"]["streaming"], false);
}

#[tokio::test]
async fn the_card_can_be_cached_and_revalidated() {
    let server = playing().await;
    let first = read(&server).await;
    let etag = first.header("etag").to_owned();
    assert!(etag.starts_with('"') && etag.ends_with('"') && etag.len() > 10, "{etag}");
    assert!(first.header("cache-control").contains("max-age="), "{first:?}");
    assert!(first.header("last-modified").ends_with(" GMT"));

    for (tags, status) in [
        (vec![etag.clone()], 304),
        (vec![format!("W/{etag}")], 304),
        (vec![format!("\"other\", {etag}")], 304),
        (vec![format!("\"other\",W/{etag} , \"more\"")], 304),
        (vec!["\"other\"".to_owned(), etag.clone()], 304),
        (vec!["*".to_owned()], 304),
        (vec!["\"other\"".to_owned()], 200),
        (vec![etag.trim_matches('"').to_owned()], 200),
        (vec![String::new()], 200),
    ] {
        let mut request = server.bare(Method::GET, PATH);
        for tag in &tags {
            request = request.header("If-None-Match", tag);
        }
        let reply = fetch(request).await;
        assert_eq!(reply.status, status, "{tags:?}");
        assert_eq!(reply.body.is_empty(), status == 304);
        for header in ["etag", "cache-control", "last-modified"] {
            assert_eq!(reply.header(header), first.header(header), "{header} for {tags:?}");
        }
    }
    let since = |date: &str| server.bare(Method::GET, PATH).header("If-Modified-Since", date);
    assert_eq!(fetch(since(first.header("last-modified"))).await.status, 304);
    assert_eq!(fetch(since("Mon, 01 Jan 2001 00:00:00 GMT")).await.status, 200);
    let both = since(first.header("last-modified")).header("If-None-Match", "\"other\"");
    assert_eq!(fetch(both).await.status, 200, "tags beat dates");
}

#[tokio::test]
async fn the_same_card_has_the_same_tag_and_another_card_another() {
    let tag = async |card: AgentCard| {
        let server = serve(player().card(card).base_url("https://example.com")).await;
        read(&server).await.header("etag").to_owned()
    };
    assert_eq!(tag(card()).await, tag(card()).await);
    assert_ne!(tag(card()).await, tag(card().version("2.0.0")).await);
}

#[tokio::test]
async fn head_tells_about_the_card_without_sending_it() {
    let server = playing().await;
    let full = read(&server).await;
    let head = fetch(server.bare(Method::HEAD, PATH)).await;
    assert_eq!((head.status.as_u16(), head.body.len()), (200, 0));
    assert_eq!(head.header("content-length"), full.body.len().to_string());
    for header in ["etag", "cache-control", "last-modified", "content-type"] {
        assert_eq!(head.header(header), full.header(header));
    }
    let fresh = server.bare(Method::HEAD, PATH).header("If-None-Match", full.header("etag"));
    assert_eq!(fetch(fresh).await.status, 304);
    for method in ["POST", "PUT", "DELETE"] {
        let reply = fetch(server.bare(method.parse().unwrap(), PATH)).await;
        assert_eq!((reply.status.as_u16(), reply.header("allow")), (405, "GET, HEAD"), "{method}");
    }
}

#[tokio::test]
async fn an_extended_card_is_announced_and_given_to_those_who_may_have_it() {
    let extended = card().version("7.0.0");
    let server =
        player().extended_card(extended).service_options(|options| options.extended_card_for_anyone = true);
    let server = serve(server).await;
    let public = read(&server).await.json();
    let capabilities = pure(&server).await.json()["capabilities"].take();
    assert_eq!(public["capabilities"]["extendedAgentCard"], true);
    for binding in Binding::ALL {
        let own = server.ask("GetExtendedAgentCard", json!({})).ok(binding).await;
        assert_eq!(
            (&own["version"], &own["supportedInterfaces"]),
            (&json!("7.0.0"), &public["supportedInterfaces"])
        );
        // Clients put it in the place of the public one, and would believe that it cannot do what it does not say.
        assert_eq!(own["capabilities"], capabilities, "{binding:?}");
    }
    let without_params = json!({"jsonrpc": "2.0", "id": 1, "method": "GetExtendedAgentCard"});
    assert_eq!(server.post(without_params.to_string()).await.json()["result"]["version"], "7.0.0");
}

#[tokio::test]
async fn a_card_without_an_extended_one_does_not_promise_it() {
    let server = playing().await;
    assert_eq!(read(&server).await.json()["capabilities"].get("extendedAgentCard"), None::<&Value>);
}

#[tokio::test]
async fn the_server_says_that_it_is_well() {
    let server = playing().await;
    let reply = fetch(server.bare(Method::GET, "/health")).await;
    assert_eq!((reply.status.as_u16(), reply.json()), (200, json!({"status": "ok"})));
}
