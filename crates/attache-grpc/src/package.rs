//! The protobuf packages.

use attache_protocol::{Dialect, Error};
use tonic::Status;

use crate::{status, v0_3};

/// The protobuf package of a version, which has the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Package {
    /// `lf.a2a.v1`.
    V1_0,
    /// `a2a.v1`.
    V0_3,
}

impl Package {
    /// All packages.
    pub const ALL: [Self; 2] = [Self::V1_0, Self::V0_3];

    /// The package of a request path.
    pub fn of(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|package| package.name_in(path).is_some())
    }

    /// The prefix of the service's paths, without the slash at the end.
    pub const fn service(self) -> &'static str {
        match self {
            Self::V1_0 => "/lf.a2a.v1.A2AService",
            Self::V0_3 => "/a2a.v1.A2AService",
        }
    }

    /// The name of the call in a request path.
    pub fn name_in(self, path: &str) -> Option<&str> {
        path.strip_prefix(self.service())?.strip_prefix('/')
    }

    /// The dialect of its calls. `None` means 1.0.
    pub const fn dialect(self) -> Option<Dialect> {
        match self {
            Self::V1_0 => None,
            Self::V0_3 => Some(Dialect::V0_3),
        }
    }

    /// The status for an error.
    pub fn status(self, error: &Error) -> Status {
        match self {
            Self::V1_0 => status::status(error),
            Self::V0_3 => v0_3::status(error),
        }
    }

    /// The metadata key for the active extensions.
    pub const fn extensions(self) -> &'static str {
        match self {
            Self::V1_0 => "a2a-extensions",
            Self::V0_3 => "x-a2a-extensions",
        }
    }
}
