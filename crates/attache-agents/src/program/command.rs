//! The command of a program that starts in another directory than the server.

use std::path::{Path, absolute};

/// The same command with absolute paths, where it names files of the server's directory: the program itself, such as `./agent.py`, and
/// arguments such as the script of an interpreter.
pub(super) fn of_this_directory(command: Vec<String>) -> Vec<String> {
    let words = command.into_iter().enumerate();
    words.map(|(number, word)| if number == 0 { program(word) } else { argument(word) }).collect()
}

/// A name without a separator is found in `PATH`, whatever the directory is.
fn program(name: String) -> String {
    if Path::new(&name).components().count() > 1 { absolute_path(name) } else { name }
}

fn argument(word: String) -> String {
    if Path::new(&word).is_file() { absolute_path(word) } else { word }
}

fn absolute_path(name: String) -> String {
    let path = absolute(&name).ok().and_then(|path| path.into_os_string().into_string().ok());
    path.unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_are_absolute_and_other_words_stay() {
        let here = std::env::current_dir().unwrap();
        let command = |words: &[&str]| of_this_directory(words.iter().map(|&word| word.to_owned()).collect());
        let file = here.join("Cargo.toml").display().to_string();
        let given = ["python3", "-u", "Cargo.toml", "src", "missing.py", "--file=Cargo.toml"];
        assert_eq!(command(&given), ["python3", "-u", &file, "src", "missing.py", "--file=Cargo.toml"]);
        assert_eq!(command(&["./agent.py"]), [here.join("agent.py").display().to_string()]);
        assert_eq!(command(&["/bin/sh"]), ["/bin/sh"]);
        assert!(command(&[]).is_empty());
    }
}
