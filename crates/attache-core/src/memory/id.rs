//! Ids as the memory store looks them up.

/// The id of a task or of a context.
///
/// The ids that this server gives, and those that most clients choose, are UUIDs. Their text is not kept a second time beside the
/// task, and they are in the order in which they were made: those that come next to each other lie next to each other.
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

/// The UUID that is written just like this. To be told apart from others, an id must be what its UUID is written as: nothing but
/// lower case with hyphens.
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
    fn only_the_one_way_of_writing_a_uuid_is_one() {
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
