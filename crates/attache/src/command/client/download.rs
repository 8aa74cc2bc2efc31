//! `attache task download`: the files that a task has produced.
//!
//! A file is written under another name until it is complete and its hash is right. A download that was interrupted goes on where it ended.
//! Names come from the agent, so only their last component counts, and nothing is written outside of the folder.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use attache::client::{ClientError, DownloadedPart};
use attache::core::{ContentHash, safe_file_name};
use attache::protocol::{Artifact, Content, GetTaskRequest, Part, Task};
use aws_lc_rs::digest;
use clap::Args;
use serde_json::{Value, json};

use super::connect::{Agent, AgentArgs};
use super::show::line;
use crate::command::bar::{Bar, megabytes};
use crate::command::{Failure, Output};

/// How often a broken download goes on by itself, and the pause before the first time.
const ATTEMPTS: u32 = 6;
const PAUSE: Duration = Duration::from_millis(250);

/// The arguments of `attache task download`.
#[derive(Debug, Args)]
pub(crate) struct Download {
    /// The task
    #[arg(value_name = "TASK", index = 2)]
    task: String,

    /// The artifact, by its id or name; all of them, if this is not given
    #[arg(value_name = "ARTIFACT", index = 3)]
    artifact: Option<String>,

    /// The folder to write to, or the file, if there is one only; the working directory, if this is not given
    #[arg(long, short, value_name = "PATH")]
    output: Option<PathBuf>,

    #[command(flatten)]
    form: Output,

    #[command(flatten)]
    target: AgentArgs,
}

/// A file to write.
struct Wanted<'a> {
    artifact: &'a Artifact,
    part: &'a Part,
    /// Its name, which is safe.
    name: String,
}

/// A file that was written.
struct Written {
    path: PathBuf,
    bytes: u64,
    hash: ContentHash,
    /// Where an earlier download had ended.
    resumed_at: u64,
}

impl Download {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let Self { target, task, artifact, output, form } = self;
        let agent = target.connect().await?;
        // The history can be much larger than the artifacts, and is not needed.
        let query = GetTaskRequest { id: task.into(), history_length: Some(0), ..GetTaskRequest::default() };
        let task = agent.client.get_with(query).await.map_err(|error| agent.failed(&error))?;
        let wanted = wanted(&task, artifact.as_deref())?;
        let (folder, only) = places(output, wanted.len())?;
        let mut files = Vec::new();
        for wanted in &wanted {
            let path = only.clone().unwrap_or_else(|| folder.join(&wanted.name));
            if fs::symlink_metadata(&path).is_ok() {
                return Err(Failure::new(format!("`{}` exists already", path.display()))
                    .hint("name another place with `--output PATH`"));
            }
            let written = match &wanted.part.content {
                Content::Url(url) => match local(&agent, &task, url, wanted.part) {
                    ContentSource::Served(url) => fetch(&agent, &url, wanted.part, &path, &form).await?,
                    ContentSource::File(file, hash) => copy(url, &file, hash, &path)?,
                },
                Content::Raw(bytes) => write(&path, bytes)?,
                Content::Text(text) => write(&path, text.as_bytes())?,
                Content::Data(data) => write(&path, data.as_str().as_bytes())?,
            };
            files.push((wanted, written));
        }
        form.print(
            || json!({ "task": task.id, "files": files.iter().map(file_json).collect::<Vec<_>>() }),
            |out| {
                for (_, written) in &files {
                    writeln!(out, "{} ({})", written.path.display(), megabytes(written.bytes))?;
                }
                Ok(())
            },
        )
    }
}

/// The folder to write to, and the path of the file if it was named.
fn places(output: Option<PathBuf>, count: usize) -> Result<(PathBuf, Option<PathBuf>), Failure> {
    let Some(output) = output else { return Ok((PathBuf::from("."), None)) };
    let is_folder = output.is_dir() || output.to_string_lossy().ends_with(std::path::MAIN_SEPARATOR);
    if !is_folder && count == 1 {
        return Ok((PathBuf::new(), Some(output)));
    }
    fs::create_dir_all(&output).map_err(|error| {
        Failure::new(format!("the folder `{}` cannot be made: {error}", output.display()))
    })?;
    Ok((output, None))
}

/// Where the content of a part is.
enum ContentSource {
    /// At an address.
    Served(String),
    /// In a file of this machine, with this hash.
    File(PathBuf, ContentHash),
}

