//! The card: a document that can be cached, and that promises nothing the server does not keep.

use a2a_pb::protojson;
use attache_protocol::AgentCard;
use attache_server::auth::KnownCallers;
use attache_server::{GrpcAddress, RUNTIME_EXTENSION, SchemeNames, Server};
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

fn interfaces_of(card: &Value) -> impl Iterator<Item = &Value> {
    card["supportedInterfaces"].as_array().unwrap().iter()
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
        let bindings: Vec<_> = interfaces_of(&card).map(|interface| &interface["protocolBinding"]).collect();
        assert_eq!(bindings, ["JSONRPC", "HTTP+JSON", "GRPC"]);
        assert!(interfaces_of(&card).all(|interface| interface["protocolVersion"] == "1.0"), "{card}");
        assert_ne!(pure.header("etag"), both.header("etag"));
        assert_eq!(pure.header("vary"), "A2A-Extensions, A2A-Version, Host");
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
    let request = server.bare(Method::GET, PATH).header("A2A-Version", "1.0");
    let card = fetch(request.header("A2A-Extensions", attache_protocol::TRANSPORTS_EXTENSION)).await.json();
    let interfaces = card["supportedInterfaces"].as_array().unwrap();
    let url = |binding: &str| {
        let of = interfaces.iter().find(|interface| interface["protocolBinding"] == *binding);
        of.and_then(|interface| interface["url"].as_str()).expect(binding).to_owned()
    };
    assert_eq!(interfaces.len(), 5);

    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": send("hi")});
    let request = server.http.post(url("JSONRPC")).header("A2A-Version", "1.0").json(&call);
    assert!(fetch(request).await.json()["result"]["task"].is_object());

    let request = server.http.post(format!("{}/message:send", url("HTTP+JSON"))).header("A2A-Version", "1.0");
    assert!(fetch(request.json(&send("hi"))).await.json()["task"].is_object());

    let grpc = url("GRPC");
    let mut client = a2a_pb::proto::a2a_service_client::A2aServiceClient::connect(grpc).await.unwrap();
    let list = client.list_tasks(a2a_pb::proto::ListTasksRequest::default()).await.unwrap().into_inner();
    assert_eq!(list.total_size, 2, "one agent behind all of them");
}

#[tokio::test]
async fn the_card_advertises_the_url_that_clients_know() {
    for (base, jsonrpc, url, host_port) in [
        ("https://a.example", "https://a.example/a2a", "https://a.example/grpc", "a.example:443"),
        ("https://a.example/", "https://a.example/a2a", "https://a.example/grpc", "a.example:443"),
        (
            "http://10.0.0.1:8080/x",
            "http://10.0.0.1:8080/x/a2a",
            "http://10.0.0.1:8080/x/grpc",
            "10.0.0.1:8080",
        ),
        ("http://[::1]:9/", "http://[::1]:9/a2a", "http://[::1]:9/grpc", "[::1]:9"),
        ("http://[::1]", "http://[::1]/a2a", "http://[::1]/grpc", "[::1]:80"),
    ] {
        for (address, grpc) in [(GrpcAddress::Url, url), (GrpcAddress::HostPort, host_port)] {
            let server = player().options(|options| options.grpc_address = address).base_url(base);
            let card = read(&serve(server).await).await.json();
            assert_eq!(card["supportedInterfaces"][0]["url"], *jsonrpc);
            assert_eq!(card["supportedInterfaces"][2]["url"], *grpc);
        }
    }
    let hidden = player().options(|options| options.grpc_address = GrpcAddress::Hidden);
    let hidden = read(&serve(hidden).await).await.json().to_string();
    assert!(!hidden.contains("GRPC"), "{hidden}");
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
        let mut own = own["capabilities"].clone();
        let extensions = own.as_object_mut().unwrap().remove("extensions").unwrap();
        assert_eq!(own, capabilities, "{binding:?}");
        assert_eq!(extensions[0]["uri"], RUNTIME_EXTENSION);
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
    assert_eq!((reply.status.as_u16(), reply.json()), (200, json!({"status": "healthy"})));
}

/// The card as a client gets it that knows the server under this name.
async fn read_as(server: &Running, host: &str) -> Reply {
    fetch(server.bare(Method::GET, PATH).header("Host", host)).await
}

fn urls(card: &Value) -> Vec<String> {
    let of = |list: &Value| -> Vec<String> {
        let url = |interface: &Value| interface["url"].as_str().unwrap().to_owned();
        list.as_array().into_iter().flatten().map(url).collect()
    };
    [of(&card["supportedInterfaces"]), of(&card["additionalInterfaces"])].concat()
}

#[tokio::test]
async fn the_card_names_the_host_that_was_asked_for_on_this_machine() {
    let server = playing().await;
    let port = server.address.port();
    let usual = read(&server).await;
    for host in [
        format!("localhost:{port}"),
        format!("127.0.0.2:{port}"),
        format!("[::1]:{port}"),
        format!("LocalHost:{port}"),
    ] {
        let reply = read_as(&server, &host).await;
        let name = host.to_ascii_lowercase();
        let own = format!("127.0.0.1:{port}");
        let expected: Vec<_> = urls(&usual.json()).iter().map(|url| url.replace(&own, &name)).collect();
        assert_eq!(urls(&reply.json()), expected);
        assert_eq!(reply.json()["url"], format!("http://{name}/a2a"));
        assert_ne!(reply.header("etag"), usual.header("etag"));
        assert_eq!(reply.header("vary"), "A2A-Extensions, A2A-Version, Host");
        let again = server.bare(Method::GET, PATH).header("Host", &host);
        assert_eq!(fetch(again.header("If-None-Match", reply.header("etag"))).await.status, 304);
        let oldest = fetch(server.bare(Method::GET, OLDEST_PATH).header("Host", &host)).await.json();
        assert_eq!(oldest["url"], format!("http://{name}/a2a/rpc"));
    }
    assert_eq!(read(&server).await.header("etag"), usual.header("etag"));
}

