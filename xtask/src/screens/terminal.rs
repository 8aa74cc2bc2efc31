//! A terminal that a program writes to and a test types into.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::{SIZE, screen};

/// How long anything may take. Only what is broken reaches it.
const PATIENCE: Duration = Duration::from_secs(30);

/// A program on a terminal.
pub(super) struct Terminal {
    /// The side of the person.
    person: File,
    program: Child,
    printing: mpsc::Receiver<Vec<u8>>,
    printed: Vec<u8>,
}

impl Terminal {
    pub(super) fn start(mut command: Command) -> Result<Self> {
        let (person, theirs) = pair().context("there is no terminal to be had")?;
        command.stdin(theirs.try_clone()?).stdout(theirs.try_clone()?).stderr(theirs);
        let program = command.spawn().with_context(|| format!("cannot run {command:?}"))?;
        // It ends when its last writer is closed, and the command holds its end open.
        drop(command);
        let (print, printing) = mpsc::channel();
        let mut reader = person.try_clone()?;
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // That the other side is closed is an error on some systems and an end on others.
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                if print.send(buffer[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        Ok(Self { person, program, printing, printed: Vec::new() })
    }

    /// Waits until the line with the cursor is a prompt.
    pub(super) fn wait_for(&mut self, prompt: &str) -> Result<()> {
        while self.line() != prompt {
            let more = self.printing.recv_timeout(PATIENCE);
            self.printed.extend(more.with_context(|| format!("waited in vain for `{prompt}`"))?);
        }
        Ok(())
    }

    /// What is on the line with the cursor, up to that.
    fn line(&self) -> String {
        let screen = screen(&String::from_utf8_lossy(&self.printed));
        let (row, column) = screen.screen().cursor_position();
        screen.screen().contents_between(row, 0, row, column)
    }

    pub(super) fn type_in(&mut self, text: &str) -> Result<()> {
        // What is typed is echoed, and must not be taken for the next prompt before that.
        let before = self.printed.len();
        self.person.write_all(text.as_bytes()).context("cannot type")?;
        while self.printed.len() == before {
            self.printed.extend(self.printing.recv_timeout(PATIENCE).context("nothing is echoed")?);
        }
        Ok(())
    }

    /// Waits until the program ends, and gives everything that was printed.
    pub(super) fn finish(mut self) -> Result<String> {
        while let Ok(more) = self.printing.recv_timeout(PATIENCE) {
            self.printed.extend(more);
        }
        // A program that fails shows why, which is as good a picture as any.
        self.program.wait().context("cannot wait for the program")?;
        String::from_utf8(self.printed).context("not everything that it prints is text")
    }
}

/// The two ends of a new terminal: that of a person, and that of a program.
fn pair() -> std::io::Result<(File, OwnedFd)> {
    let person = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
    grantpt(&person)?;
    unlockpt(&person)?;
    let name = ptsname(&person, Vec::new())?;
    let program = File::options().read(true).write(true).open(name.to_string_lossy().as_ref())?;
    let (ws_col, ws_row) = SIZE;
    tcsetwinsize(&program, Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 })?;
    Ok((person.into(), program.into()))
}
