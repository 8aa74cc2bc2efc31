//! The command that starts a program.

use std::ffi::{OsStr, OsString};

use tokio::process::Command;

/// A command for a program that gets these environment variables and no others.
///
/// A program without a directory in its name is looked up here, in the variable `PATH` that it gets. The standard library would copy this
/// process for that, which takes longer the more memory this process has.
pub fn command(program: &OsStr, variables: impl IntoIterator<Item = (OsString, OsString)>) -> Command {
    let variables: Vec<_> = variables.into_iter().collect();
    let found = find(program, &variables);
    let mut command = Command::new(found.as_deref().unwrap_or(program));
    // Programs with several names are told which one was meant.
    #[cfg(unix)]
    command.arg0(program);
    command.env_clear().envs(variables);
    command
}

/// The path of a program in one of the directories of `PATH`. `None` if the system has to look it up: its name has a directory, it is not
/// found, or a directory is relative, so that it depends on where the program is started.
#[cfg(unix)]
fn find(program: &OsStr, variables: &[(OsString, OsString)]) -> Option<OsString> {
    use std::os::unix::ffi::OsStrExt;

    use rustix::fs::{Access, access};

    if program.is_empty() || program.as_bytes().contains(&b'/') {
        return None;
    }
    // Later variables replace earlier ones.
    let (_, path) = variables.iter().rev().find(|(name, _)| name == "PATH")?;
    for directory in std::env::split_paths(path) {
        if directory.is_relative() {
            return None;
        }
        let candidate = directory.join(program);
        if access(&candidate, Access::EXEC_OK).is_ok() && candidate.is_file() {
            return Some(candidate.into());
        }
    }
    None
}

#[cfg(not(unix))]
fn find(_: &OsStr, _: &[(OsString, OsString)]) -> Option<OsString> {
    None
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn variables(path: &str) -> Vec<(OsString, OsString)> {
        vec![("PATH".into(), "/nowhere".into()), ("PATH".into(), path.into())]
    }

    #[test]
    fn a_program_is_looked_up_in_the_path_that_it_gets() {
        let folder = tempfile::tempdir().unwrap();
        for (name, mode) in [("no/tool", 0o600), ("yes/tool", 0o700)] {
            let path = folder.path().join(name);
            std::fs::create_dir(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "").unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        }
        std::fs::create_dir_all(folder.path().join("directory/tool")).unwrap();
        let root = folder.path().display();
        let path = format!("{root}/directory:{root}/no:{root}/yes");
        let found = |program: &str, path: &str| find(program.as_ref(), &variables(path));
        // The user `root` may execute nothing that has no permission to be executed, either.
        assert_eq!(found("tool", &path), Some(format!("{root}/yes/tool").into()));
        for (program, path) in
            [("other", &*path), ("./tool", &path), ("", &path), ("tool", "."), ("tool", "")]
        {
            assert_eq!(found(program, path), None, "{program} in {path}");
        }
    }

    #[tokio::test]
    async fn a_program_knows_the_name_by_which_it_was_called_and_its_variables_only() {
        let mut command =
            command("sh".as_ref(), [("PATH".into(), "/bin:/usr/bin".into()), ("A".into(), "b".into())]);
        let output = command.args(["-c", "echo \"$0 $A $HOME\""]).output().await.unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim_end(), "sh b");
    }
}