#[tokio::test]
async fn the_card_names_other_hosts_only_if_the_operator_lists_them() {
    let allowed = ["agents.test", "agents.other:8443"].map(|host| host.parse().unwrap());
    let server = player().base_url("https://agents.example.com/x").authenticate(KnownCallers::new());
    let server = serve(server.options(|options| options.allowed_hosts = allowed.to_vec())).await;
    for (host, base) in [
        ("agents.test", "https://agents.test/x"),
        ("agents.test:9", "https://agents.test:9/x"),
        ("agents.other:8443", "https://agents.other:8443/x"),
        ("agents.other:8444", "https://agents.example.com/x"),
        ("localhost", "https://agents.example.com/x"),
        ("127.0.0.1", "https://agents.example.com/x"),
        ("evil.example", "https://agents.example.com/x"),
    ] {
        let card = read_as(&server, host).await.json();
        assert_eq!(card["url"], format!("{base}/a2a"), "{host}");
    }
    // The operator has said where the server is, and a request to another port does not get there.
    let proxied = serve(player().base_url("http://localhost:9/x")).await;
    for (host, url) in
        [("127.0.0.1:9", "http://127.0.0.1:9/x/a2a"), ("127.0.0.1:8", "http://localhost:9/x/a2a")]
    {
        assert_eq!(read_as(&proxied, host).await.json()["url"], url);
    }
    let any = vec!["*".parse().unwrap()];
    let server = serve(player().options(|options| options.allowed_hosts = any)).await;
    let card = read_as(&server, "evil.example").await.json();
    assert_eq!(card["url"], format!("{}/a2a", server.base), "a name that is not listed could be anyone's");
}

#[tokio::test]
async fn the_documents_for_other_hosts_do_not_displace_the_usual_one() {
    let server = playing().await;
    let usual = read(&server).await;
    for port in 1..600 {
        let host = format!("localhost:{port}");
        assert_eq!(read_as(&server, &host).await.json()["url"], format!("http://{host}/a2a"));
    }
    let after = read(&server).await;
    assert_eq!(after.header("last-modified"), usual.header("last-modified"));
    assert_eq!(after.header("etag"), usual.header("etag"));
}

#[tokio::test]
async fn no_url_in_the_card_stands_for_two_versions_of_http_json_and_none_is_the_base_url() {
    let server = playing().await;
    let card = read(&server).await.json();
    assert!(!urls(&card).contains(&server.base), "AG2 would take that one, whatever it is");
    let interfaces = card["supportedInterfaces"].as_array().unwrap().iter();
    let of: Vec<_> = interfaces
        .filter(|interface| interface["protocolBinding"] == "HTTP+JSON")
        .map(|interface| (interface["protocolVersion"].as_str().unwrap(), interface["url"].as_str().unwrap()))
        .collect();
    let expected = [format!("{}/v1", server.base), format!("{}/0.3", server.base)];
    assert_eq!(of, [("1.0", expected[0].as_str()), ("0.3", expected[1].as_str())]);
}

#[tokio::test]
async fn clients_of_0_3_find_grpc_by_host_and_port() {
    let server = playing().await;
    let card = read(&server).await.json();
    let interfaces = card["additionalInterfaces"].as_array().unwrap();
    let grpc = interfaces.iter().find(|interface| interface["transport"] == "GRPC").unwrap();
    assert_eq!(grpc["url"], server.address.to_string());
}

#[tokio::test]
async fn authenticated_callers_get_an_extended_card_with_details_of_the_server() {
    let server = serve(player().authenticate(KnownCallers::new().bearer("alice", "t0ken"))).await;
    let public = pure(&server).await.json();
    assert_eq!(public["capabilities"]["extendedAgentCard"], true);
    assert!(!public.to_string().contains(RUNTIME_EXTENSION), "{public}");
    for binding in Binding::ALL {
        let ask = || server.ask("GetExtendedAgentCard", json!({}));
        assert!(ask().over(binding).await.result.is_err());
        let card = ask().header("authorization", "Bearer t0ken").ok(binding).await;
        let extension = &card["capabilities"]["extensions"][0];
        assert_eq!(extension["uri"], RUNTIME_EXTENSION);
        let params = &extension["params"];
        assert_eq!((&params["store"], &params["server"]), (&json!("memory"), &json!("attache")));
        assert_eq!(params["transports"], json!(["GRPC", "HTTP+JSON", "JSONRPC"]));
        assert_eq!(params["limits"]["bodyBytes"].as_f64(), Some(8.0 * 1024.0 * 1024.0));
        assert_eq!(card["name"], public["name"]);
    }
}

#[tokio::test]
async fn the_operator_names_the_schemes_and_changes_every_card() {
    let server = player().authenticate(KnownCallers::new().bearer("alice", "t0ken").basic("ops", "pa55"));
    let server = server.change_cards(|card| card.name = "Ours".to_owned()).options(|options| {
        options.scheme_names = SchemeNames::default().with(|names| names.bearer = "token".to_owned());
    });
    let server = serve(server).await;
    let card = pure(&server).await.json();
    assert_eq!(card["name"], "Ours");
    let names: Vec<_> = card["securitySchemes"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["basicAuth", "token"]);
    assert_eq!(
        card["securityRequirements"],
        json!([{"schemes": {"token": {}}}, {"schemes": {"basicAuth": {}}}])
    );
    let ask = server.ask("GetExtendedAgentCard", json!({})).header("authorization", "Bearer t0ken");
    assert_eq!(ask.ok(Binding::JsonRpc).await["name"], "Ours");
}
