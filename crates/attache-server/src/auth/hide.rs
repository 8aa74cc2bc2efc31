//! Removes credentials from a request before other code gets it.

use attache_protocol::{ApiKeySecurityScheme, SecurityScheme};
use http::header::{AUTHORIZATION, COOKIE, HeaderValue};
use http::request::Parts;
use http::uri::{PathAndQuery, Uri};
use http::{HeaderMap, HeaderName};
use percent_encoding::percent_decode_str;

use super::Authenticator;

/// Removes everything that an authenticator would read as a credential, valid or not.
pub(crate) fn hide_credentials(authenticator: &dyn Authenticator, head: &mut Parts) {
    for (_, scheme) in authenticator.schemes() {
        match scheme {
            SecurityScheme::HttpAuth(_) | SecurityScheme::OAuth2(_) | SecurityScheme::OpenIdConnect(_) => {
                head.headers.remove(AUTHORIZATION);
            }
            SecurityScheme::ApiKey(ApiKeySecurityScheme { location, name, .. }) => match location.as_str() {
                "query" => hide_argument(&mut head.uri, &name),
                "cookie" => hide_cookie(&mut head.headers, &name),
                _ => {
                    if let Ok(name) = HeaderName::from_bytes(name.as_bytes()) {
                        head.headers.remove(name);
                    }
                }
            },
            // The certificate is not part of the request.
            SecurityScheme::MutualTls(_) => {}
        }
    }
}

fn hide_argument(uri: &mut Uri, name: &str) {
    let Some(query) = uri.query() else { return };
    let is_other = |pair: &&str| {
        let key = pair.split_once('=').map_or(*pair, |(key, _)| key);
        // Forms write a space as `+`.
        !percent_decode_str(key).eq(name.bytes())
            && !percent_decode_str(&key.replace('+', " ")).eq(name.bytes())
    };
    let others: Vec<&str> = query.split('&').filter(is_other).collect();
    let rest = match others.is_empty() {
        true => uri.path().to_owned(),
        false => format!("{}?{}", uri.path(), others.join("&")),
    };
    // The rest of a valid path and query is valid.
    let Ok(rest) = rest.parse::<PathAndQuery>() else { return };
    let mut parts = std::mem::take(uri).into_parts();
    parts.path_and_query = Some(rest);
    *uri = Uri::from_parts(parts).unwrap_or_default();
}

fn hide_cookie(headers: &mut HeaderMap, name: &str) {
    let fields: Vec<HeaderValue> = headers.get_all(COOKIE).iter().cloned().collect();
    headers.remove(COOKIE);
    for field in fields {
        // A cookie that is not text is not read by the authenticators.
        let Ok(text) = field.to_str() else { continue };
        let is_other = |pair: &&str| pair.split_once('=').is_none_or(|(key, _)| key.trim() != name);
        let others: Vec<&str> = text.split(';').filter(is_other).map(str::trim).collect();
        if let Some(rest) = HeaderValue::from_str(&others.join("; ")).ok().filter(|rest| !rest.is_empty()) {
            headers.append(COOKIE, rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;
    use crate::auth::{KeyPlace, KnownCallers};

    #[test]
    fn credentials_are_hidden_wherever_they_are_looked_for_and_nothing_else_is() {
        let callers = KnownCallers::new()
            .bearer("a", "t0ken")
            .api_key("b", KeyPlace::Header("X-API-Key".to_owned()), "k3y")
            .api_key("c", KeyPlace::Query("api key".to_owned()), "k3y")
            .api_key("d", KeyPlace::Cookie("session".to_owned()), "k3y");
        let (mut head, ()) = Request::get("http://host/p/a?x=1&api%20key=k3y&y=2&api+key=k3y&api%20key")
            .header("authorization", "Bearer t0ken")
            .header("Authorization", "Basic other")
            .header("x-api-key", "k3y")
            .header("cookie", "theme=dark; session=k3y; session = \"k3y\"")
            .header("cookie", "session=k3y")
            .header("x-other", "1")
            .body(())
            .unwrap()
            .into_parts();
        hide_credentials(&callers, &mut head);
        assert_eq!(head.uri, "http://host/p/a?x=1&y=2");
        let mut headers: Vec<_> =
            head.headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        headers.sort_unstable();
        assert_eq!(headers, [("cookie", "theme=dark"), ("x-other", "1")]);
    }

    #[test]
    fn where_nothing_is_asked_for_nothing_is_hidden() {
        let (mut head, ()) =
            Request::get("/p?key=1").header("authorization", "Bearer t0ken").body(()).unwrap().into_parts();
        hide_credentials(&KnownCallers::new(), &mut head);
        assert!(head.headers.contains_key("authorization") && head.uri.query() == Some("key=1"));
    }
}
