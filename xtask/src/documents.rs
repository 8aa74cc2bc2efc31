//! Tests that keep the documents true: links and paths lead somewhere, tests and commands that are named exist, and crates depend on each
//! other in the order that CONTRIBUTING states.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::run;

/// Every page that is written by hand, relative to the root of the workspace.
fn pages() -> Vec<PathBuf> {
    let mut pages: Vec<PathBuf> =
        ["README.md", "CONTRIBUTING.md", "SECURITY.md", "fuzz/README.md"].map(PathBuf::from).to_vec();
    for folder in ["docs", "docs/decisions"] {
        for entry in fs::read_dir(run::root().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path.strip_prefix(run::root()).unwrap().to_owned());
            }
        }
    }
    pages.sort();
    pages
}

fn read(page: impl AsRef<Path>) -> String {
    let page = run::root().join(page);
    fs::read_to_string(&page).unwrap_or_else(|error| panic!("{}: {error}", page.display()))
}

/// Adds the text of every Rust file below a folder.
fn read_code(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_code(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&fs::read_to_string(&path).unwrap());
        }
    }
}

/// The inline code of a page, without its code blocks.
fn inline_code(page: &str) -> Vec<&str> {
    let outside = page.split("\n```").step_by(2);
    outside.flat_map(|text| text.split('`').skip(1).step_by(2)).collect()
}

/// The lines of the code blocks of a page.
fn code_lines(page: &str) -> Vec<&str> {
    page.split("\n```").skip(1).step_by(2).flat_map(str::lines).collect()
}

/// The targets of the links of a page.
fn links(page: &str) -> Vec<&str> {
    page.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target).collect()
}