/// Finds the content of a part. Servers for clients of the same machine give `file:` URLs.
///
/// Their content is read over HTTP too, where it is there. An agent that is reached in another way, or a server of another kind, has the file
/// alone. It is read only if the agent says its hash, so that no agent decides which file of the user is copied without knowing the content.
fn local(agent: &Agent, task: &Task, url: &str, part: &Part) -> ContentSource {
    if let Some(served) = agent.client.address_of_file(&task.id, url) {
        return ContentSource::Served(served);
    }
    let is_file = |url: &url::Url| url.scheme() == "file";
    let file = url::Url::parse(url).ok().filter(is_file).and_then(|url| url.to_file_path().ok());
    match (file, Expected::of(part).hash) {
        (Some(file), Some(hash)) => ContentSource::File(file, hash),
        (Some(_) | None, _) => ContentSource::Served(url.to_owned()),
    }
}

/// Copies a file of this machine that has the content of a part.
fn copy(url: &str, file: &Path, expected: ContentHash, path: &Path) -> Result<Written, Failure> {
    let unreadable = |error: io::Error| {
        Failure::new(format!("`{}` cannot be read on this machine: {error}", line(url)))
            .hint("the agent gives the paths of its own machine: ask its operator for `artifacts.urls: http`")
    };
    let wrong = || {
        Failure::new(format!("the content at `{}` is not what the agent says", line(url)))
            .hint("nothing was kept; ask the operator of the agent")
    };
    let partial = partial_path(path, None);
    // A pipe or a device could be endless.
    if !fs::metadata(file).map_err(unreadable)?.is_file() {
        return Err(wrong());
    }
    let mut source = File::open(file).map_err(unreadable)?;
    let unwritable =
        |error: io::Error| Failure::new(format!("`{}` could not be written: {error}", path.display()));
    let mut copied = OpenOptions::new().write(true).create_new(true).open(&partial).map_err(unwritable)?;
    let (mut digest, mut bytes) = (digest::Context::new(&digest::SHA256), 0);
    let mut chunk = vec![0; 64 * 1024];
    let written = loop {
        match source.read(&mut chunk).map_err(unreadable) {
            Ok(0) => break copied.sync_all().map_err(unwritable),
            Ok(count) => {
                digest.update(&chunk[..count]);
                bytes += count as u64;
                if let Err(error) = copied.write_all(&chunk[..count]) {
                    break Err(unwritable(error));
                }
            }
            Err(failure) => break Err(failure),
        }
    };
    let mut hash = ContentHash([0; 32]);
    hash.0.copy_from_slice(digest.finish().as_ref());
    let checked = written.and_then(|()| if hash == expected { Ok(()) } else { Err(wrong()) });
    if checked.is_err() {
        let _ = fs::remove_file(&partial);
    }
    checked?;
    finish(&partial, path)?;
    Ok(Written { path: path.to_owned(), bytes, hash, resumed_at: 0 })
}

/// Downloads the content of a part. Goes on by itself if the connection breaks.
async fn fetch(
    agent: &Agent,
    url: &str,
    part: &Part,
    path: &Path,
    form: &Output,
) -> Result<Written, Failure> {
    let expected = Expected::of(part);
    let partial = partial_path(path, expected.hash);
    let mut bar = Bar::new(form, "downloading");
    let mut resumed_at = None;
    let mut attempt = 0;
    let fetched = loop {
        match fetch_once(agent, url, &expected, &partial, &mut bar, &mut resumed_at).await {
            Ok(complete) => break Ok(complete),
            Err(Broken::Client(error)) if error.is_transient() && attempt < ATTEMPTS => {
                tokio::time::sleep(PAUSE * 2_u32.pow(attempt)).await;
                attempt += 1;
            }
            Err(error) => break Err(error),
        }
    };
    bar.clear();
    let (bytes, hash) = match fetched {
        Ok(complete) => complete,
        Err(Broken::Client(error)) => {
            let failure = agent.failed(&error);
            let has_part = fs::metadata(&partial).is_ok_and(|partial| partial.len() > 0);
            return Err(match has_part && expected.hash.is_some() {
                true => failure.hint("run the command again to go on where it ended"),
                false => {
                    let _ = fs::remove_file(&partial);
                    failure
                }
            });
        }
        Err(Broken::Disk(error)) => {
            return Err(Failure::new(format!("`{}` could not be written: {error}", partial.display())));
        }
        Err(Broken::Wrong(what)) => {
            // It would be taken for the beginning of the right content.
            let _ = fs::remove_file(&partial);
            return Err(Failure::new(format!("the content at `{}` is wrong: {what}", line(url)))
                .hint("nothing was kept; try again, or ask the operator of the agent"));
        }
    };
    finish(&partial, path)?;
    Ok(Written { path: path.to_owned(), bytes, hash, resumed_at: resumed_at.unwrap_or_default() })
}

