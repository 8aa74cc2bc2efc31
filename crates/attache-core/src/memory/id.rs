//! The form of ids in the memory store.

/// The id of a task or of a context.
///
/// The ids of this server, and those of most clients, are UUIDs. A UUID takes less memory than its text. UUIDs of version 7 are sorted
/// by creation time, so tasks that are created one after the other are close in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Id {
    Uuid(Uuid),
    Other(Box<str>),
}

/// A UUID, in the order of its text.
pub(super) type Uuid = [u64; 2];

impl Id {
    pub(super) fn read(text: &str) -> Self {
        uuid(text).map_or_else(|| Self::Other(text.into()), Self::Uuid)
    }
}

/// Parses a UUID in lower case with hyphens. Other forms of a UUID are different ids, so they are not parsed.
pub(super) fn uuid(text: &str) -> Option<Uuid> {
    if text.len() != uuid::fmt::Hyphenated::LENGTH || text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return None;
    }
    let (high, low) = uuid::Uuid::try_parse(text).ok()?.as_u64_pair();
    Some([high, low])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lower_case_with_hyphens_is_parsed_as_a_uuid() {
        let text = "0199a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b";
        assert_eq!(Id::read(text), Id::Uuid([0x0199_a1b2_c3d4_7e5f, 0x8a9b_0c1d_2e3f_4a5b]));
        for other in [
            "0199A1B2-c3d4-7e5f-8a9b-0c1d2e3f4a5b",
            "0199a1b2c3d47e5f8a9b0c1d2e3f4a5b",
            "{0199a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b}",
            "urn:uuid:0199a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b",
            "0199a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5",
            "0199a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5g",
            "0199a1b2c-3d4-7e5f-8a9b-0c1d2e3f4a5b",
            "",
        ] {
            assert_eq!(Id::read(other), Id::Other(other.into()), "{other}");
        }
    }
}
