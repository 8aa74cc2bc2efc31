//! Every example does what its first lines say.

use crate::support::{Program, run_example};

#[tokio::test]
async fn echo_server_gives_back_what_it_gets() {
    let echo = Program::example("echo_server", &[]).await;
    let answer = echo.send("Hello", None).await;
    assert_eq!(answer["task"]["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(answer["task"]["artifacts"][0]["parts"][0]["text"], "Hello");
}

#[tokio::test]
async fn custom_handler_chooses_between_its_skills() {
    let assistant = Program::example("custom_handler", &[]).await;
    let forecast = assistant.send("weather Oslo", None).await;
    let parts = &forecast["task"]["artifacts"][0]["parts"];
    assert_eq!(parts[0]["text"], "Clear and calm in Oslo.");
    assert_eq!(parts[1]["data"]["city"], "Oslo");
    let refused = assistant.send("weather", None).await;
    assert_eq!(refused["task"]["status"]["state"], "TASK_STATE_REJECTED");
    let report = assistant.send("report", None).await;
    assert_eq!(report["task"]["artifacts"][0]["parts"][0]["filename"], "visitors.csv");
    let talk = assistant.send("hi", None).await;
    assert_eq!(talk["message"]["role"], "ROLE_AGENT");
}

#[tokio::test]
async fn streaming_agent_tells_its_story_word_by_word() {
    let storyteller = Program::example("streaming_agent", &[]).await;
    let events = storyteller.stream("go on").await;
    assert_eq!(events[0]["task"]["status"]["state"], "TASK_STATE_SUBMITTED");
    let words: Vec<_> = events.iter().filter_map(|event| event.get("artifactUpdate")).collect();
    let story: String =
        words.iter().filter_map(|word| word["artifact"]["parts"][0]["text"].as_str()).collect();
    assert_eq!(story, "Once upon a time there was an envoy who carried every word exactly once and in order");
    assert_eq!(words.len(), story.split(' ').count());
    assert_eq!(words.last().map(|word| word["lastChunk"].clone()), Some(true.into()));
    assert_eq!(
        events.last().map(|event| &event["statusUpdate"]["status"]["state"]),
        Some(&"TASK_STATE_COMPLETED".into())
    );
}

#[tokio::test]
async fn multi_turn_asks_until_it_knows_enough() {
    let tables = Program::example("multi_turn", &[]).await;
    let first = tables.send("a table please", None).await;
    assert_eq!(first["task"]["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
    let task = first["task"]["id"].as_str().expect("a task has an id");
    let second = tables.send("4", Some(task)).await;
    assert_eq!(second["task"]["status"]["message"]["parts"][0]["text"], "At what time?");
    let third = tables.send("eight", Some(task)).await;
    assert_eq!(third["task"]["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(third["task"]["artifacts"][0]["parts"][0]["text"], "A table for 4 at eight.");
}

#[tokio::test]
async fn llm_agent_passes_the_conversation_to_the_model() {
    let url = crate::model::start().await;
    let environment = [("OPENAI_BASE_URL", url.as_str()), ("OPENAI_API_KEY", crate::model::KEY)];
    let agent = Program::example_with("llm_agent", &[], &environment).await;
    let first = agent.send("good morning", None).await;
    assert_eq!(crate::model::reply(&first["task"]), "system,user: good morning");
    let message = serde_json::json!({
        "messageId": "second", "role": "ROLE_USER", "parts": [{"text": "and again"}],
        "contextId": first["task"]["contextId"],
    });
    let second = agent.call("SendMessage", serde_json::json!({"message": message})).await;
    assert_eq!(crate::model::reply(&second["task"]), "system,user,assistant,user: and again");
}

#[tokio::test]
async fn tck_server_obeys_the_prefix_of_the_message_id() {
    let kit = Program::example("tck_server", &["--listen", "ADDR"]).await;
    let send = async |id: &str| {
        let message = serde_json::json!({"messageId": id, "role": "ROLE_USER", "parts": [{"text": "x"}]});
        kit.call("SendMessage", serde_json::json!({"message": message})).await
    };
    assert_eq!(
        send("tck-message-response-1").await["message"]["parts"][0]["text"],
        "Direct message response"
    );
    assert_eq!(send("tck-input-required-1").await["task"]["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
    let file = send("tck-artifact-file-1").await;
    assert_eq!(file["task"]["artifacts"][0]["parts"][0]["raw"], "dGNr");
    let address = send("tck-artifact-file-url-1").await;
    assert_eq!(address["task"]["artifacts"][0]["parts"][0]["url"], "https://example.com/output.txt");
    let data = send("tck-artifact-data-1").await;
    assert_eq!(data["task"]["artifacts"][0]["parts"][0]["data"]["count"], 42);
}

#[tokio::test]
async fn simple_client_prints_what_it_is_told() {
    let storyteller = Program::example("streaming_agent", &[]).await;
    let told = run_example("simple_client", &[&storyteller.url]).await;
    let story = "Once upon a time there was an envoy who carried every word exactly once and in order";
    assert_eq!(told.lines().last(), Some(story));
    let echo = Program::example("echo_server", &[]).await;
    assert_eq!(run_example("simple_client", &[&echo.url]).await, "Hello\nTell me a story\n");
}

#[tokio::test]
async fn any_transport_leads_to_the_agent() {
    let echo = Program::example("echo_server", &[]).await;
    let rest = echo.url.trim_start_matches("http://");
    let proxy = format!("stdio:'{}' proxy --stdio {}", env!("CARGO_BIN_EXE_attache"), echo.url);
    for address in [echo.url.clone(), format!("ws://{rest}/ws"), format!("grpc-jsonrpc://{rest}"), proxy] {
        assert_eq!(run_example("any_transport", &[&address]).await, "Hello\n", "{address}");
    }
}

#[tokio::test]
async fn polling_client_comes_back_and_answers() {
    let tables = Program::example("multi_turn", &[]).await;
    let booked = run_example("polling_client", &[&tables.url, "a table please", "4", "eight"]).await;
    assert_eq!(booked, "A table for 4 at eight.\n");
    let asked = run_example("polling_client", &[&tables.url, "a table please"]).await;
    assert_eq!(asked, "For how many people?\n", "it has no answer to that");
}

#[tokio::test]
async fn multi_agent_adds_up_what_the_worker_counts() {
    let coordinator = Program::example("multi_agent", &["ADDR", "127.0.0.1:0"]).await;
    let counted = coordinator.send("count the words\none two\nthree four five", None).await;
    let task = &counted["task"];
    assert_eq!(task["status"]["message"]["parts"][0]["text"], "5 words in 2 lines");
    assert_eq!(task["artifacts"][1]["parts"][0]["text"], "3");
    let nothing = coordinator.send("count the words", None).await;
    assert_eq!(nothing["task"]["status"]["state"], "TASK_STATE_REJECTED");
}

#[tokio::test]
async fn push_notifications_tells_how_it_goes() {
    let told = run_example("push_notifications", &["127.0.0.1:0", "127.0.0.1:0"]).await;
    let lines: Vec<_> = told.lines().map(str::trim).collect();
    let expected = [
        "created a webhook",
        "received TASK_STATE_WORKING",
        "received TASK_STATE_WORKING The oven is warm.",
        "received TASK_STATE_COMPLETED Ready.",
        "deleted the webhook, 0 left",
    ];
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn research_collects_the_findings_of_three_agents() {
    let found = run_example("research", &[]).await;
    let expected =
        (1..=3).map(|n| format!("Researcher {n} on `aspect {n} of quantum computing`: it is complicated.\n"));
    assert_eq!(found, expected.collect::<String>());
}
