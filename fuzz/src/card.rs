//! Cards of strangers: what was read can be written for every generation, and read again as the same.

use attache_protocol::AgentCard;
use attache_protocol::dialect::{dual_card, pure_card, read_card, v0_1_card, v0_3_card};
use attache_protocol::json;
use serde::Serialize;

/// A card as it is found at its address.
pub fn card(data: &[u8]) {
    let Ok(card) = read_card(data) else { return };
    let pure = pure_card(&card);
    assert_eq!(again(&pure), pure, "a card of 1.0 changes when it is read again");
    // A card without an address cannot be told from one of the other generation.
    if !pure.supported_interfaces.is_empty() {
        let dual = again(&dual_card(&card));
        assert_eq!(pure_card(&dual), pure, "a card of both generations says something else in 1.0");
        again(&v0_3_card(&card));
    }
    written(&v0_1_card(&card, "http://localhost/a2a/rpc"));
}

fn again(card: &impl Serialize) -> AgentCard {
    let text = written(card);
    read_card(&text).unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&text)))
}

fn written(card: &impl Serialize) -> Vec<u8> {
    let mut out = Vec::new();
    json::write(&mut out, card).expect("what was read can be written");
    out
}
