//! How long identifiers and names may be, and how many of them there may be.
//!
//! They apply to what would be stored anew: identifiers are copied into every event of a task, so without a bound one request could
//! make the server write many times its own size. What is stored already can be read, continued and deleted under whatever identifier
//! it has. Lengths are in bytes of UTF-8.

/// The id of a task, a context or a message. It has no control characters.
pub const ID: usize = 128;

/// How many tasks a message may refer to.
pub const REFERENCES: usize = 100;

/// The tenant. It has no control characters.
pub const TENANT: usize = 256;

/// How many extensions a request, a message or an artifact may name.
pub const EXTENSIONS: usize = 64;

/// The URI of an extension. It has no control characters.
pub const EXTENSION_URI: usize = 1024;

/// How many media types a client may say that it can take.
pub const OUTPUT_MODES: usize = 100;

/// A media type.
pub const MEDIA_TYPE: usize = 256;

/// The name of a file in a part.
pub const FILENAME: usize = 1024;

/// The id of an artifact. It has no control characters.
pub const ARTIFACT_ID: usize = 256;

/// The name of an artifact.
pub const ARTIFACT_NAME: usize = 1024;

/// The description of an artifact.
pub const ARTIFACT_DESCRIPTION: usize = 8 * 1024;

/// The id of a webhook. It has no control characters.
pub const WEBHOOK_ID: usize = 255;

/// The URL of a webhook.
pub const WEBHOOK_URL: usize = 2 * 1024;

/// The token, and the credentials, of a webhook.
pub const WEBHOOK_SECRET: usize = 8 * 1024;

/// The authentication scheme of a webhook.
pub const WEBHOOK_SCHEME: usize = 255;

/// An idempotency key: printable ASCII characters.
pub const IDEMPOTENCY_KEY: usize = 255;

/// A page token.
pub const PAGE_TOKEN: usize = 1024;

/// The id of a JSON-RPC request, as JSON text. Each event of a stream repeats it.
pub const JSONRPC_ID: usize = 256;

/// How many wrong fields an error names.
pub const VIOLATIONS: usize = 10;

/// How much of a value is repeated in the details of an error.
pub const ERROR_VALUE: usize = 256;
