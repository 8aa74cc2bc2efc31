//! What is sent, and how much of a response is read.

use std::time::{Duration, SystemTime};

use attache_outbound::{MAX_RESPONSE, OutboundError, OutboundRequest, OutboundResponse};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::support::{is_untouched, listen, local, read, request};

const SHORT: Duration = Duration::from_millis(200);

/// Posts with a short timeout to a receiver that runs the closure.
async fn cut_off<F: Future<Output = ()> + Send>(receiver: impl FnOnce(TcpStream) -> F) {
    let (listener, port) = listen().await;
    let client = local();
    let post =
        client.post(OutboundRequest { timeout: SHORT, ..request(format!("http://127.0.0.1:{port}/")) });
    let receive = async {
        let mut stream = listener.accept().await.unwrap().0;
        read(&mut stream).await;
        receiver(stream).await;
    };
    let result = tokio::select! {
        result = post => result,
        () = receive => panic!("the receiver gave up first"),
    };
    assert_eq!(result.unwrap_err(), OutboundError::TimedOut { limit: SHORT });
}

#[tokio::test]
async fn the_body_is_sent_with_its_length_and_framing_headers_are_ours() {
    let (listener, port) = listen().await;
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("x-a2a-notification-token", "abc"),
        ("content-type", "application/a2a+json"),
        ("host", "elsewhere.example.com"),
        ("content-length", "7"),
        ("transfer-encoding", "chunked"),
        ("connection", "upgrade"),
        ("upgrade", "h2c"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    let post = tokio::spawn(async move {
        local()
            .post(OutboundRequest { headers, ..request(format!("http://hooks.example.com:{port}/a?b=c")) })
            .await
    });
    let mut stream = listener.accept().await.unwrap().0;
    let sent = read(&mut stream).await;
    stream.write_all(b"HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\nX-A: b\r\n\r\nok").await.unwrap();
    let answer = post.await.unwrap().unwrap();

    let (head, body) = sent.split_once("\r\n\r\n").unwrap();
    let mut lines = head.lines();
    assert_eq!(lines.next(), Some("POST /a?b=c HTTP/1.1"));
    let mut lines: Vec<_> = lines.collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "accept: */*",
            "content-length: 2",
            "content-type: application/a2a+json",
            &format!("host: hooks.example.com:{port}"),
            "x-a2a-notification-token: abc",
        ]
    );
    assert_eq!(body, "{}");
    assert_eq!(
        (answer.status, &answer.body[..], answer.truncated),
        (StatusCode::ACCEPTED, &b"ok"[..], false)
    );
    assert_eq!(answer.headers["x-a"], "b");
}

#[tokio::test]
async fn a_receiver_that_never_answers_is_cut_off() {
    cut_off(|stream| async move {
        let _held = stream;
        std::future::pending().await
    })
    .await;
}

#[tokio::test]
async fn a_receiver_that_drips_its_head_is_cut_off() {
    cut_off(|mut stream| async move {
        stream.write_all(b"HTTP/1.1 200 OK\r\nX: ").await.unwrap();
        drip(stream, b"x").await;
    })
    .await;
}

#[tokio::test]
async fn a_receiver_that_drips_its_body_is_cut_off() {
    cut_off(|mut stream| async move {
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await.unwrap();
        drip(stream, b"1\r\nx\r\n").await;
    })
    .await;
}

async fn drip(mut stream: TcpStream, bytes: &[u8]) {
    loop {
        stream.write_all(bytes).await.unwrap();
        tokio::time::sleep(SHORT / 20).await;
    }
}

#[tokio::test]
async fn a_receiver_that_does_not_read_is_cut_off() {
    let (_listener, port) = listen().await;
    let body = Bytes::from(vec![0; 64 * 1024 * 1024]);
    let request = OutboundRequest { timeout: SHORT, body, ..request(format!("http://127.0.0.1:{port}/")) };
    assert_eq!(local().post(request).await.unwrap_err(), OutboundError::TimedOut { limit: SHORT });
}

#[tokio::test]
async fn of_a_huge_answer_only_the_beginning_is_read() {
    let (listener, port) = listen().await;
    let post = tokio::spawn(async move { local().post(request(format!("http://127.0.0.1:{port}/"))).await });
    let mut stream = listener.accept().await.unwrap().0;
    read(&mut stream).await;
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n").await.unwrap();
    let mut written = 0_usize;
    // Continues until the client closes the connection.
    while stream.write_all(&[b'x'; 16 * 1024]).await.is_ok() {
        written += 16 * 1024;
        assert!(written < 256 * 1024 * 1024, "the client goes on reading");
    }
    let answer = post.await.unwrap().unwrap();
    assert_eq!((answer.status, answer.body.len(), answer.truncated), (StatusCode::OK, MAX_RESPONSE, true));
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_a_failure() {
    let (listener, port) = listen().await;
    let receive = async {
        let mut stream = listener.accept().await.unwrap().0;
        read(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf").await.unwrap();
    };
    let client = local();
    let (result, ()) =
        tokio::join!(client.post(request(format!("http://127.0.0.1:{port}/?token=s3cret"))), receive);
    let OutboundError::Failed(text) = result.unwrap_err() else { panic!("not a failure") };
    assert!(!text.contains("s3cret"), "{text}");
}

#[tokio::test]
async fn a_request_that_was_read_is_not_sent_again() {
    let (listener, port) = listen().await;
    let receive = async {
        let mut stream = listener.accept().await.unwrap().0;
        read(&mut stream).await;
        drop(stream);
    };
    let client = local();
    let (result, ()) = tokio::join!(client.post(request(format!("http://127.0.0.1:{port}/"))), receive);
    assert!(matches!(result, Err(OutboundError::Failed(_))), "{result:?}");
    assert!(is_untouched(listener));
}

#[test]
fn retry_after_is_read_as_seconds_and_as_a_date() {
    let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
    let after = |value: &'static str, now: SystemTime| {
        let headers = HeaderMap::from_iter([(http::header::RETRY_AFTER, HeaderValue::from_static(value))]);
        OutboundResponse {
            status: StatusCode::TOO_MANY_REQUESTS,
            headers,
            body: Bytes::new(),
            truncated: false,
        }
        .retry_after(now)
    };
    assert_eq!(after("120", now), Some(Duration::from_secs(120)));
    assert_eq!(after("Sun, 06 Nov 1994 08:50:37 GMT", now), Some(Duration::from_secs(60)));
    assert_eq!(after("Sun, 06 Nov 1994 08:00:00 GMT", now), Some(Duration::ZERO));
    assert_eq!(after("soon", now), None);
    assert_eq!(after("-1", now), None);
}

#[test]
fn a_request_is_not_printed_with_its_secrets() {
    let headers =
        HeaderMap::from_iter([(http::header::AUTHORIZATION, HeaderValue::from_static("Bearer s3cret"))]);
    let request =
        OutboundRequest { headers, body: "s3cret".into(), ..request("https://hooks.example.com/?t=s3cret") };
    assert!(!format!("{request:?}").contains("s3cret"));
}
