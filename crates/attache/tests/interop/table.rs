//! What is written down about a peer: a file for each row of the tables in `docs/interop.md`.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::sdk::{Binding, Protocol, Sdk};

/// What peers are tried with, in the order of the columns.
pub(crate) const FEATURES: [&str; 15] = [
    "card",
    "extended card",
    "send",
    "direct message",
    "stream",
    "multi-turn",
    "get",
    "list",
    "cancel",
    "resubscribe",
    "push configs",
    "webhook",
    "files",
    "data",
    "errors",
];

/// A peer: one way in which one version of an SDK talks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    pub(crate) sdk: Sdk,
    pub(crate) binding: Binding,
    pub(crate) protocol: Protocol,
}

/// Why a cell says anything but `pass`, or what is to be said about one that does.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Note {
    /// The peer has no such thing.
    Absent(&'static str),
    /// The peer does it wrong. What goes wrong contains the symptom, and where it does not any more, the note has to go.
    Fault { symptom: &'static str, evidence: &'static str },
    /// The peer has only a part of it, which works.
    Partly(&'static str),
}

/// A test for each row of a table, which are written down in this order.
macro_rules! rows {
    ($table:literal, $try:path; $($name:ident: $sdk:ident, $binding:ident, $protocol:ident;)*) => {
        const ORDER: &[&str] = &[$(stringify!($name)),*];

        $(
            #[test]
            fn $name() {
                use crate::sdk::{Binding, Protocol, Sdk};
                let (sdk, binding, protocol) = (Sdk::$sdk, Binding::$binding, Protocol::$protocol);
                let row = crate::table::Row { sdk, binding, protocol };
                let name = stringify!($name);
                crate::peers::keep(&format!("{}::{name}", $table), sdk.absent(), async move {
                    let outcomes = $try(&row).await;
                    let position = ORDER.iter().position(|other| *other == name).expect("it is one of them");
                    row.conclude(($table, position), &outcomes, about(&row), |feature| note(&row, feature));
                });
            }
        )*
    };
}

pub(crate) use rows;

/// What became of a feature.
#[derive(Debug, Clone)]
pub(crate) enum Outcome {
    Works,
    Absent,
    Fails(String),
}

/// What became of everything that was tried.
pub(crate) type Outcomes = Vec<(&'static str, Outcome)>;

impl Row {
    /// The peer in words.
    pub(crate) fn title(&self) -> String {
        let Self { sdk, binding, protocol } = self;
        format!("{}, {} {}", sdk.title(), binding.name(), protocol.name())
    }

    /// Writes down what was found out, and fails if that is not what has to be. `about_row` is what is to be said about the whole row.
    pub(crate) fn conclude(
        &self,
        place: (&str, usize),
        outcomes: &Outcomes,
        about_row: Option<&'static str>,
        note: impl Fn(&'static str) -> Option<Note>,
    ) {
        let mut cells = Vec::new();
        let mut wrong = Vec::new();
        for (feature, outcome) in outcomes {
            let (cell, said) = match (outcome, note(feature)) {
                (Outcome::Works, None) => ("pass", None),
                (Outcome::Works, Some(Note::Partly(said))) => ("pass", Some(said)),
                (Outcome::Absent, Some(Note::Absent(said))) => ("–", Some(said)),
                (Outcome::Fails(detail), Some(Note::Fault { symptom, evidence }))
                    if detail.contains(symptom) =>
                {
                    ("fault", Some(evidence))
                }
                (outcome, note) => {
                    wrong.push(format!("`{feature}`: {outcome:?}, and the note about it is {note:?}"));
                    ("fail", None)
                }
            };
            cells.push(json!({"feature": feature, "cell": cell, "note": said}));
        }
        self.write(place, about_row, &cells);
        assert!(wrong.is_empty(), "{}:\n{}", self.title(), wrong.join("\n"));
    }

    fn write(&self, (table, position): (&str, usize), note: Option<&str>, cells: &[Value]) {
        // Beside the SDKs, wherever `cargo xtask test` has put those.
        let folder = PathBuf::from(std::env::var_os("ATTACHE_PEERS").expect("there are peers"));
        let folder = folder.with_file_name("interop");
        std::fs::create_dir_all(&folder).expect("it can be made");
        let row = json!({
            "sdk": self.sdk.title(),
            "binding": self.binding.name(),
            "protocol": self.protocol.name(),
            "note": note,
            "cells": cells,
        });
        let file = folder.join(format!("{table}-{position:02}.json"));
        std::fs::write(file, row.to_string()).expect("it can be written");
    }
}