/// The anchors of a page, one for each heading, as GitHub forms them.
fn anchors(page: &str) -> BTreeSet<String> {
    let headings = page.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| -> String {
        let text = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn every_link_in_the_documents_leads_somewhere() {
    let mut broken = Vec::new();
    for page in pages() {
        for target in links(&read(&page)) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (path, anchor) =
                target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
            let file = match path {
                "" => page.clone(),
                path => page.parent().unwrap_or(Path::new("")).join(path),
            };
            let exists = run::root().join(&file).exists();
            if !exists || anchor.is_some_and(|anchor| !anchors(&read(&file)).contains(anchor)) {
                broken.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "links that lead nowhere: {broken:#?}");
}

#[test]
fn the_list_of_documents_has_every_decision_with_its_title() {
    let page = read("docs/README.md");
    for file in pages().iter().filter(|page| page.starts_with("docs/decisions")) {
        let text = read(file);
        let title = text.lines().next().and_then(|line| line.strip_prefix("# ")).expect("a title");
        let link = format!("[{title}]({})", file.strip_prefix("docs").unwrap().display());
        assert!(page.contains(&link), "docs/README.md has no {link}");
    }
}

#[test]
fn every_path_that_the_documents_name_exists() {
    const FOLDERS: [&str; 7] = ["crates/", "docs/", "examples/", "bench/", "fuzz/", "xtask/", ".ci/"];
    let mut missing = Vec::new();
    for page in pages() {
        let text = read(&page);
        for code in inline_code(&text) {
            let path = code.split(['#', ' ']).next().unwrap_or(code);
            let is_path = FOLDERS.iter().any(|folder| path.starts_with(folder));
            // Capital letters stand for a name of the reader's.
            let is_pattern = path.contains(['*', '<', '{', '…']) || path.split('/').any(is_placeholder);
            let is_generated =
                path.starts_with("fuzz/libfuzzer/corpus") || path.starts_with("fuzz/libfuzzer/artifacts");
            if is_path && !is_pattern && !is_generated && !run::root().join(path).exists() {
                missing.push(format!("{}: {path}", page.display()));
            }
        }
    }
    assert!(missing.is_empty(), "paths that do not exist: {missing:#?}");
}

fn is_placeholder(part: &str) -> bool {
    part.len() > 1 && part.chars().all(|c| c.is_ascii_uppercase() || c == '_')
}

/// Names of tests: several words with underscores between them.
fn tests_in(page: &str) -> BTreeSet<&str> {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_test =
        |name: &&str| name.split('_').count() > 3 && name.split('_').all(|it| it.chars().all(is_word));
    inline_code(page).into_iter().filter(is_test).collect()
}

#[test]
fn every_test_that_the_documents_name_exists() {
    let mut code = String::new();
    ["crates", "fuzz/tests"].iter().for_each(|folder| read_code(&run::root().join(folder), &mut code));
    // A macro makes some of them, from a name and a description.
    let exists =
        |name: &str| code.contains(&format!("fn {name}(")) || code.contains(&format!("    {name}: \""));
    for (page, at_least) in [("docs/security.md", 50), ("docs/iac-code.md", 40)] {
        let text = read(page);
        let tests = tests_in(&text);
        assert!(tests.len() > at_least, "{page}: {tests:?}");
        let missing: Vec<_> = tests.into_iter().filter(|name| !exists(name)).collect();
        assert!(missing.is_empty(), "`{page}` names tests that do not exist: {missing:#?}");
    }
}

/// The rows of all tables in a page, each with its last column.
fn last_columns(page: &str) -> Vec<(&str, &str)> {
    let lines: Vec<&str> = page.lines().collect();
    let is_row = |line: &str| line.starts_with("| ");
    let rows = lines.iter().zip(lines.iter().skip(1).chain([&""]));
    let rows = rows.filter(|(line, next)| is_row(line) && !next.starts_with("|-")).map(|(line, _)| *line);
    rows.map(|row| (row, row.trim_end_matches(['|', ' ']).rsplit('|').next().unwrap_or_default())).collect()
}

#[test]
fn every_limit_in_the_documents_has_tests_that_exist() {
    let mut code = String::new();
    read_code(&run::root().join("crates"), &mut code);
    let page = read("docs/limits.md");
    let rows = last_columns(&page);
    assert!(rows.len() > 80, "{}", rows.len());
    for (row, tests) in rows {
        let tests = tests_in(tests);
        assert!(!tests.is_empty(), "a limit without a test: {row}");
        let missing: Vec<_> =
            tests.into_iter().filter(|name| !code.contains(&format!("fn {name}("))).collect();
        assert!(missing.is_empty(), "tests that do not exist: {missing:?}: {row}");
    }
}

/// The parts of messages in the first column of the page on troubleshooting. One with backticks in it stands between two of them.
fn explained(page: &str) -> Vec<&str> {
    let text = page.lines().filter_map(|line| {
        let with_backticks = line.strip_prefix("| `` ").and_then(|rest| rest.split_once(" `` |"));
        let cell = with_backticks.or_else(|| line.strip_prefix("| `")?.split_once("` |"));
        cell.map(|(text, _)| text)
    });
    text.collect()
}

#[test]
fn every_message_that_the_page_on_troubleshooting_explains_exists() {
    let page = read("docs/troubleshooting.md");
    let mut code = String::new();
    read_code(&run::root().join("crates"), &mut code);
    // A backslash at the end of a line continues a text.
    let code: String = code.split("\\\n").map(str::trim_start).collect();
    let messages = explained(&page);
    assert!(messages.len() > 30, "{messages:?}");
    let missing: Vec<_> = messages.iter().filter(|message| !code.contains(**message)).collect();
    assert!(missing.is_empty(), "messages that do not exist: {missing:#?}");

    let errors = read("crates/attache-protocol/src/error.rs");
    let rows: Vec<Vec<&str>> = page
        .lines()
        .filter(|line| line.starts_with("| -32"))
        .map(|line| line.split('|').map(str::trim).collect())
        .collect();
    assert!(rows.len() >= 20, "{rows:?}");
    for row in rows {
        let (number, reason) = row[1].split_once(' ').unwrap();
        let (reason, status) = (reason.trim_matches('`'), row[2]);
        let is_row = |line: &str| {
            line.contains(&format!(": {number}, {status}, ")) && line.contains(&format!("\"{reason}\""))
        };
        assert!(errors.lines().any(is_row), "no error has {number}, {status} and {reason}");
    }
}

/// The messages that need no row on the page on troubleshooting. A line that begins with `#` says why those below it do not.
const PLAIN: &str = include_str!("plain_messages.txt");

/// What comes before the text of an error or of a line in the log.
const ERRORS: [&str; 3] = ["#[error(", "Failure::new(", "Failure::usage("];
const LOGS: [&str; 2] = ["tracing::error!(", "tracing::warn!("];

/// The files of the crates, without their tests.
fn sources(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" {
            sources(&path, found);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            let text = fs::read_to_string(&path).unwrap();
            found.push(text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default().to_owned());
        }
    }
}

/// The string literals up to the parenthesis that closes the one before `text`.
fn literals(text: &str) -> Vec<String> {
    let (mut found, mut depth, mut chars) = (Vec::new(), 1, text.chars());
    while let Some(c) = chars.next() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            '"' => {
                let mut literal = String::new();
                while let Some(c) = chars.next().filter(|c| *c != '"') {
                    match c {
                        '\\' => match chars.next() {
                            // The text goes on in the next line.
                            Some('\n') => {
                                let rest = chars.as_str().trim_start();
                                chars = rest.chars();
                            }
                            Some(escaped) => literal.push(escaped),
                            None => {}
                        },
                        c => literal.push(c),
                    }
                }
                found.push(literal);
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    found
}

/// The text of an error, if it stands there itself.
fn error_text(rest: &str) -> Option<String> {
    let rest = rest.trim_start();
    let rest = rest.strip_prefix("format!(").unwrap_or(rest).trim_start();
    rest.starts_with('"').then(|| literals(rest).into_iter().next()).flatten()
}

/// The text of a line in the log. It is longer than the names of its fields.
fn log_text(rest: &str) -> Option<String> {
    let is_text = |text: &String| !text.starts_with("attache::");
    literals(rest).into_iter().filter(is_text).max_by_key(String::len)
}

/// Whether a text has words of its own, besides its placeholders.
fn has_words(text: &str) -> bool {
    let outside = text.split('{').flat_map(|part| part.split('}').next_back());
    outside.flat_map(str::chars).any(char::is_alphabetic)
}

/// The texts of errors, and of errors and warnings in the log.
fn messages() -> BTreeSet<String> {
    let mut files = Vec::new();
    for entry in fs::read_dir(run::root().join("crates")).unwrap() {
        let source = entry.unwrap().path().join("src");
        sources(&source, &mut files);
    }
    let mut found = BTreeSet::new();
    for file in &files {
        let after = |marker: &str| file.split(marker).skip(1).map(str::to_owned).collect::<Vec<_>>();
        found.extend(ERRORS.iter().flat_map(|marker| after(marker)).filter_map(|rest| error_text(&rest)));
        found.extend(LOGS.iter().flat_map(|marker| after(marker)).filter_map(|rest| log_text(&rest)));
    }
    found.retain(|text| has_words(text));
    found
}

#[test]
fn every_message_has_a_row_on_the_page_on_troubleshooting_or_explains_itself() {
    let page = read("docs/troubleshooting.md");
    let keys = explained(&page);
    let plain: BTreeSet<_> =
        PLAIN.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    let messages = messages();
    assert!(messages.len() > 450, "{}", messages.len());
    let has_row = |message: &str| keys.iter().any(|key| message.contains(key));
    let missing: Vec<_> = messages
        .iter()
        .filter(|message| !has_row(message) && !plain.contains(message.replace('\n', " ").as_str()))
        .collect();
    assert!(missing.is_empty(), "messages that are not in docs/troubleshooting.md: {missing:#?}");
    let messages: BTreeSet<_> = messages.iter().map(|message| message.replace('\n', " ")).collect();
    let stale: Vec<_> = plain.iter().filter(|line| !messages.contains(**line) || has_row(line)).collect();
    assert!(stale.is_empty(), "lines that plain_messages.txt does not need: {stale:#?}");
}

/// The commands of the reference, each with its flags. Those of all commands that talk to an agent are in a section of their own.
fn reference() -> BTreeMap<String, BTreeSet<String>> {
    let page = read("docs/reference/command.md");
    let mut commands: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut current = String::new();
    for line in page.lines() {
        if line.starts_with('#') {
            current = line.trim_start_matches('#').trim().to_owned();
            commands.entry(current.clone()).or_default();
        } else if let Some(rest) = line.strip_prefix("| `") {
            // The short and the long form of an option are both in the first column.
            let column = rest.split(" | ").next().unwrap_or_default();
            let flags = column.split([' ', ',', '[', '=', '`']).filter(|word| word.starts_with('-'));
            commands.entry(current.clone()).or_default().extend(flags.map(str::to_owned));
        }
    }
    commands
}

/// The arguments of each call of `attache` in a page.
fn calls(page: &str) -> Vec<Vec<&str>> {
    code_lines(page).into_iter().chain(inline_code(page)).filter_map(arguments).collect()
}

/// The arguments of a call of `attache`, up to a quoted one, a comment or another command.
fn arguments(line: &str) -> Option<Vec<&str>> {
    let line = line.trim().trim_start_matches("$ ");
    let rest = line.strip_prefix("attache ").or_else(|| line.strip_prefix("cargo run --release -- "))?;
    let own = rest.split(['|', '#', '\'', '"', '>', '\\']).next().unwrap_or_default();
    Some(own.split_whitespace().collect())
}

#[test]
fn every_command_and_flag_in_the_documents_exists() {
    let reference = reference();
    let everywhere = &reference["Connection"];
    let mut unknown = Vec::new();
    for page in pages() {
        let text = read(&page);
        for call in calls(&text) {
            let mut command = "attache".to_owned();
            let mut words = call.iter().peekable();
            while let Some(word) = words.next_if(|word| reference.contains_key(&format!("{command} {word}")))
            {
                command = format!("{command} {word}");
            }
            if command == "attache" {
                let word = words.peek().copied().copied().unwrap_or_default();
                // A list of alternatives such as `card|send`, an option such as `--version`, or an ellipsis.
                let is_command =
                    word.chars().all(|c| c.is_ascii_lowercase() || c == '-') && !word.starts_with('-');
                if is_command && !word.is_empty() && word != "help" {
                    unknown.push(format!("{}: attache {word}", page.display()));
                }
                continue;
            }
            for flag in call.iter().filter(|word| word.starts_with("--") && word.len() > 2) {
                let flag = flag.split(['=', '[', ',', ')', '`']).next().unwrap_or(flag);
                let known =
                    reference.iter().any(|(name, flags)| name.starts_with(&command) && flags.contains(flag));
                if !known && !everywhere.contains(flag) && !matches!(flag, "--help" | "--version") {
                    unknown.push(format!("{}: {command} {flag}", page.display()));
                }
            }
        }
    }
    assert!(unknown.is_empty(), "commands or flags that do not exist: {unknown:#?}");
}

/// The dependencies of every crate on others of the workspace, without those that only tests have.
fn dependencies() -> BTreeMap<String, Vec<String>> {
    let output = run::cargo(&["metadata", "--no-deps", "--format-version", "1"]).output().unwrap();
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let crates = packages.iter().filter(|package| text(&package["manifest_path"]).contains("/crates/"));
    crates
        .map(|package| {
            let all = package["dependencies"].as_array().unwrap().iter();
            let own = all.filter(|dependency| dependency["kind"].is_null() && dependency["path"].is_string());
            (text(&package["name"]), own.map(|dependency| text(&dependency["name"])).collect())
        })
        .collect()
}

#[test]
fn crates_depend_only_on_crates_above_them_in_contributing() {
    let page = read("CONTRIBUTING.md");
    let listed: Vec<&str> =
        page.lines().filter_map(|line| line.strip_prefix("| `crates/")?.split('`').next()).collect();
    let position = |name: &str| listed.iter().position(|listed| *listed == name);
    for (name, dependencies) in dependencies() {
        let own = position(&name).unwrap_or_else(|| panic!("CONTRIBUTING.md does not list `crates/{name}`"));
        for dependency in dependencies {
            let above = position(&dependency).is_some_and(|other| other < own);
            assert!(above, "`{name}` uses `{dependency}`, which CONTRIBUTING.md does not list above it");
        }
    }
}