/// Why a download broke.
enum Broken {
    Client(ClientError),
    Disk(io::Error),
    /// It is not the content that the part describes.
    Wrong(String),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Self::Disk(error)
    }
}

/// What a part says about its content.
struct Expected {
    size: Option<u64>,
    hash: Option<ContentHash>,
}

impl Expected {
    fn of(part: &Part) -> Self {
        let metadata: Value =
            part.metadata.as_ref().and_then(|metadata| metadata.read().ok()).unwrap_or_default();
        let hash = metadata["sha256"].as_str().map(str::to_ascii_lowercase);
        Self { size: metadata["byteSize"].as_u64(), hash: hash.as_deref().and_then(ContentHash::parse) }
    }
}

/// Downloads the rest of the content. Returns its size and hash when it is complete.
async fn fetch_once(
    agent: &Agent,
    url: &str,
    expected: &Expected,
    partial: &Path,
    bar: &mut Bar,
    resumed_at: &mut Option<u64>,
) -> Result<(u64, ContentHash), Broken> {
    let (mut file, mut digest, mut bytes) = open_partial(partial, expected.hash.is_some())?;
    let is_complete = expected.size == Some(bytes) && bytes > 0;
    *resumed_at = Some(bytes);
    if !is_complete {
        // Our servers use the hash as the entity tag. Another server ignores a tag that it does not know, and begins anew.
        let resume = expected.hash.filter(|_| bytes > 0);
        let resume = resume.map(|hash| DownloadedPart { bytes, etag: format!("\"{hash}\"") });
        let mut download = agent.client.download(url, resume.as_ref()).await.map_err(Broken::Client)?;
        if download.offset() != bytes {
            file.set_len(0)?;
            (digest, bytes) = (digest::Context::new(&digest::SHA256), 0);
            *resumed_at = Some(0);
        }
        let total = expected.size.or(download.total());
        while let Some(chunk) = download.chunk().await.map_err(Broken::Client)? {
            bytes += chunk.len() as u64;
            if expected.size.is_some_and(|size| bytes > size) {
                return Err(Broken::Wrong("it is larger than the agent says".to_owned()));
            }
            file.write_all(&chunk)?;
            digest.update(&chunk);
            bar.show(bytes, total.unwrap_or(bytes));
        }
        if let Some(total) = download.total().filter(|total| bytes < *total) {
            let text = format!("{bytes} of {total} bytes have arrived");
            return Err(Broken::Client(ClientError::Broken(text)));
        }
    }
    file.sync_all()?;
    let mut hash = ContentHash([0; 32]);
    hash.0.copy_from_slice(digest.finish().as_ref());
    if let Some(size) = expected.size.filter(|size| *size != bytes) {
        return Err(Broken::Wrong(format!("it has {bytes} bytes, where the agent says {size}")));
    }
    match expected.hash {
        Some(expected) if expected != hash => {
            Err(Broken::Wrong(format!("its SHA-256 is {hash}, where the agent says {expected}")))
        }
        Some(_) | None => Ok((bytes, hash)),
    }
}

/// Opens the file of an incomplete download, with the digest and the number of the bytes that it has.
fn open_partial(path: &Path, resumable: bool) -> io::Result<(File, digest::Context, u64)> {
    // A link that someone has put there would lead to another file.
    if fs::symlink_metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it is not a file"));
    }
    let mut digest = digest::Context::new(&digest::SHA256);
    if !resumable {
        let _ = fs::remove_file(path);
    }
    let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
    let (mut bytes, mut chunk) = (0, vec![0; 64 * 1024]);
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok((file, digest, bytes)),
            count => {
                digest.update(&chunk[..count]);
                bytes += count as u64;
            }
        }
    }
}

/// The path of an incomplete download: beside the file, and different for other content.
fn partial_path(path: &Path, hash: Option<ContentHash>) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    match hash {
        Some(hash) => name.push(format!(".{}.partial", &hash.to_string()[..16])),
        None => name.push(format!(".{}.partial", std::process::id())),
    }
    name.into()
}

/// Writes content that is in the task itself.
fn write(path: &Path, bytes: &[u8]) -> Result<Written, Failure> {
    let mut hash = ContentHash([0; 32]);
    hash.0.copy_from_slice(digest::digest(&digest::SHA256, bytes).as_ref());
    let partial = partial_path(path, None);
    let written = OpenOptions::new().write(true).create_new(true).open(&partial).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.map_err(|error| Failure::new(format!("`{}` could not be written: {error}", path.display())))?;
    finish(&partial, path)?;
    Ok(Written { path: path.to_owned(), bytes: bytes.len() as u64, hash, resumed_at: 0 })
}

