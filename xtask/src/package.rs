//! `cargo xtask package`: a Debian package with the command, its man pages, completions and a systemd unit.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::run;

/// Build the Debian package; needs `cargo install cargo-deb`
#[derive(Debug, Args)]
pub(crate) struct Package {
    /// Use the program that was built with this profile
    #[arg(long, default_value = "dist")]
    profile: String,
}

/// The files of the package that the command generates, below `target/package`.
const COMPLETIONS: [(&str, &str); 3] =
    [("bash", "attache.bash"), ("zsh", "_attache"), ("fish", "attache.fish")];

impl Package {
    pub(crate) fn run(self) -> Result<()> {
        let mut version = run::cargo(&["deb", "--version"]);
        version.stdout(Stdio::null()).stderr(Stdio::null());
        if !version.status().is_ok_and(|status| status.success()) {
            bail!("`cargo deb` is not installed: run `cargo install cargo-deb`");
        }
        let profile = self.profile.as_str();
        run::check(run::cargo(&["build", "--package", "attache", "--bin", "attache", "--profile", profile]))?;
        let target = run::target_directory()?;
        let folder = if profile == "dev" { "debug" } else { profile };
        generate(&target.join(folder).join("attache"), &run::root().join("target/package"))?;
        let arguments = ["deb", "--package", "attache", "--no-build", "--profile", profile];
        run::check(run::cargo(&arguments))
    }
}

/// Writes the man pages and the completions of the command.
fn generate(program: &Path, into: &Path) -> Result<()> {
    let man = into.join("man");
    if man.exists() {
        fs::remove_dir_all(&man).with_context(|| format!("cannot remove `{}`", man.display()))?;
    }
    fs::create_dir_all(&man).with_context(|| format!("cannot make `{}`", man.display()))?;
    let mut pages = Command::new(program);
    pages.arg("man").arg(&man);
    run::check(pages)?;
    for (shell, file) in COMPLETIONS {
        let output = Command::new(program).args(["completions", shell]).output();
        let output = output.with_context(|| format!("cannot run `{}`", program.display()))?;
        if !output.status.success() || output.stdout.is_empty() {
            bail!("`attache completions {shell}` failed");
        }
        fs::write(into.join(file), output.stdout).with_context(|| format!("cannot write `{file}`"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use crate::run;

    /// The values of `const` paths in the package's manifest: the first member of each asset.
    fn assets() -> Vec<String> {
        let manifest = std::fs::read_to_string(run::root().join("crates/attache/Cargo.toml")).unwrap();
        let (_, metadata) = manifest.split_once("[package.metadata.deb]").expect("there is a Debian package");
        let lines = metadata.lines().filter_map(|line| line.trim().strip_prefix("[\""));
        lines.map(|line| line.split('"').next().unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn every_file_of_the_debian_package_exists_or_is_generated() {
        let assets = assets();
        assert!(assets.len() > 5, "{assets:?}");
        for asset in assets {
            let is_generated = asset.starts_with("target/") || asset.starts_with("../../target/package/");
            let path = run::root().join("crates/attache").join(&asset);
            assert!(is_generated || path.exists(), "`{asset}` does not exist");
        }
    }

    #[test]
    fn the_systemd_unit_is_valid() {
        let unit = std::fs::read_to_string(run::root().join("deploy/attache.service")).unwrap();
        // The command and its man page are not installed where the tests run.
        let unit =
            unit.replace("/usr/bin/attache", "/bin/true").replace("Documentation=man:attache(1)\n", "");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("attache.service");
        std::fs::write(&file, unit).unwrap();
        let drop_in = folder.path().join("attache.service.d");
        std::fs::create_dir(&drop_in).unwrap();
        std::fs::copy(run::root().join("deploy/node.conf"), drop_in.join("node.conf")).unwrap();
        let Ok(checked) = Command::new("systemd-analyze").arg("verify").arg(&file).output() else {
            // Without systemd there is nothing to check with.
            return;
        };
        let problems = String::from_utf8_lossy(&checked.stderr);
        assert!(checked.status.success() && problems.is_empty(), "{problems}");
    }

    #[test]
    fn the_drop_in_for_node_changes_what_the_unit_forbids() {
        let deploy = run::root().join("deploy");
        let read = |name: &str| std::fs::read_to_string(deploy.join(name)).unwrap();
        assert!(read("attache.service").lines().any(|line| line == "MemoryDenyWriteExecute=yes"));
        assert!(read("node.conf").lines().any(|line| line == "MemoryDenyWriteExecute=no"));
    }

    /// What a registry asks for, and what `cargo publish` refuses to be without.
    #[test]
    fn every_crate_can_be_published() {
        let mut crates = 0;
        for entry in std::fs::read_dir(run::root().join("crates")).unwrap() {
            let path = entry.unwrap().path().join("Cargo.toml");
            let manifest = std::fs::read_to_string(&path).unwrap();
            for key in ["description = ", "license.", "readme.", "keywords.", "categories.", "authors."] {
                assert!(manifest.lines().any(|line| line.starts_with(key)), "{}: `{key}`", path.display());
            }
            crates += 1;
        }
        assert!(crates > 10, "{crates}");
        let mut metadata = Command::new(env!("CARGO"));
        metadata
            .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
            .current_dir(run::root());
        let metadata = metadata.output().unwrap();
        let metadata: serde_json::Value = serde_json::from_slice(&metadata.stdout).unwrap();
        for package in metadata["packages"].as_array().unwrap() {
            let is_published = package["publish"].is_null();
            for dependency in package["dependencies"].as_array().unwrap() {
                let is_own = dependency["path"].is_string();
                // Cargo leaves out what only tests need, unless it has a version.
                if is_published && is_own && dependency["kind"] != "dev" {
                    assert_eq!(dependency["req"], "^0.1.0", "{}: {}", package["name"], dependency["name"]);
                }
            }
        }
    }

    #[test]
    fn the_image_is_built_from_files_and_commands_that_exist() {
        let image = std::fs::read_to_string(run::root().join("deploy/Dockerfile")).unwrap();
        let profiles = std::fs::read_to_string(run::root().join("Cargo.toml")).unwrap();
        assert!(image.contains("--profile dist") && profiles.contains("[profile.dist]"));
        assert!(image.contains("\"health\"]"), "the health check is a command");
        let version = profiles.lines().find_map(|line| line.strip_prefix("rust-version = \"")).unwrap();
        let version = version.trim_end_matches('"');
        assert!(image.contains(&format!("FROM rust:{version}-")), "the image builds with Rust {version}");
    }
}
