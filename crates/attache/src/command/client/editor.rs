//! Reads what the user types: with line editing on a terminal, and as plain lines elsewhere.

use std::borrow::Cow;
use std::io::{BufRead, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::mpsc as std_mpsc;

use anstream::ColorChoice;
use attache_files::permissions;
use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{
    Behavior, Cmd, ColorMode, CompletionType, Config, Context, Editor, Helper, KeyCode, KeyEvent, Modifiers,
};
use tokio::sync::mpsc;

use super::show;
use crate::command::Failure;

/// How many messages are remembered.
const REMEMBERED: usize = 1000;

/// What was typed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Typed {
    Text(String),
    /// Ctrl-C was pressed.
    Interrupted,
    /// Ctrl-D was pressed, or there are no more lines.
    End,
}

/// Where lines come from. A thread reads them; it ends with the process.
pub(super) struct Input {
    /// Asks an editor for the next line. Plain lines need not be asked for.
    prompts: Option<std_mpsc::Sender<String>>,
    lines: mpsc::Receiver<Result<Typed, String>>,
}

impl Input {
    /// The lines of standard input.
    pub(super) fn plain() -> Self {
        let (sender, lines) = mpsc::channel(1);
        std::thread::spawn(move || {
            for line in std::io::stdin().lock().lines() {
                let line = line.map(Typed::Text).map_err(|error| error.to_string());
                if sender.blocking_send(line).is_err() {
                    break;
                }
            }
        });
        Self { prompts: None, lines }
    }

    /// Lines that are edited on a terminal. Words that begin with `/` are completed to `commands`.
    pub(super) fn edited(
        commands: &'static [&'static str],
        history: Option<PathBuf>,
    ) -> Result<Self, Failure> {
        let mut editor = LineEditor::new(commands, history)
            .map_err(|error| Failure::new(format!("the terminal cannot be used: {error}")))?;
        let (sender, lines) = mpsc::channel(1);
        let (prompts, asked) = std_mpsc::channel::<String>();
        std::thread::spawn(move || {
            for prompt in asked {
                if sender.blocking_send(editor.read(&prompt)).is_err() {
                    break;
                }
            }
        });
        Ok(Self { prompts: Some(prompts), lines })
    }

    /// The next line.
    pub(super) async fn next(&mut self, prompt: &str) -> Result<Typed, Failure> {
        if let Some(prompts) = &self.prompts {
            // The thread that reads ends with the process, so there is a receiver.
            let _ = prompts.send(prompt.to_owned());
        }
        match self.lines.recv().await {
            Some(line) => {
                line.map_err(|error| Failure::new(format!("standard input cannot be read: {error}")))
            }
            None => Ok(Typed::End),
        }
    }
}

/// The file that remembers what was typed, for arrow keys and Ctrl-R.
pub(super) fn history_file() -> Option<PathBuf> {
    let folder = dirs::state_dir().or_else(dirs::data_local_dir)?;
    Some(folder.join("attache").join("chat-history"))
}

struct LineEditor {
    editor: Editor<Help, DefaultHistory>,
    history: Option<PathBuf>,
}

