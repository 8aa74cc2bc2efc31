//! Applies a redaction to files that are written piece by piece, and do not stay in memory.

use super::Redaction;
use super::events::OpenText;
use super::scan::Follow;

/// The redaction of one file. Text is searched like that of messages. In other files, secrets are overwritten.
pub(crate) struct FileRedaction {
    redaction: Redaction,
    content: Content,
}

enum Content {
    Text {
        open: OpenText,
        /// The beginning of a character.
        rest: Vec<u8>,
    },
    Binary {
        /// What can be the beginning of a secret.
        held: Vec<u8>,
    },
}

impl FileRedaction {
    pub(super) fn new(redaction: &Redaction) -> Self {
        let content = Content::Text { open: OpenText::default(), rest: Vec::new() };
        Self { redaction: redaction.clone(), content }
    }

    /// What can be written of the next piece.
    pub(crate) fn push(&mut self, piece: &[u8]) -> Vec<u8> {
        let (mut out, piece) = match &mut self.content {
            Content::Binary { .. } => (Vec::new(), piece.to_vec()),
            Content::Text { open, rest } => {
                let mut bytes = std::mem::take(rest);
                bytes.extend_from_slice(piece);
                let (text, after, is_text) = match std::str::from_utf8(&bytes) {
                    Ok(text) => (text, &[][..], true),
                    Err(error) => {
                        let (text, after) = bytes.split_at(error.valid_up_to());
                        let text = std::str::from_utf8(text).unwrap_or_default();
                        (text, after, error.error_len().is_none())
                    }
                };
                if is_text {
                    let out = open.push(&self.redaction, text, Follow::More);
                    *rest = after.to_vec();
                    return out.into_bytes();
                }
                let mut out = String::new();
                // In the first piece of a binary file, offsets are kept too.
                let is_first = open.is_new();
                let kept = if is_first { bytes.clone() } else { after.to_vec() };
                if !is_first {
                    out = open.push(&self.redaction, text, Follow::More);
                    out.push_str(&open.push(&self.redaction, "", Follow::End));
                }
                self.content = Content::Binary { held: Vec::new() };
                (out.into_bytes(), kept)
            }
        };
        if let Content::Binary { held } = &mut self.content {
            held.extend_from_slice(&piece);
            match &self.redaction.secrets {
                None => out.append(held),
                Some(patterns) => {
                    patterns.overwrite(held);
                    let ready = held.len().saturating_sub(patterns.longest().saturating_sub(1));
                    out.extend(held.drain(..ready));
                }
            }
        }
        out
    }

    /// The rest.
    pub(crate) fn finish(self) -> Vec<u8> {
        match self.content {
            Content::Binary { held } => held,
            Content::Text { mut open, rest } => {
                let mut out = open.push(&self.redaction, "", Follow::End).into_bytes();
                out.extend(rest);
                out
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redacted(pieces: &[&[u8]]) -> Vec<u8> {
        let redaction = Redaction::new().secret("hunter2-hunter2").path("/srv/project", "<workspace>");
        let mut file = FileRedaction::new(&redaction);
        let mut out: Vec<u8> = pieces.iter().flat_map(|piece| file.push(piece)).collect();
        out.extend(file.finish());
        out
    }

    #[test]
    fn a_text_is_searched_wherever_it_is_cut() {
        let text = "the kéy is hunter2-hunter2 in /srv/project/ä.txt";
        for one in 0..=text.len() {
            for other in one..=text.len() {
                let bytes = text.as_bytes();
                let out = redacted(&[&bytes[..one], &bytes[one..other], &bytes[other..]]);
                assert_eq!(String::from_utf8(out).unwrap(), "the kéy is ******** in <workspace>/ä.txt");
            }
        }
    }

    #[test]
    fn secrets_in_other_files_are_overwritten_with_as_many_stars() {
        let bytes = [b"%F\xff\xfe\x00".as_slice(), b"hunter2-hunter2", b" /srv/project \xff"].concat();
        let expected = [b"%F\xff\xfe\x00".as_slice(), b"***************", b" /srv/project \xff"].concat();
        for one in 3..=bytes.len() {
            for other in one..=bytes.len() {
                assert_eq!(redacted(&[&bytes[..one], &bytes[one..other], &bytes[other..]]), expected);
            }
        }
        // A file that looks like text at first.
        let late = redacted(&[b"a hunter2-hunter2 b", b"\xff hunter2-", b"hunter2"]);
        assert_eq!(late, b"a ******** b\xff ***************");
    }
}