/// Gives a complete file its name. A file of that name that has appeared meanwhile is not replaced.
fn finish(partial: &Path, path: &Path) -> Result<(), Failure> {
    let named = match fs::hard_link(partial, path) {
        Ok(()) => fs::remove_file(partial),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
        // Some file systems have no hard links.
        Err(_) => fs::rename(partial, path),
    };
    named.map_err(|error| Failure::new(format!("`{}` could not be written: {error}", path.display())))
}

fn file_json((wanted, written): &(&Wanted<'_>, Written)) -> Value {
    json!({
        "artifact": wanted.artifact.artifact_id,
        "path": written.path,
        "bytes": written.bytes,
        "sha256": written.hash.to_string(),
        "mediaType": wanted.part.media_type,
        "resumedAt": written.resumed_at,
    })
}

/// The parts to write, each with a name of its own.
fn wanted<'a>(task: &'a Task, artifact: Option<&str>) -> Result<Vec<Wanted<'a>>, Failure> {
    let is_wanted = |one: &&Artifact| {
        artifact.is_none_or(|name| one.artifact_id == name || one.name.as_deref() == Some(name))
    };
    let chosen: Vec<_> = task.artifacts.iter().filter(is_wanted).collect();
    if chosen.is_empty() {
        let known: Vec<_> = task.artifacts.iter().map(|one| line(&one.artifact_id)).collect();
        let id = line(task.id.as_str());
        return Err(match (artifact, known.is_empty()) {
            (_, true) => Failure::new(format!("the task `{id}` has no artifacts")),
            (name, false) => {
                let name = line(name.unwrap_or_default());
                Failure::new(format!("the task `{id}` has no artifact `{name}`"))
                    .hint(format!("it has: {}", known.join(", ")))
            }
        });
    }
    let mut used = HashSet::new();
    let mut all = Vec::new();
    for artifact in chosen {
        for part in &artifact.parts {
            let name = unique(&name_of(artifact, part), &mut used);
            all.push(Wanted { artifact, part, name });
        }
    }
    Ok(all)
}

/// The name of the file of a part: its own, or that of the artifact.
fn name_of(artifact: &Artifact, part: &Part) -> String {
    if let Some(name) = part.filename.as_deref().and_then(safe_file_name) {
        return name;
    }
    let own = artifact.name.as_deref().and_then(safe_file_name);
    let stem = own.or_else(|| safe_file_name(&artifact.artifact_id)).unwrap_or_else(|| "artifact".to_owned());
    let extension = match &part.content {
        Content::Text(_) => ".txt",
        Content::Data(_) => ".json",
        Content::Raw(_) | Content::Url(_) => "",
    };
    match stem.ends_with(extension) {
        true => stem,
        false => format!("{stem}{extension}"),
    }
}

/// The name, with a number if it is used already. Names that differ in case only count as the same.
fn unique(name: &str, used: &mut HashSet<String>) -> String {
    let (stem, extension) = match name.rfind('.') {
        Some(at) if at > 0 => name.split_at(at),
        Some(_) | None => (name, ""),
    };
    let numbered = |number: usize| match number {
        1 => name.to_owned(),
        number => format!("{stem}-{number}{extension}"),
    };
    (1..).map(numbered).find(|name| used.insert(name.to_lowercase())).unwrap_or_else(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_gets_a_harmless_name_of_its_own() {
        let artifact = |id: &str, parts: Vec<Part>| Artifact {
            artifact_id: id.to_owned(),
            parts,
            ..Artifact::default()
        };
        let task = Task {
            artifacts: vec![
                artifact("../../etc", vec![Part::text("a"), Part::raw("b").filename("/etc/passwd")]),
                artifact("x", vec![Part::raw("c").filename("PASSWD"), Part::raw("d").filename("..")]),
                artifact("..", vec![Part::data(&1).unwrap()]),
            ],
            ..Task::default()
        };
        let names: Vec<_> = wanted(&task, None).unwrap().into_iter().map(|wanted| wanted.name).collect();
        assert_eq!(names, ["etc.txt", "passwd", "PASSWD-2", "x", "artifact.json"]);
        let names: Vec<_> = wanted(&task, Some("x")).unwrap().into_iter().map(|wanted| wanted.name).collect();
        assert_eq!(names, ["PASSWD", "x"]);
        assert!(wanted(&task, Some("y")).is_err());
    }
}
