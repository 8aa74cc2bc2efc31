//! Endpoints that are silent, that ask for time, and that respond with something else than a stream.

use std::time::{Duration, SystemTime};

use attache_agents::model::ModelOptions;

use super::{Step, failure, serve, task, text};

#[tokio::test]
async fn an_endpoint_that_never_responds_is_asked_once_and_fails_the_task() {
    let change = |options: &mut ModelOptions| options.silence = Duration::from_millis(200);
    let (agent, script) = serve([Step::Silent, Step::Say(&["late"])], change, Vec::new()).await;
    assert_eq!(failure(&task(agent.send("hello").await.unwrap())), "the model stopped replying");
    assert_eq!(script.requests.lock().len(), 1);
}

#[tokio::test]
async fn a_request_is_repeated_no_earlier_than_the_endpoint_has_asked_for() {
    let steps = [Step::Busy(429, "2".to_owned()), Step::Say(&["ok"])];
    let (agent, script) = serve(steps, |_| {}, Vec::new()).await;
    assert_eq!(text(&task(agent.send("hello").await.unwrap())), "ok");
    let times = script.times.lock();
    assert!(times[1].duration_since(times[0]).unwrap() >= Duration::from_secs(2), "{times:?}");
}

#[tokio::test]
async fn a_request_is_repeated_no_earlier_than_the_date_that_the_endpoint_has_named() {
    // Dates have whole seconds.
    let date = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(3));
    let steps = [Step::Busy(503, date.clone()), Step::Say(&["ok"])];
    let (agent, script) = serve(steps, |_| {}, Vec::new()).await;
    assert_eq!(text(&task(agent.send("hello").await.unwrap())), "ok");
    assert!(script.times.lock()[1] >= httpdate::parse_http_date(&date).unwrap());
}

#[tokio::test]
async fn an_endpoint_that_asks_for_a_long_time_fails_the_task_at_once_and_the_caller_reads_the_time() {
    for status in [429, 503] {
        let (agent, script) = serve([Step::Busy(status, "3600".to_owned())], |_| {}, Vec::new()).await;
        let failed = failure(&task(agent.send("hello").await.unwrap()));
        assert_eq!(failed, "the model is overloaded: try again in 3600 s");
        assert_eq!(script.requests.lock().len(), 1);
    }
}

#[tokio::test]
async fn a_response_that_is_no_stream_fails_the_task_and_says_so() {
    let steps = [
        Step::Body("text/html", "<html>\n<body>Please log in, secret</body>\n</html>"),
        Step::Body("application/json", "{\"error\": \"secret\"}"),
        Step::Body("text/event-stream", ""),
    ];
    let (agent, _) = serve(steps, |_| {}, Vec::new()).await;
    for _ in 0..3 {
        let failed = failure(&task(agent.send("hello").await.unwrap()));
        assert_eq!(failed, "the model endpoint did not respond with a stream");
    }
}
