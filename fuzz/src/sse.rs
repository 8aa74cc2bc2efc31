//! What agents answer to clients: streams of events in any pieces, and what is in them.

use attache_client::parsing;

use crate::choice;

/// The first byte chooses how large an event may be and where the stream is cut; the rest is the stream.
pub fn sse(data: &[u8]) {
    let (choice, stream) = choice(data);
    let limit = if choice < 128 { usize::MAX } else { choice - 128 };
    let whole = parsing::events([stream], limit);
    for size in [1, 2, 3, 7, choice.max(1)] {
        assert_eq!(parsing::events(stream.chunks(size), limit), whole, "it matters where the network cuts");
    }
    if limit == usize::MAX {
        let events = whole.as_ref().expect("there is no limit");
        let kept: usize = events.iter().map(|(_, event)| event.len()).sum();
        assert!(kept <= stream.len(), "more came out than went in");
    }
    for (_, event) in whole.iter().flatten() {
        parsing::answers(event);
    }
    parsing::answers(stream);
}
