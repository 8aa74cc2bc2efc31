//! Downloads of the files that an agent has stored, from the URLs in its parts.
//!
//! A card or a part can name any address. Credentials are sent only to the origin of the agent's address and to trusted origins, as for every
//! other request. Content is read piece by piece and is never held in memory as a whole.

use attache_protocol::{ErrorKind, Operation, TaskId};
use bytes::Bytes;
use reqwest::header::{CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderMap, IF_RANGE, RANGE};
use reqwest::{Method, Response, StatusCode, Url};

use crate::http::{convert_error, display_text, status_error, with_timeout};
use crate::request_auth::{CredentialTarget, RequestAuth};
use crate::{Client, ClientError};

/// Where an earlier download of the same content ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DownloadedPart {
    /// The number of bytes that are there already.
    pub bytes: u64,
    /// The [entity tag](Download::etag) of the content that they are from.
    pub etag: String,
}

/// Content that is being downloaded. Read it with [`chunk`](Self::chunk).
#[derive(Debug)]
pub struct Download {
    url: Url,
    response: Response,
    offset: u64,
    total: Option<u64>,
    silence: std::time::Duration,
}

impl Client {
    /// Whether a URL is at the origin of the agent's address, or at a trusted one: credentials are sent there.
    pub fn is_own_url(&self, url: &str) -> bool {
        let agent = self.transport().agent;
        let is_web = |url: &Url| matches!(url.scheme(), "http" | "https");
        let checked = |url: Url| self.options().trusted_origins.check_credentials(&agent.card_url, &url);
        Url::parse(url).ok().filter(is_web).is_some_and(|url| checked(url).is_ok())
    }

    /// The HTTP address of content whose URL is a file of the agent's machine: `/artifacts/TASK/ID` at the agent's own server.
    ///
    /// Servers that give `file:` URLs to their clients answer there as well. The path of such a file ends in the id of the content and the
    /// name of the file. `None` if the URL has another form, or if the card was not read over HTTP.
    pub fn address_of_file(&self, task: &TaskId, url: &str) -> Option<String> {
        let agent = self.transport().agent;
        let id = content_id(url)?;
        served_at(&agent.card_url, agent.endpoint.tenant.as_deref(), task, &id).map(Into::into)
    }

    /// Begins to download the content of a part, from the URL in the part.
    ///
    /// With `resume`, the download goes on where an earlier one ended. If the content has changed, or the server cannot continue, it begins
    /// anew: see [`Download::offset`].
    ///
    /// ```no_run
    /// # async fn example(agent: attache_client::Client, url: &str) -> Result<(), attache_client::ClientError> {
    /// let mut download = agent.download(url, None).await?;
    /// while let Some(chunk) = download.chunk().await? {
    ///     eprintln!("{} bytes", chunk.len());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn download(
        &self,
        url: &str,
        resume: Option<&DownloadedPart>,
    ) -> Result<Download, ClientError> {
        let http = self.http();
        let url = Url::parse(url).map_err(|error| {
            ClientError::Invalid(format!("`{}` is not a URL: {error}", display_text(url)))
        })?;
        let url = http.check(url.as_str())?;
        let transport = self.transport();
        let (card, card_url) = (&transport.agent.card, &transport.agent.card_url);
        let origins = &http.options.trusted_origins;
        origins.check_destination(card_url, &url)?;
        let is_trusted = origins.check_credentials(card_url, &url).is_ok();
        let target = CredentialTarget { card, card_url, url: &url };
        let mut repeated = false;
        loop {
            let auth = match is_trusted {
                // The same credentials as for reading the task.
                true => RequestAuth::collect(http, target, Operation::GetTask).await?,
                false => RequestAuth::default(),
            };
            let opened = self.open_download(&url, resume, &auth).await;
            let refused = |error: &ClientError| error.kind() == Some(ErrorKind::Unauthenticated);
            match opened {
                Err(error) if is_trusted && !repeated && refused(&error) => {
                    if !auth.refused(http, target, Operation::GetTask).await? {
                        return Err(error);
                    }
                    repeated = true;
                }
                opened => return opened,
            }
        }
    }

    async fn open_download(
        &self,
        url: &Url,
        resume: Option<&DownloadedPart>,
        auth: &RequestAuth,
    ) -> Result<Download, ClientError> {
        let http = self.http();
        let mut requested = url.clone();
        if !auth.query.is_empty() {
            let pairs = auth.query.iter().map(|(name, secret)| (name.as_str(), secret.reveal()));
            requested.query_pairs_mut().extend_pairs(pairs);
        }
        let mut request = http.request(Method::GET, &requested);
        for (name, value) in &auth.headers {
            request = request.header(name.clone(), value.clone());
        }
        if let Some(DownloadedPart { bytes, etag }) = resume.filter(|resume| resume.bytes > 0) {
            request = request.header(RANGE, format!("bytes={bytes}-")).header(IF_RANGE, etag);
        }
        let limit = self.options().call_timeout;
        let response = with_timeout(limit, http.send(url, request)).await?;
        let silence = self.options().idle_timeout;
        let headers = response.headers();
        let (offset, total) = match response.status() {
            StatusCode::OK => (0, number(headers, CONTENT_LENGTH.as_str())),
            StatusCode::PARTIAL_CONTENT => content_range(headers).ok_or_else(|| {
                ClientError::Protocol("a part of the content without the position of the part".to_owned())
            })?,
            // The earlier download was complete: there is nothing after its end.
            StatusCode::RANGE_NOT_SATISFIABLE if resume.is_some() => {
                return Box::pin(self.open_download(url, None, auth)).await;
            }
            status => {
                let body = with_timeout(limit, http.body(url, response)).await.unwrap_or_default();
                return Err(status_error(url, status, &body));
            }
        };
        if let Some(asked) = resume.filter(|_| offset > 0)
            && asked.bytes != offset
        {
            return Err(ClientError::Protocol(format!(
                "the content from byte {offset} on, where byte {} was asked for",
                asked.bytes
            )));
        }
        Ok(Download { url: url.clone(), response, offset, total, silence })
    }
}

