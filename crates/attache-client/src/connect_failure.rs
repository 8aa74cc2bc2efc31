//! Why a connection could not be made, in words.

use std::error::Error;
use std::fmt;
use std::io::ErrorKind;

use attache_outbound::causes;

/// Why a connection could not be made.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectFailure {
    /// No server listens at the address.
    Refused,
    /// The name has no address.
    UnknownName,
    /// The server did not respond in time.
    Timeout,
    /// The URL begins with `https`, and the server does not speak TLS.
    NotTls,
    /// The certificate of the server is not trusted. The text says why.
    Certificate(String),
    /// The command that is the agent could not be started, or ended before it answered. The text says how.
    Ended(String),
    /// Something else, in the words of the system.
    Other(String),
}

impl ConnectFailure {
    pub(crate) fn of(error: &(dyn Error + 'static), text: String) -> Self {
        let io = causes(error).filter_map(|cause| cause.downcast_ref::<std::io::Error>());
        for kind in io.map(std::io::Error::kind) {
            if kind == ErrorKind::ConnectionRefused {
                return Self::Refused;
            }
            if kind == ErrorKind::TimedOut {
                return Self::Timeout;
            }
        }
        if text.contains("InvalidContentType") {
            Self::NotTls
        } else if let Some((_, why)) = text.split_once("invalid peer certificate: ") {
            Self::Certificate(why.to_owned())
        } else if text.contains("dns error") || text.contains("failed to lookup address") {
            Self::UnknownName
        } else if text.contains("operation timed out") {
            Self::Timeout
        } else {
            Self::Other(text)
        }
    }
}

impl ConnectFailure {
    /// Why a Unix socket could not be connected to.
    #[cfg(unix)]
    pub(crate) fn of_socket(error: &std::io::Error) -> Self {
        match error.kind() {
            ErrorKind::ConnectionRefused => Self::Refused,
            ErrorKind::NotFound => Self::Other("there is no such socket".to_owned()),
            ErrorKind::PermissionDenied => Self::Other("the socket belongs to another user".to_owned()),
            ErrorKind::TimedOut => Self::Timeout,
            _ => Self::Other(error.to_string()),
        }
    }
}

impl fmt::Display for ConnectFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused => f.write_str("connection refused: no server listens there"),
            Self::UnknownName => f.write_str("the name of the host is unknown"),
            Self::Timeout => f.write_str("the server did not respond in time"),
            Self::NotTls => {
                f.write_str("the server does not speak TLS, so the URL cannot begin with `https://`")
            }
            Self::Certificate(why) => write!(f, "the certificate of the server is not trusted: {why}"),
            Self::Ended(text) | Self::Other(text) => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_the_system_are_understood() {
        let of = |text: &str| ConnectFailure::of(&std::fmt::Error, text.to_owned());
        for text in [
            "client error (Connect): dns error: failed to lookup address information: Name or service not known",
            "dns error: failed to lookup address information: Temporary failure in name resolution",
        ] {
            assert_eq!(of(text), ConnectFailure::UnknownName);
        }
        let text = "client error (Connect): received corrupt message of type InvalidContentType";
        assert_eq!(of(text), ConnectFailure::NotTls);
        let text = "client error (Connect): invalid peer certificate: UnknownIssuer";
        assert_eq!(of(text), ConnectFailure::Certificate("UnknownIssuer".to_owned()));
        assert_eq!(of("tunnel failed"), ConnectFailure::Other("tunnel failed".to_owned()));
    }
}