impl LineEditor {
    fn new(commands: &'static [&'static str], history: Option<PathBuf>) -> rustyline::Result<Self> {
        let has_colours = anstream::AutoStream::choice(&std::io::stderr()) != ColorChoice::Never;
        // The prompt must not end up in a file that the answers are written to.
        let behavior = if std::io::stdout().is_terminal() { Behavior::Stdio } else { Behavior::PreferTerm };
        let config = Config::builder()
            .max_history_size(REMEMBERED)?
            .history_ignore_dups(true)?
            .history_ignore_space(true)
            .completion_type(CompletionType::List)
            .color_mode(if has_colours { ColorMode::Enabled } else { ColorMode::Disabled })
            .behavior(behavior)
            .build();
        let mut editor = Editor::with_config(config)?;
        editor.set_helper(Some(Help { commands, paths: FilenameCompleter::new() }));
        editor.bind_sequence(KeyEvent(KeyCode::Enter, Modifiers::ALT), Cmd::Newline);
        let history = history.filter(|path| is_private(path));
        if let Some(path) = &history {
            // A file that cannot be read is an empty one.
            let _ = editor.load_history(path);
        }
        Ok(Self { editor, history })
    }

    fn read(&mut self, prompt: &str) -> Result<Typed, String> {
        match self.editor.readline(prompt) {
            Ok(text) => {
                if let (Ok(true), Some(path)) = (self.editor.add_history_entry(&text), &self.history) {
                    // The chat goes on without a history.
                    let _ = self.editor.append_history(path);
                }
                Ok(Typed::Text(joined(&text)))
            }
            Err(ReadlineError::Interrupted) => Ok(Typed::Interrupted),
            Err(ReadlineError::Eof) => Ok(Typed::End),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Makes sure that the file exists and that only its owner can read it.
fn is_private(path: &Path) -> bool {
    let made = || -> std::io::Result<()> {
        if let Some(folder) = path.parent() {
            permissions::create_owner_only_folder(folder)?;
        }
        let mut options = std::fs::File::options();
        let file = permissions::owner_only_file(options.append(true).create(true)).open(path)?;
        if let Some(mode) = permissions::shared_mode(&file.metadata()?) {
            permissions::make_private(path, mode)?;
        }
        Ok(())
    };
    made().is_ok()
}

/// The text without the `\` at the ends of lines that were continued.
fn joined(text: &str) -> String {
    text.replace("\\\n", "\n")
}

/// Completes commands and paths, and continues lines that end with `\`.
struct Help {
    commands: &'static [&'static str],
    paths: FilenameCompleter,
}

impl Completer for Help {
    type Candidate = Pair;

    fn complete(&self, line: &str, pos: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let typed = &line[..pos];
        if typed.starts_with("/file ") {
            return self.paths.complete_path(line, pos);
        }
        let fitting =
            self.commands.iter().filter(|command| typed.starts_with('/') && command.starts_with(typed));
        let pair =
            |command: &&str| Pair { display: (*command).to_owned(), replacement: format!("{command} ") };
        Ok((0, fitting.map(pair).collect()))
    }
}

impl Hinter for Help {
    type Hint = String;
}

impl Highlighter for Help {
    fn highlight_prompt<'b, 's: 'b, 'p: 'b>(&'s self, prompt: &'p str, _: bool) -> Cow<'b, str> {
        Cow::Owned(show::bold(prompt))
    }
}

impl Validator for Help {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let goes_on = context.input().ends_with('\\') && !context.input().starts_with("/file ");
        Ok(if goes_on { ValidationResult::Incomplete } else { ValidationResult::Valid(None) })
    }
}

impl Helper for Help {}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(line: &str) -> Vec<String> {
        let help = Help { commands: &["/file", "/new"], paths: FilenameCompleter::new() };
        let history = DefaultHistory::new();
        let (_, pairs) = help.complete(line, line.len(), &Context::new(&history)).unwrap();
        pairs.into_iter().map(|pair| pair.replacement).collect()
    }

    #[test]
    fn commands_and_paths_are_completed_and_nothing_else_is() {
        assert_eq!(completed("/"), ["/file ", "/new "]);
        assert_eq!(completed("/n"), ["/new "]);
        assert_eq!(completed("n"), Vec::<String>::new());
        assert_eq!(completed("say /n"), Vec::<String>::new());
        let manifest = concat!("/file ", env!("CARGO_MANIFEST_DIR"), "/Cargo.t");
        assert!(completed(manifest).first().is_some_and(|path| path.ends_with("Cargo.toml")));
    }

    #[test]
    fn a_continued_line_loses_its_backslash() {
        assert_eq!(joined("one \\\ntwo\nthree \\"), "one \ntwo\nthree \\");
    }

    #[cfg(unix)]
    #[test]
    fn the_history_is_private() {
        use std::os::unix::fs::PermissionsExt;

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("below/chat-history");
        assert!(is_private(&path));
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(is_private(&path));
        assert_eq!(mode(&path), 0o600);
    }
}
