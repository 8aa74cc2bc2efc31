//! Servers on standard input and output beside another server of the same user, whose tasks are in the file that is used by default.

use tokio::io::{AsyncBufReadExt, BufReader};

use crate::home::Home;
use crate::support::Log;

const ATTACHE: &str = env!("CARGO_BIN_EXE_attache");

/// Starts a server whose store is the one of the user, and waits until it listens.
async fn serve(home: &Home) -> (tokio::process::Child, Log) {
    let mut server = home.command(&["serve", "--agent", "echo", "--listen", "127.0.0.1:0"]).spawn().unwrap();
    let mut log = Log::of(BufReader::new(server.stderr.take().expect("it is piped")).lines());
    let kept = log.line_with("  tasks ").await;
    assert!(kept.contains("attache.db"), "{kept}");
    (server, log)
}

#[tokio::test]
async fn agents_on_standard_input_and_output_run_beside_each_other_and_a_server_of_the_user() {
    let home = Home::new();
    let _server = serve(&home).await;
    let address = format!("stdio:'{ATTACHE}' serve --stdio --agent echo");
    let send = |text| {
        let arguments = ["send", &address, text].map(str::to_owned);
        let home = &home;
        async move { home.run(&arguments.each_ref().map(String::as_str)).await }
    };
    for ran in <[_; 3]>::from(tokio::join!(send("one"), send("two"), send("three"))) {
        assert_eq!(ran.code, Some(0), "{ran}");
        assert!(ran.stderr.contains("tasks are kept in memory until the server ends"), "{ran}");
    }
}

#[tokio::test]
async fn a_server_that_others_can_reach_beside_standard_input_and_output_keeps_its_tasks_in_the_file() {
    let home = Home::new();
    let _server = serve(&home).await;
    let socket = format!("unix:{}", home.path("a.sock").display());
    for further in [["--listen", "127.0.0.1:0"], ["--listen", &socket], ["--redis", "redis://127.0.0.1:1"]] {
        let ran = home.run(&[&["serve", "--stdio", "--agent", "echo"], &further[..]].concat()).await;
        assert!(ran.code == Some(1) && ran.stderr.contains("is in use by another process"), "{ran}");
    }
    let file = home.file("attache.yml", "agent: echo\nstdio: true\nlisten: 127.0.0.1:0\n");
    let ran = home.run(&["serve", "--config", &file]).await;
    assert!(ran.stderr.contains("is in use by another process"), "{ran}");
}

#[tokio::test]
async fn a_store_that_is_set_is_used_on_standard_input_and_output() {
    let home = Home::new();
    let store = format!("sqlite:{}", home.path("own.db").display());
    let file = home.file("attache.yml", &format!("agent: echo\nstdio: true\nstore: {store}\n"));
    let by_flag = home.command(&["serve", "--stdio", "--agent", "echo", "--store", &store]);
    let mut by_environment = home.command(&["serve", "--stdio", "--agent", "echo"]);
    by_environment.env("ATTACHE_STORE", &store);
    for mut command in [by_flag, by_environment, home.command(&["serve", "--config", &file])] {
        let ran = crate::home::ran(command.output().await.unwrap());
        assert!(ran.code == Some(0) && !ran.stderr.contains("kept in memory"), "{ran}");
        std::fs::remove_file(home.path("own.db")).expect("the store was made");
    }
}
