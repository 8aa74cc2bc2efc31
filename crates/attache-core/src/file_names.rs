//! File names from outside that become safe names for a file.
//!
//! A name can come from an agent, a tool or another server. It must never lead to another folder, and the file must be usable on every
//! system.

/// The longest safe name, in bytes. Most file systems allow 255.
const MAX_BYTES: usize = 200;

/// A name for a file in a folder, made of a name from outside. `None` if nothing usable is left.
///
/// Only the last component of a path counts, also of a Windows path. Control characters and characters that are not allowed in names
/// on some systems become `_`. Spaces and dots at the end are removed. The names of devices, such as `CON`, get a `_` in front.
///
/// ```
/// use attache_core::safe_file_name;
///
/// assert_eq!(safe_file_name("../../etc/passwd").as_deref(), Some("passwd"));
/// assert_eq!(safe_file_name("C:\\temp\\report.pdf").as_deref(), Some("report.pdf"));
/// assert_eq!(safe_file_name("..\0"), None);
/// ```
pub fn safe_file_name(name: &str) -> Option<String> {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let last = match last.as_bytes() {
        // A drive without a folder, such as `C:report.pdf`.
        [drive, b':', ..] if drive.is_ascii_alphabetic() => &last[2..],
        _ => last,
    };
    let is_invisible = |c: char| {
        // Characters that change the direction of text make a name look like another one.
        matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
    };
    let is_forbidden =
        |c: char| c.is_control() || is_invisible(c) || matches!(c, '<' | '>' | ':' | '"' | '|' | '?' | '*');
    let clean: String = last.chars().map(|c| if is_forbidden(c) { '_' } else { c }).collect();
    // Checked after it is shortened: the part that is cut off can be what made the name usable.
    let short = shorten(clean.trim_start().trim_end_matches([' ', '.']));
    if short.chars().all(|c| matches!(c, '.' | '_')) {
        return None;
    }
    Some(if is_device(&short) { shorten(&format!("_{short}")) } else { short })
}

/// The name with at most [`MAX_BYTES`] bytes. A short extension is kept.
fn shorten(name: &str) -> String {
    if name.len() <= MAX_BYTES {
        return name.to_owned();
    }
    let (stem, extension) = match name.rfind('.') {
        Some(at) if name.len() - at <= 16 => name.split_at(at),
        Some(_) | None => (name, ""),
    };
    let end = stem.floor_char_boundary(MAX_BYTES - extension.len());
    format!("{}{extension}", stem[..end].trim_end_matches([' ', '.']))
}

/// Whether Windows takes the name for a device, with any extension.
fn is_device(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or_default().trim_end().to_ascii_uppercase();
    let numbered = |prefix: &str| {
        let rest = stem.strip_prefix(prefix).map(str::chars);
        rest.is_some_and(|mut rest| {
            matches!(rest.next(), Some('0'..='9' | '\u{b9}' | '\u{b2}' | '\u{b3}')) && rest.next().is_none()
        })
    };
    matches!(stem.as_str(), "CON" | "PRN" | "AUX" | "NUL" | "CONIN$" | "CONOUT$")
        || numbered("COM")
        || numbered("LPT")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_hostile_name_becomes_a_plain_one() {
        for (name, safe) in [
            ("report.pdf", Some("report.pdf")),
            ("../../etc/passwd", Some("passwd")),
            ("/etc/shadow", Some("shadow")),
            ("C:\\Users\\a\\b.txt", Some("b.txt")),
            ("\\\\server\\share\\x.doc", Some("x.doc")),
            ("C:x.doc", Some("x.doc")),
            ("a\0b\nc", Some("a_b_c")),
            ("a<b>c:d\"e|f?g*h", Some("a_b_c_d_e_f_g_h")),
            ("name. . .", Some("name")),
            ("  x", Some("x")),
            ("CON", Some("_CON")),
            ("nul.txt", Some("_nul.txt")),
            ("com1.tar.gz", Some("_com1.tar.gz")),
            ("LPT\u{b2}", Some("_LPT\u{b2}")),
            ("common.txt", Some("common.txt")),
            ("invoice\u{202e}fdp.exe", Some("invoice_fdp.exe")),
            (".hidden", Some(".hidden")),
            ("日本語.txt", Some("日本語.txt")),
            ("", None),
            (".", None),
            ("..", None),
            ("...", None),
            ("a/", None),
            ("a/..", None),
            ("\0", None),
            (" . ", None),
        ] {
            assert_eq!(safe_file_name(name).as_deref(), safe, "{name:?}");
        }
    }

    #[test]
    fn a_long_name_is_shortened_and_keeps_its_extension() {
        let safe = safe_file_name(&format!("{}.tar.gz", "ä".repeat(500))).unwrap();
        assert!(safe.len() <= MAX_BYTES && safe.ends_with("ä.gz"), "{safe}");
        let safe = safe_file_name(&format!("a.{}", "x".repeat(500))).unwrap();
        assert_eq!(safe.len(), MAX_BYTES);
    }

    #[test]
    fn a_name_that_is_no_longer_usable_when_it_is_shortened_is_refused_or_changed() {
        assert_eq!(safe_file_name(&format!("{}x", "_".repeat(500))), None);
        for (end, safe) in [("x.txt", "_con.txt"), ("x", "_con"), (".txt", "_con.txt")] {
            let name = format!("con{}{end}", " ".repeat(380));
            assert_eq!(safe_file_name(&name).as_deref(), Some(safe), "{name:?}");
        }
    }

    proptest! {
        #[test]
        fn a_safe_name_is_one_component_and_stays_as_it_is(name in any::<String>()) {
            if let Some(safe) = safe_file_name(&name) {
                let path = std::path::Path::new(&safe);
                prop_assert_eq!(path.components().count(), 1);
                prop_assert_eq!(path.file_name(), Some(path.as_os_str()));
                prop_assert!(!safe.contains(['/', '\\', '\0', ':']) && safe.len() <= MAX_BYTES);
                prop_assert_eq!(safe_file_name(&safe), Some(safe));
            }
        }
    }
}
