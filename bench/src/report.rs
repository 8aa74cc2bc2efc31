//! The results: rows of a table, judged against their targets, printed and written as JSON.

use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context, Result};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::harness::Raw;
use crate::machine::{Machine, Pinned};
use crate::stats::Repeated;

/// What a value is measured in.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum Unit {
    #[serde(rename = "requests/s")]
    RequestsPerSecond,
    #[serde(rename = "events/s")]
    EventsPerSecond,
    #[serde(rename = "µs")]
    Microseconds,
    #[serde(rename = "ms")]
    Milliseconds,
    #[serde(rename = "KiB")]
    Kibibytes,
    #[serde(rename = "times bare")]
    TimesBare,
}

/// What the subject's value is divided by.
#[derive(Clone)]
pub(crate) enum Reference {
    /// The bare server's values under the same load.
    Bare(Repeated),
    /// The subject's own values under another load.
    Own { values: Repeated, at: &'static str },
    /// Nothing; the value is judged by itself.
    None,
}

/// What is asked of a row.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    RatioAtLeast(f64),
    RatioAtMost(f64),
    ValueBelow(f64),
    /// Shown for the reader, not judged.
    Nothing,
}

/// How a row stands to its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Met,
    Missed,
    NotJudged,
}

/// One result. What is shown and judged are medians over the repetitions.
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) unit: Unit,
    pub(crate) subject: Repeated,
    pub(crate) reference: Reference,
    pub(crate) target: Target,
}

impl Row {
    /// The subject's value as a multiple of the reference.
    pub(crate) fn ratio(&self) -> Option<f64> {
        self.reference.values().map(|values| self.subject.median() / values.median())
    }

    /// The least and the greatest ratio of any repetition: how far to trust the one shown.
    fn range(&self) -> Option<(f64, f64)> {
        self.subject.ratios(self.reference.values()?)
    }

    pub(crate) fn verdict(&self) -> Verdict {
        let met = match (self.target, self.ratio()) {
            (Target::Nothing, _) => return Verdict::NotJudged,
            (Target::RatioAtLeast(limit), Some(ratio)) => ratio >= limit,
            (Target::RatioAtMost(limit), Some(ratio)) => ratio <= limit,
            (Target::RatioAtLeast(_) | Target::RatioAtMost(_), None) => false,
            (Target::ValueBelow(limit), _) => self.subject.median() < limit,
        };
        if met { Verdict::Met } else { Verdict::Missed }
    }

    fn cells(&self) -> [String; 7] {
        let none = || "–".to_owned();
        [
            self.name.clone(),
            self.unit.show(self.subject.median()),
            match &self.reference {
                Reference::Bare(values) => self.unit.show(values.median()),
                Reference::Own { values, at } => format!("{} own, {at}", self.unit.show(values.median())),
                Reference::None => none(),
            },
            self.ratio().map_or_else(none, |ratio| format!("{ratio:.2}")),
            self.range().map_or_else(none, |(least, greatest)| format!("{least:.2} to {greatest:.2}")),
            match self.target {
                Target::RatioAtLeast(limit) => format!("≥ {limit}"),
                Target::RatioAtMost(limit) => format!("≤ {limit}"),
                Target::ValueBelow(limit) => format!("< {limit} {}", self.unit.symbol()),
                Target::Nothing => none(),
            },
            match self.verdict() {
                Verdict::Met => "yes".to_owned(),
                Verdict::Missed => "NO".to_owned(),
                Verdict::NotJudged => none(),
            },
        ]
    }
}

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let target = match self.target {
            Target::RatioAtLeast(limit) => json!({ "ratio_at_least": limit }),
            Target::RatioAtMost(limit) => json!({ "ratio_at_most": limit }),
            Target::ValueBelow(limit) => json!({ "value_below": limit }),
            Target::Nothing => Value::Null,
        };
        let pass = match self.verdict() {
            Verdict::Met => Some(true),
            Verdict::Missed => Some(false),
            Verdict::NotJudged => None,
        };
        let reference = match &self.reference {
            Reference::Bare(values) => json!({ "of": "bare", "value": values.median() }),
            Reference::Own { values, at } => json!({ "of": "own", "at": at, "value": values.median() }),
            Reference::None => Value::Null,
        };
        let row = json!({
            "name": self.name,
            "unit": self.unit,
            "subject": self.subject.median(),
            "reference": reference,
            "ratio": self.ratio(),
            "ratio_range": self.range(),
            "target": target,
            "pass": pass,
        });
        row.serialize(serializer)
    }
}

