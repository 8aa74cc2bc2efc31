//! `attache chat` on a terminal.

use std::os::unix::fs::PermissionsExt;

use super::{LONG, demo, echo};
use crate::home::Home;
use crate::terminal::Terminal;

const LEFT: &str = "\x1b[D";
const UP: &str = "\x1b[A";

#[tokio::test(flavor = "multi_thread")]
async fn a_line_can_be_edited_repeated_and_continued() {
    let (agent, home) = (echo().await, Home::new());
    let mut chat = Terminal::start(home.command(&["chat", &agent.url]));
    chat.wait_for_prompt("> ");
    chat.type_in(&format!("helo{LEFT}l\r"));
    chat.wait_for("\nhello\n> ");
    chat.type_in(UP);
    chat.wait_for_prompt("> hello");
    chat.type_in(" again\r");
    chat.wait_for("\nhello again\n> ");
    chat.type_in("one\\\r");
    chat.wait_for("> one\\");
    chat.type_in("two\x1b\rthree\r");
    chat.wait_for("\none\ntwo\nthree\n> ");
    chat.type_in("/t\t\r");
    let shown = chat.wait_for("conversation  ");
    assert!(shown.contains("> /task"), "{shown}");
    chat.wait_for_prompt("> ");
    chat.type_in("\x03");
    chat.wait_for("Ctrl-D or /quit leaves");
    chat.wait_for_prompt("> ");
    chat.type_in("\x04");
    let (status, screen) = chat.end();
    assert!(status.success(), "{screen}");

    let history = home.path(".local/state/attache/chat-history");
    let text = std::fs::read_to_string(&history).expect("what was typed is remembered");
    assert!(text.contains("hello again"), "{text}");
    let mode = std::fs::metadata(&history).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut next = Terminal::start(home.command(&["chat", &agent.url]));
    next.wait_for_prompt("> ");
    next.type_in(UP);
    // Completion has added a space.
    next.wait_for_prompt("> /task ");
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_wrapped_and_rendered_and_cannot_command_the_terminal() {
    let (agent, home) = (echo().await, Home::new());
    let mut chat = Terminal::start(home.command(&["chat", "--no-history", &agent.url]));
    chat.wait_for_prompt("> ");
    // A `\x16` has the editor take the next key as it is.
    chat.type_in("- a **Zebra** and `code` \x16\x1b[2J\r");
    // This terminal does not print the sign that stands for the escape. What follows it is text.
    chat.wait_for("• a Zebra and code [2J");
    assert!(chat.cell("Z").bold());
    // Until the prompt is there, the terminal itself shows what is typed.
    chat.wait_for_prompt("> ");
    let words = "word ".repeat(30);
    chat.type_in(&format!("{words}end\r"));
    let screen = chat.wait_for("word end\n> ");
    let full_line = ["word"; 16].join(" ");
    assert!(screen.contains(&format!("\n{full_line}\n")), "{screen}");
    assert!(!home.path(".local/state/attache/chat-history").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_goes_with_the_next_message() {
    let (agent, home) = (echo().await, Home::new());
    home.file("two words.csv", "a,b\n");
    let mut command = home.command(&["chat", &agent.url]);
    command.current_dir(home.path(""));
    let mut chat = Terminal::start(command);
    chat.wait_for_prompt("> ");
    chat.type_in("/fi\ttwo\t\r");
    chat.wait_for("with the next message: two words.csv");
    chat.wait_for_prompt("> ");
    chat.type_in("here\r");
    chat.wait_for("\nhere\n[file two words.csv, text/csv: 4 bytes]\n> ");
    chat.type_in("/file nothing.csv\r");
    chat.wait_for("error: `/file nothing.csv` cannot be read");
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_cancels_the_task_and_the_chat_goes_on() {
    let (agent, home) = (demo(&[]).await, Home::new());
    let mut chat = Terminal::start(home.command(&["chat", &agent.url]));
    chat.wait_for_prompt("> ");
    chat.type_in(&format!("{LONG}\r"));
    let list = ["task", "list", &agent.url, "--state", "working"];
    crate::support::until("the task runs", async || home.run(&list).await.stdout.contains("working")).await;
    // The terminal is not that of a session, so it sends no signal.
    let pid = chat.pid().to_string();
    tokio::process::Command::new("kill").args(["-INT", &pid]).status().await.expect("kill works");
    chat.wait_for("error: the task was canceled");
    chat.wait_for_prompt("> ");
}