impl Download {
    /// The position of the first byte that [`chunk`](Self::chunk) returns. 0, unless an earlier download goes on.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The size of the whole content, if the server states it.
    pub fn total(&self) -> Option<u64> {
        self.total
    }

    /// The entity tag of the content, by which a broken download can go on. `None` if the server cannot continue downloads.
    pub fn etag(&self) -> Option<&str> {
        let etag = self.response.headers().get(ETAG)?.to_str().ok()?;
        // A weak tag does not promise the same bytes.
        Some(etag).filter(|etag| !etag.starts_with("W/"))
    }

    /// The media type, as the server says.
    pub fn media_type(&self) -> Option<&str> {
        self.response.headers().get(CONTENT_TYPE)?.to_str().ok()
    }

    /// The next bytes. `None` at the end.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, ClientError> {
        let (url, response) = (&self.url, &mut self.response);
        let chunk = async { response.chunk().await.map_err(|error| convert_error(url, &error)) };
        with_timeout(self.silence, chunk).await
    }
}

/// The id of stored content, if this is the URL of its file: a hash, a dot, and eight digits.
fn content_id(url: &str) -> Option<String> {
    let url = Url::parse(url).ok().filter(|url| url.scheme() == "file")?;
    let id = url.path_segments()?.rev().nth(1)?;
    let (hash, tag) = id.split_once('.')?;
    let is_hex = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    (hash.len() == 64 && tag.len() == 8 && is_hex(hash) && is_hex(tag)).then(|| id.to_owned())
}

/// Where the server of a card has the content of a task.
fn served_at(card: &Url, tenant: Option<&str>, task: &TaskId, id: &str) -> Option<Url> {
    let mut url = Some(card.clone()).filter(|card| matches!(card.scheme(), "http" | "https"))?;
    let base = card.path().split_once("/.well-known/").map_or("", |(base, _)| base);
    url.set_query(None);
    url.set_path(base);
    // Each segment is escaped as a whole.
    url.path_segments_mut().ok()?.pop_if_empty().extend(["artifacts", task.as_str(), id]);
    if let Some(tenant) = tenant.filter(|tenant| !tenant.is_empty()) {
        url.query_pairs_mut().append_pair("tenant", tenant);
    }
    Some(url)
}

fn number(headers: &HeaderMap, name: &str) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok()
}

/// The position of a part and the size of the whole, from a header such as `bytes 100-199/200`.
pub(crate) fn content_range(headers: &HeaderMap) -> Option<(u64, Option<u64>)> {
    let text = headers.get(CONTENT_RANGE)?.to_str().ok()?.trim().strip_prefix("bytes ")?;
    let (range, total) = text.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last) = (digits(first)?, digits(last)?);
    let total = match total.trim() {
        "*" => None,
        total => Some(digits(total)?),
    };
    let is_within = first <= last && total.is_none_or(|total| last < total);
    is_within.then_some((first, total))
}

/// A number of digits only.
fn digits(text: &str) -> Option<u64> {
    let text = text.trim();
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_stored_content_is_served_beside_the_card() {
        let id = format!("{}.0a1b2c3d", "9f".repeat(32));
        let url = |name: &str| format!("file:///var/lib/attache/tasks.db-artifacts/tasks/t/{id}/{name}");
        assert_eq!(content_id(&url("a%20b.yml")), Some(id.clone()));
        for other in [
            "file:///etc/passwd".to_owned(),
            url("a/b"),
            url("").replace("file:", "http:"),
            url("a").replace(".0a1b2c3d", ".0A1B2C3D"),
            "attache-artifact:x".to_owned(),
        ] {
            assert_eq!(content_id(&other), None, "{other}");
        }
        for (card, tenant, expected) in [
            ("http://a.example/.well-known/agent-card.json", None, "http://a.example/artifacts/t%2F1/ID"),
            (
                "https://a.example/x/agents/one/.well-known/agent.json?a=b",
                Some("b c"),
                "https://a.example/x/agents/one/artifacts/t%2F1/ID?tenant=b+c",
            ),
            ("http://a.example/card.json", Some(""), "http://a.example/artifacts/t%2F1/ID"),
        ] {
            let url = served_at(&Url::parse(card).unwrap(), tenant, &"t/1".into(), "ID");
            assert_eq!(url.as_ref().map(Url::as_str), Some(expected));
        }
        assert_eq!(served_at(&Url::parse("unix:/run/a.sock").unwrap(), None, &"t".into(), "ID"), None);
    }

    #[test]
    fn the_position_of_a_part_is_read() {
        let range = |text: &'static str| {
            let headers = HeaderMap::from_iter([(CONTENT_RANGE, text.parse().unwrap())]);
            content_range(&headers)
        };
        assert_eq!(range("bytes 100-199/200"), Some((100, Some(200))));
        assert_eq!(range("bytes 0-0/*"), Some((0, None)));
        assert_eq!(range("bytes 199-199/200"), Some((199, Some(200))));
        for wrong in [
            "bytes */200",
            "items 0-1/2",
            "bytes a-b/c",
            "",
            "bytes 199-200/200",
            "bytes 2-1/200",
            "bytes +1-2/200",
            "bytes 1-2/x",
        ] {
            assert_eq!(range(wrong), None, "{wrong}");
        }
    }
}
