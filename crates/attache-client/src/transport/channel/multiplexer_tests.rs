//! Tests with an agent in memory, in virtual time.

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf};

use super::super::lines::{LineLimits, LineSink, LineSource};
use super::*;
use crate::ClientOptions;

/// Gives each connection to a test.
struct TestDial {
    connections: mpsc::UnboundedSender<DuplexStream>,
    limits: LineLimits,
}

impl Dial for TestDial {
    const TRAITS: Traits = Traits { auth_per_connection: false, is_replaceable: true, has_pings: true };

    fn dial<'a>(&'a self, _: &'a [(HeaderName, HeaderValue)]) -> BoxFuture<'a, Result<Duplex, ClientError>> {
        Box::pin(async move {
            let (ours, theirs) = tokio::io::duplex(64 * 1024);
            let _ = self.connections.send(theirs);
            let (reader, writer) = tokio::io::split(ours);
            Ok(Duplex {
                source: Box::new(LineSource::new(reader, self.limits)),
                sink: Box::new(LineSink(writer)),
            })
        })
    }
}

/// The agent's end of one connection.
struct Agent {
    requests: Lines<BufReader<ReadHalf<DuplexStream>>>,
    writer: WriteHalf<DuplexStream>,
}

impl Agent {
    async fn request(&mut self) -> Value {
        let line = self.requests.next_line().await.unwrap().expect("a request");
        serde_json::from_str(&line).unwrap()
    }

    async fn write(&mut self, text: &str) {
        self.writer.write_all(text.as_bytes()).await.unwrap();
    }

    async fn answer(&mut self, id: u64, result: Value) {
        self.write(&format!("{}\n", json!({"jsonrpc": "2.0", "id": id, "result": result}))).await;
    }

    async fn end(&mut self, id: u64) {
        self.write(&format!("{}\n", json!({"jsonrpc": "2.0", "id": id, "final": true}))).await;
    }

    /// Waits until the client has closed the connection.
    async fn closed(mut self) {
        while let Ok(Some(_)) = self.requests.next_line().await {}
    }
}

struct Desk {
    channel: Multiplexer<TestDial>,
    connections: mpsc::UnboundedReceiver<DuplexStream>,
}

impl Desk {
    fn new() -> Self {
        Self::with(ClientOptions::default())
    }

    fn with(options: ClientOptions) -> Self {
        let (sender, connections) = mpsc::unbounded_channel();
        let dial = TestDial { connections: sender, limits: LineLimits::new(&options) };
        Self { channel: Multiplexer::new(dial, &options), connections }
    }

    async fn agent(&mut self) -> Agent {
        let (reader, writer) = tokio::io::split(self.connections.recv().await.unwrap());
        Agent { requests: BufReader::new(reader).lines(), writer }
    }

    async fn send(&self, id: u64, responses: ResponseCount) -> Responses {
        let json = json!({"jsonrpc": "2.0", "id": id, "method": "M"}).to_string().into_bytes();
        let headers = vec![(HeaderName::from_static("a2a-version"), HeaderValue::from_static("1.0"))];
        let request = RequestFrame { id: Some(id), json, headers, auth: Vec::new(), responses };
        self.channel.exchange(request).await.unwrap()
    }
}

async fn result(responses: &mut Responses) -> Option<Value> {
    let frame = responses.next().await.unwrap()?;
    Some(serde_json::from_slice::<Value>(&frame.json).unwrap()["result"].clone())
}

#[tokio::test(start_paused = true)]
async fn responses_reach_their_requests_in_any_order() {
    let mut desk = Desk::new();
    let mut one = desk.send(1, ResponseCount::One).await;
    let mut events = desk.send(2, ResponseCount::Stream).await;
    let mut other = desk.send(3, ResponseCount::One).await;
    let mut agent = desk.agent().await;
    for id in 1..=3 {
        let request = agent.request().await;
        assert_eq!(request["id"], id);
        assert_eq!(request["headers"], json!({"a2a-version": "1.0"}));
    }
    agent.answer(2, json!("a")).await;
    agent.answer(3, json!("three")).await;
    agent.answer(2, json!("b")).await;
    agent.answer(1, json!("one")).await;
    agent.end(2).await;
    assert_eq!(result(&mut one).await, Some(json!("one")));
    assert_eq!(result(&mut other).await, Some(json!("three")));
    assert_eq!(result(&mut events).await, Some(json!("a")));
    assert_eq!(result(&mut events).await, Some(json!("b")));
    assert_eq!(result(&mut events).await, None);
}

#[tokio::test(start_paused = true)]
async fn the_number_of_an_event_is_known() {
    let mut desk = Desk::new();
    let mut events = desk.send(7, ResponseCount::Stream).await;
    let mut agent = desk.agent().await;
    agent.write("\n{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{},\"eventId\":12}\r\n").await;
    assert_eq!(events.next().await.unwrap().unwrap().event.as_deref(), Some("12"));
}

