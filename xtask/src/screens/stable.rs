//! What differs from run to run, replaced by what does not.

/// The same text with ids and times that are always the same.
pub(super) fn stable(text: &str) -> String {
    let ids = found(text, "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx");
    let mut times = found(text, "xxxx-xx-xxTxx:xx:xx.xxxZ");
    times.sort_unstable();
    let mut out = text.to_owned();
    for (number, id) in ids.iter().enumerate() {
        out = out.replace(id, &format!("01a1e387-04e4-7628-a86b-81cb608d5d{:02x}", 0xbe - 7 * number));
    }
    for (number, time) in times.iter().enumerate() {
        out = out.replace(time, &format!("2026-11-16T08:{:02}:{:02}.186Z", 43 + number, 17 + 11 * number));
    }
    out
}

/// What looks like the pattern, in which an `x` is a hexadecimal digit: each once, in the order in which they come.
fn found<'a>(text: &'a str, pattern: &str) -> Vec<&'a str> {
    let fits = |like: &&str| {
        like.chars().zip(pattern.chars()).all(|(c, like)| c == like || (like == 'x' && c.is_ascii_hexdigit()))
    };
    let places = text.char_indices().filter_map(|(place, _)| text.get(place..place + pattern.len()));
    let mut found = Vec::new();
    for like in places.filter(fits) {
        if !found.contains(&like) {
            found.push(like);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_id_stays_the_same_and_times_keep_their_order() {
        let text = "0199c0de-0000-7000-8000-00000000000b 2026-01-02T03:04:05.678Z\n\
                    0199c0de-0000-7000-8000-00000000000a 2025-01-02T03:04:05.678Z\n\
                    0199c0de-0000-7000-8000-00000000000b";
        assert_eq!(
            stable(text),
            "01a1e387-04e4-7628-a86b-81cb608d5dbe 2026-11-16T08:44:28.186Z\n\
             01a1e387-04e4-7628-a86b-81cb608d5db7 2026-11-16T08:43:17.186Z\n\
             01a1e387-04e4-7628-a86b-81cb608d5dbe"
        );
    }
}
