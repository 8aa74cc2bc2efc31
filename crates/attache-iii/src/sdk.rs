//! What the SDKs of workers accept.

use crate::wire::MAX_MESSAGE;

const MIB: usize = 1024 * 1024;

/// The largest message that all SDKs accept, in bytes.
pub(crate) const MIN_LIMIT: usize = MIB;

/// The largest message that the SDK of a worker accepts, in bytes. A worker that gets a larger one drops its connection, and all
/// its calls fail.
pub(crate) fn max_message(runtime: Option<&str>, version: Option<&str>) -> usize {
    match runtime {
        Some("python") if numbers(version) < [0, 25, 0] => MIB,
        Some("python" | "rust" | "node") => MAX_MESSAGE,
        Some(_) | None => MIN_LIMIT,
    }
}

/// The largest frame that the SDK of a worker accepts, in bytes. iii engines send each message in one frame.
pub(crate) fn max_frame(runtime: Option<&str>, version: Option<&str>) -> usize {
    match runtime {
        Some("rust") if numbers(version) < [0, 24, 6] => 16 * MIB,
        Some(_) | None => max_message(runtime, version),
    }
}

/// The first three numbers of a version.
fn numbers(version: Option<&str>) -> [u32; 3] {
    let mut numbers =
        version.unwrap_or_default().split(['.', '-', '+']).map(|number| number.parse().unwrap_or(0));
    std::array::from_fn(|_| numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_depend_on_the_language_and_the_version_of_the_sdk() {
        for (runtime, version, message, frame) in [
            (Some("python"), Some("0.11.3"), MIB, MIB),
            (Some("python"), Some("0.24.9"), MIB, MIB),
            (Some("python"), Some("0.25.0"), MAX_MESSAGE, MAX_MESSAGE),
            (Some("python"), None, MIB, MIB),
            (Some("rust"), Some("0.11.3"), MAX_MESSAGE, 16 * MIB),
            (Some("rust"), Some("0.26.0-rc.4"), MAX_MESSAGE, MAX_MESSAGE),
            (Some("node"), Some("0.11.6"), MAX_MESSAGE, MAX_MESSAGE),
            (Some("cobol"), Some("9.0.0"), MIN_LIMIT, MIN_LIMIT),
            (None, None, MIN_LIMIT, MIN_LIMIT),
        ] {
            assert_eq!(max_message(runtime, version), message, "{runtime:?} {version:?}");
            assert_eq!(max_frame(runtime, version), frame, "{runtime:?} {version:?}");
        }
    }
}