#[tokio::test(start_paused = true)]
async fn an_error_ends_a_stream_also_if_a_final_frame_follows() {
    let mut desk = Desk::new();
    let mut events = desk.send(1, ResponseCount::Stream).await;
    let mut next = desk.send(2, ResponseCount::One).await;
    let mut agent = desk.agent().await;
    agent.write("{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32001,\"message\":\"m\"}}\n").await;
    agent.end(1).await;
    agent.answer(2, json!("still open")).await;
    assert!(events.next().await.unwrap().is_some());
    assert!(events.next().await.unwrap().is_none());
    assert_eq!(result(&mut next).await, Some(json!("still open")));
}

#[tokio::test(start_paused = true)]
async fn half_a_frame_and_then_silence_breaks_the_connection() {
    let mut desk = Desk::new();
    let mut events = desk.send(1, ResponseCount::Stream).await;
    let mut agent = desk.agent().await;
    agent.write("{\"jsonrpc\":\"2.0\",").await;
    let started = Instant::now();
    let error = events.next().await.unwrap_err();
    assert!(error.to_string().contains("in the middle of a line"), "{error}");
    assert!(error.is_transient() && started.elapsed() == ClientOptions::default().call_timeout);
    drop(agent);
}

#[tokio::test(start_paused = true)]
async fn a_frame_that_arrives_in_pieces_is_one_frame() {
    let mut desk = Desk::new();
    let mut one = desk.send(1, ResponseCount::One).await;
    let mut agent = desk.agent().await;
    for piece in ["{\"jsonrpc\":\"2.0\",\"id\"", ":1,\"result\":", "\"whole\"}", "\n"] {
        agent.write(piece).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    assert_eq!(result(&mut one).await, Some(json!("whole")));
}

#[tokio::test(start_paused = true)]
async fn a_frame_that_is_too_large_is_not_kept() {
    let options = ClientOptions { max_body: 1000, max_event: 1000, ..ClientOptions::default() };
    let mut desk = Desk::with(options);
    let mut one = desk.send(1, ResponseCount::One).await;
    let mut agent = desk.agent().await;
    agent.write(&"x".repeat(2000)).await;
    assert!(matches!(one.next().await, Err(ClientError::TooLarge { limit: 1000 })));
    agent.closed().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_no_frame_breaks_the_connection() {
    for text in ["hello\n", "[]\n", "7\n", "{\n"] {
        let mut desk = Desk::new();
        let mut one = desk.send(1, ResponseCount::One).await;
        let mut agent = desk.agent().await;
        agent.write(text).await;
        assert!(matches!(one.next().await, Err(ClientError::Protocol(_))), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_goes_away_fails_all_requests_and_the_next_one_connects_again() {
    let mut desk = Desk::new();
    let mut one = desk.send(1, ResponseCount::One).await;
    let mut events = desk.send(2, ResponseCount::Stream).await;
    let mut agent = desk.agent().await;
    agent.answer(2, json!("first")).await;
    assert_eq!(result(&mut events).await, Some(json!("first")));
    drop(agent);
    for responses in [&mut one, &mut events] {
        let error = responses.next().await.unwrap_err();
        assert!(matches!(error, ClientError::Broken(_)), "{error}");
    }
    let mut again = desk.send(3, ResponseCount::One).await;
    let mut agent = desk.agent().await;
    assert_eq!(agent.request().await["id"], 3);
    agent.answer(3, json!("again")).await;
    assert_eq!(result(&mut again).await, Some(json!("again")));
}

#[tokio::test(start_paused = true)]
async fn an_error_without_an_id_says_why_the_connection_ended() {
    let refusal = "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32700,\"message\":\"too long\"}}\n";
    let mut desk = Desk::new();
    let mut only = desk.send(1, ResponseCount::One).await;
    let mut agent = desk.agent().await;
    agent.write(refusal).await;
    assert!(only.next().await.unwrap().is_some(), "the only request is meant");

    let mut desk = Desk::new();
    let mut one = desk.send(1, ResponseCount::One).await;
    let _other = desk.send(2, ResponseCount::One).await;
    let mut agent = desk.agent().await;
    agent.write(refusal).await;
    drop(agent);
    let error = one.next().await.unwrap_err().to_string();
    assert!(error.contains("too long"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_is_too_slow_is_cut_off_and_delays_no_other() {
    let mut desk = Desk::new();
    let mut slow = desk.send(1, ResponseCount::Stream).await;
    let mut quick = desk.send(2, ResponseCount::One).await;
    let mut agent = desk.agent().await;
    let event = "x".repeat(64 * 1024);
    for _ in 0..(2 * MAX_UNREAD / event.len()) {
        agent.answer(1, json!(event)).await;
    }
    agent.answer(2, json!("quick")).await;
    assert_eq!(result(&mut quick).await, Some(json!("quick")));
    let mut read = 0;
    let error = loop {
        match slow.next().await {
            Ok(Some(frame)) => read += frame.json.len(),
            Ok(None) => panic!("the stream has not ended"),
            Err(error) => break error,
        }
    };
    assert!(read > MAX_UNREAD / 2 && read <= MAX_UNREAD, "{read}");
    assert!(error.is_transient(), "the stream can be resumed: {error}");
}

#[tokio::test(start_paused = true)]
async fn a_dropped_stream_is_not_read_any_more_and_the_connection_ends_with_the_last_request() {
    let mut desk = Desk::new();
    let stream = desk.send(1, ResponseCount::Stream).await;
    let mut one = desk.send(2, ResponseCount::One).await;
    let mut agent = desk.agent().await;
    drop(stream);
    agent.answer(1, json!("late")).await;
    agent.answer(2, json!("here")).await;
    assert_eq!(result(&mut one).await, Some(json!("here")));
    drop(one);
    agent.closed().await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_requests_is_closed_after_a_while() {
    let mut desk = Desk::new();
    let mut one = desk.send(1, ResponseCount::One).await;
    let mut agent = desk.agent().await;
    agent.answer(1, json!(1)).await;
    assert_eq!(result(&mut one).await, Some(json!(1)));
    let mut two = desk.send(2, ResponseCount::One).await;
    assert_eq!(agent.request().await["id"], 1);
    assert_eq!(agent.request().await["id"], 2, "the connection is used again");
    agent.answer(2, json!(2)).await;
    assert_eq!(result(&mut two).await, Some(json!(2)));
    let idle_since = Instant::now();
    agent.closed().await;
    assert!((IDLE..IDLE + 2 * TICK).contains(&idle_since.elapsed()));
}

#[tokio::test(start_paused = true)]
async fn many_requests_are_spread_over_connections() {
    let mut desk = Desk::new();
    let mut streams = Vec::new();
    for id in 0..MAX_REQUESTS as u64 + 1 {
        streams.push(desk.send(id, ResponseCount::Stream).await);
    }
    let (_full, mut second) = (desk.agent().await, desk.agent().await);
    assert_eq!(second.request().await["id"], MAX_REQUESTS as u64);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_answers_no_ping_is_gone() {
    let mut desk = Desk::new();
    let mut events = desk.send(1, ResponseCount::Stream).await;
    let agent = desk.agent().await;
    let started = Instant::now();
    let error = events.next().await.unwrap_err();
    assert!(error.to_string().contains("sent nothing"), "{error}");
    let silence = ClientOptions::default().idle_timeout;
    assert!((silence..silence + 2 * TICK).contains(&started.elapsed()));
    drop(agent);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_does_not_read_is_given_up() {
    let mut desk = Desk::new();
    let json = format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"{}\"}}", "x".repeat(1024 * 1024));
    let request = RequestFrame {
        id: Some(1),
        json: json.into_bytes(),
        headers: Vec::new(),
        auth: Vec::new(),
        responses: ResponseCount::One,
    };
    let mut one = desk.channel.exchange(request).await.unwrap();
    let agent = desk.agent().await;
    let error = one.next().await.unwrap_err();
    assert!(error.to_string().contains("read nothing"), "{error}");
    drop(agent);
}

#[tokio::test(start_paused = true)]
async fn headers_are_left_out_for_servers_that_reject_them() {
    let mut desk = Desk::new();
    assert!(desk.channel.omit_headers(true));
    let _one = desk.send(1, ResponseCount::One).await;
    let mut agent = desk.agent().await;
    assert_eq!(agent.request().await, json!({"jsonrpc": "2.0", "id": 1, "method": "M"}));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_numbers_events_is_asked_to_end_a_dropped_stream_while_others_run() {
    let mut desk = Desk::new();
    let mut numbered = desk.send(1, ResponseCount::Stream).await;
    let mut plain = desk.send(2, ResponseCount::Stream).await;
    let mut other = desk.send(3, ResponseCount::Stream).await;
    let mut agent = desk.agent().await;
    for _ in 0..3 {
        agent.request().await;
    }
    agent.write("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":7,\"eventId\":1}\n").await;
    agent.answer(2, json!(8)).await;
    assert_eq!(result(&mut numbered).await, Some(json!(7)));
    assert_eq!(result(&mut plain).await, Some(json!(8)));
    drop((plain, numbered));
    let cancel = json!({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": 1}});
    assert_eq!(agent.request().await, cancel);
    agent.end(1).await;
    agent.end(3).await;
    assert_eq!(result(&mut other).await, None);
}
