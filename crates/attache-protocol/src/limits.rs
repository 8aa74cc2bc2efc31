//! The maximum lengths and counts of identifiers and names.
//!
//! They apply to new data. Every event of a task repeats its identifiers, so without a limit one request could make the server
//! write many times its own size. Existing data can be read, continued and deleted, whatever the length of its identifiers.
//! Lengths are in bytes of UTF-8.

/// The id of a task, a context or a message. Control characters are not allowed.
pub const ID: usize = 128;

/// The number of tasks that a message may refer to.
pub const REFERENCES: usize = 100;

/// The tenant. Control characters are not allowed.
pub const TENANT: usize = 256;

/// The number of extensions of a request, a message or an artifact.
pub const EXTENSIONS: usize = 64;

/// The URI of an extension. Control characters are not allowed.
pub const EXTENSION_URI: usize = 1024;

/// The number of media types that a client accepts.
pub const OUTPUT_MODES: usize = 100;

/// A media type.
pub const MEDIA_TYPE: usize = 256;

/// The name of a file in a part.
pub const FILENAME: usize = 1024;

/// The id of an artifact. Control characters are not allowed.
pub const ARTIFACT_ID: usize = 256;

/// The name of an artifact.
pub const ARTIFACT_NAME: usize = 1024;

/// The description of an artifact.
pub const ARTIFACT_DESCRIPTION: usize = 8 * 1024;

/// The id of a webhook. Control characters are not allowed.
pub const WEBHOOK_ID: usize = 255;

/// The URL of a webhook.
pub const WEBHOOK_URL: usize = 2 * 1024;

/// The token, and the credentials, of a webhook.
pub const WEBHOOK_SECRET: usize = 8 * 1024;

/// The authentication scheme of a webhook.
pub const WEBHOOK_SCHEME: usize = 255;

/// An idempotency key, which has printable ASCII characters only.
pub const IDEMPOTENCY_KEY: usize = 255;

/// A page token.
pub const PAGE_TOKEN: usize = 1024;

/// The id of a JSON-RPC request, as JSON text. Each event of a stream repeats it.
pub const JSONRPC_ID: usize = 256;

/// The number of invalid fields that an error lists.
pub const VIOLATIONS: usize = 10;

/// The length of a value in the details of an error.
pub const ERROR_VALUE: usize = 256;
