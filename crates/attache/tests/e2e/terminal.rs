//! The command on a terminal of 80 columns and 24 lines, with a person who types.

use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZero;
use std::process::{Child, ExitStatus};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// How long anything may take. Only what is broken reaches it.
const PATIENCE: Duration = Duration::from_secs(30);

/// A program on a terminal.
pub(crate) struct Terminal {
    /// The side of the person.
    person: File,
    program: Child,
    printing: mpsc::Receiver<Vec<u8>>,
    screen: vt100::Parser,
}

impl Terminal {
    /// Starts a command.
    pub(crate) fn start(command: tokio::process::Command) -> Self {
        let person = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("there are terminals");
        grantpt(&person).and_then(|()| unlockpt(&person)).expect("it can be used");
        let name = ptsname(&person, Vec::new()).expect("it has a name");
        let theirs = File::options().read(true).write(true).open(name.to_string_lossy().as_ref());
        let theirs = theirs.expect("it can be opened");
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&theirs, size).expect("it has a size");
        let mut command = command.into_std();
        let end = || theirs.try_clone().expect("it has several ends");
        command.env("TERM", "xterm-256color").stdin(end()).stdout(end()).stderr(end());
        let program = command.spawn().expect("the command starts");
        // The terminal is closed when its last writer is, and the command holds its ends open.
        drop((command, theirs));
        let person = File::from(person);
        let (print, printing) = mpsc::channel();
        let mut reader = person.try_clone().expect("it has several ends");
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                if print.send(buffer[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        let size = |number: u16| NonZero::new(number).expect("it is not 0");
        Self { person, program, printing, screen: vt100::Parser::new(size(24), size(80), 0) }
    }

    /// Waits until the screen is as it should be, and gives it.
    pub(crate) fn wait_until(&mut self, what: &str, is_so: impl Fn(&vt100::Screen) -> bool) -> String {
        let end = Instant::now() + PATIENCE;
        while !is_so(self.screen.screen()) {
            match self.printing.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(more) => self.screen.process(&more),
                Err(_) => panic!("waited in vain for {what}:\n{}", self.screen.screen().contents()),
            }
        }
        self.screen.screen().contents()
    }

    /// Waits for this text before the cursor, such as a prompt.
    pub(crate) fn wait_for_prompt(&mut self, prompt: &str) -> String {
        self.wait_until(prompt, |screen| {
            let (row, column) = screen.cursor_position();
            screen.contents_between(row, 0, row, column) == prompt
        })
    }

    /// Waits for this text anywhere.
    pub(crate) fn wait_for(&mut self, text: &str) -> String {
        self.wait_until(text, |screen| screen.contents().contains(text))
    }

    pub(crate) fn type_in(&mut self, text: &str) {
        self.person.write_all(text.as_bytes()).expect("it can be typed");
    }

    /// The last cell with this character.
    pub(crate) fn cell(&self, of: &str) -> vt100::Cell {
        let screen = self.screen.screen();
        let mut cells = (0..24).rev().flat_map(|row| (0..80).rev().map(move |column| (row, column)));
        let cell =
            cells.find_map(|(row, column)| screen.cell(row, column).filter(|cell| cell.contents() == of));
        cell.unwrap_or_else(|| panic!("there is no `{of}`:\n{}", screen.contents())).clone()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.program.id()
    }

    /// Waits until the program ends.
    pub(crate) fn end(mut self) -> (ExitStatus, String) {
        while let Ok(more) = self.printing.recv_timeout(PATIENCE) {
            self.screen.process(&more);
        }
        (self.program.wait().expect("it ends"), self.screen.screen().contents())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // There is nothing to be done about a program that has ended by itself.
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}