impl Reference {
    fn values(&self) -> Option<&Repeated> {
        match self {
            Self::Bare(values) | Self::Own { values, .. } => Some(values),
            Self::None => None,
        }
    }
}

impl Unit {
    fn symbol(self) -> &'static str {
        match self {
            Self::RequestsPerSecond => "/s",
            Self::EventsPerSecond => "ev/s",
            Self::Microseconds => "µs",
            Self::Milliseconds => "ms",
            Self::Kibibytes => "KiB",
            Self::TimesBare => "× bare",
        }
    }

    fn show(self, value: f64) -> String {
        let digits = match self {
            Self::RequestsPerSecond | Self::EventsPerSecond if value >= 100.0 => 0,
            Self::RequestsPerSecond | Self::EventsPerSecond | Self::Microseconds | Self::Milliseconds => 1,
            Self::Kibibytes | Self::TimesBare => 2,
        };
        format!("{} {}", grouped(&format!("{value:.digits$}")), self.symbol())
    }
}

/// Separates the thousands of a formatted number.
pub(crate) fn grouped(number: &str) -> String {
    let (whole, rest) = number.split_at(number.find('.').unwrap_or(number.len()));
    let digits = whole.trim_start_matches('-').len();
    let mut shown = whole[..whole.len() - digits].to_owned();
    for (place, digit) in whole[whole.len() - digits..].char_indices() {
        if place > 0 && (digits - place).is_multiple_of(3) && digit.is_ascii_digit() {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown + rest
}

/// A work that could not be measured.
#[derive(Serialize)]
pub(crate) struct Failure {
    pub(crate) work: &'static str,
    pub(crate) reason: String,
}

/// How many windows were measured, and in how many of them other processes were at work on the same cores.
#[derive(Default, Serialize)]
pub(crate) struct Windows {
    pub(crate) measured: usize,
    pub(crate) disturbed: usize,
}

/// Everything a run found out.
pub(crate) struct Report {
    pub(crate) machine: Machine,
    pub(crate) settings: Value,
    pub(crate) rows: Vec<Row>,
    pub(crate) failures: Vec<Failure>,
    pub(crate) raw: Vec<Raw>,
    pub(crate) windows: Windows,
}

impl Report {
    /// Whether every work was measured, whatever came out.
    pub(crate) fn is_complete(&self) -> bool {
        self.failures.is_empty()
    }

    /// Prints the table to stdout.
    pub(crate) fn print(&self) -> Result<()> {
        write!(io::stdout().lock(), "{self}").context("printing the results")
    }

    /// Writes everything as JSON to `path`, making the directories it needs.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let written = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs();
        let report = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "written_at_unix": written,
            "machine": self.machine,
            "settings": self.settings,
            "results": self.rows,
            "failures": self.failures,
            "windows": self.windows,
            "raw": self.raw,
        });
        let text = serde_json::to_string_pretty(&report)? + "\n";
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory).with_context(|| format!("making `{}`", directory.display()))?;
        }
        fs::write(path, text).with_context(|| format!("writing `{}`", path.display()))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = ["work", "subject", "bare", "ratio", "range", "target", "ok"].map(str::to_owned);
        let table: Vec<[String; 7]> =
            std::iter::once(header).chain(self.rows.iter().map(Row::cells)).collect();
        let mut widths = [0; 7];
        for cells in &table {
            for (width, cell) in widths.iter_mut().zip(cells) {
                *width = cell.chars().count().max(*width);
            }
        }
        let [w0, w1, w2, w3, w4, w5, _] = widths;
        for (line, [work, subject, bare, ratio, range, target, ok]) in table.iter().enumerate() {
            writeln!(
                f,
                "{work:<w0$} | {subject:>w1$} | {bare:<w2$} | {ratio:>w3$} | {range:<w4$} | {target:<w5$} | {ok}"
            )?;
            if line == 0 {
                writeln!(f, "{}", widths.map(|width| "-".repeat(width)).join("-|-"))?;
            }
        }
        for failure in &self.failures {
            writeln!(f, "{}: not measured: {}", failure.work, failure.reason)?;
        }
        let (repeat, seconds) = (&self.settings["repeat"], &self.settings["seconds"]);
        write!(f, "medians of {repeat} windows of {seconds} s; ")?;
        match self.machine.cores.pinned {
            Some(Pinned { server, load }) => {
                let awake = if self.machine.cores.awake { " and always awake" } else { "" };
                writeln!(f, "server on core {server}, load generator on core {load}{awake}")?
            }
            None => writeln!(f, "server and load generator share their cores")?,
        }
        let count = |verdict| self.rows.iter().filter(|row| row.verdict() == verdict).count();
        let (met, missed) = (count(Verdict::Met), count(Verdict::Missed));
        writeln!(f, "{met} of {} targets met", met + missed)?;
        let Windows { measured, disturbed } = self.windows;
        if disturbed > 0 {
            writeln!(
                f,
                "other processes disturbed {disturbed} of {measured} windows; repeat on an idle machine"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(subject: f64, reference: Reference, target: Target) -> Row {
        Row { name: "x".into(), unit: Unit::Kibibytes, subject: Repeated(vec![subject]), reference, target }
    }

    #[test]
    fn a_ratio_that_reaches_its_target_exactly_meets_it() {
        let half = || Reference::Bare(Repeated(vec![2.0]));
        assert_eq!(row(1.0, half(), Target::RatioAtLeast(0.5)).verdict(), Verdict::Met);
        assert_eq!(row(1.0, half(), Target::RatioAtMost(0.5)).verdict(), Verdict::Met);
        assert_eq!(row(1.0, half(), Target::RatioAtLeast(0.51)).verdict(), Verdict::Missed);
        assert_eq!(row(1.0, half(), Target::RatioAtMost(0.49)).verdict(), Verdict::Missed);
    }

    #[test]
    fn a_value_at_its_limit_is_not_below_it() {
        assert_eq!(row(32.0, Reference::None, Target::ValueBelow(32.0)).verdict(), Verdict::Missed);
        assert_eq!(row(31.9, Reference::None, Target::ValueBelow(32.0)).verdict(), Verdict::Met);
    }

    #[test]
    fn what_cannot_be_divided_does_not_pass() {
        assert_eq!(row(1.0, Reference::None, Target::RatioAtLeast(0.5)).verdict(), Verdict::Missed);
        let nothing = Reference::Bare(Repeated(vec![f64::NAN]));
        assert_eq!(row(1.0, nothing, Target::RatioAtMost(0.5)).verdict(), Verdict::Missed);
        assert_eq!(row(1.0, Reference::None, Target::Nothing).verdict(), Verdict::NotJudged);
    }

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!(Unit::RequestsPerSecond.show(93_639.4), "93,639 /s");
        assert_eq!(Unit::EventsPerSecond.show(1_234_567.0), "1,234,567 ev/s");
        assert_eq!(Unit::Microseconds.show(999.96), "1,000.0 µs");
        assert_eq!(Unit::Kibibytes.show(-0.7), "-0.70 KiB");
        assert_eq!(Unit::Kibibytes.show(f64::NAN), "NaN KiB");
    }
}
