//! Reports about an agent at work: tool calls, tokens, thoughts, plans, changes of files.
//!
//! A report becomes a status update whose metadata is in one namespace, so that every agent uses the same names. [`ReportOptions`]
//! decide about the namespace and about what callers may see. What is not exposed is not written to the log either.

mod cut;
mod sections;
mod tool_file;
mod visibility;

use std::fmt;

use attache_protocol::{AgentExtension, JsonObject, Part, TaskState};
use serde_json::{Map, Value, json};

pub use self::sections::{FileDiff, PlanStep, ToolReport, ToolStatus, Usage};

pub(crate) use self::cut::{cut, cut_value};
pub(crate) use self::sections::Section;
pub(crate) use self::tool_file::ToolFiles;
pub use self::tool_file::{take_tool_file, take_tool_file_from_text};
pub(crate) use self::visibility::{hide_reports, is_piece, is_report_only, pieces_id};

use crate::{Emitted, Turn};

/// The extension for metadata in the namespace `attache`. Only readers that activate it get this metadata.
pub const REPORTS_EXTENSION: &str = "urn:attache:extension:reports:v1";

/// The extensions of iac-code for its metadata. Its clients get the metadata without asking for it.
const IAC_CODE_METADATA: &str = "urn:iac-code:a2a:artifact-metadata:v1";
const IAC_CODE_THINKING: &str = "urn:iac-code:a2a:thinking-exposure:v1";

/// The member of the metadata that all members of reports are in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Namespace {
    /// `attache`, for readers that activate [the extension](REPORTS_EXTENSION).
    #[default]
    Attache,
    /// `iac_code`, with the names that clients of iac-code know, for all readers.
    IacCode,
}

impl Namespace {
    /// The name of the member.
    pub fn name(self) -> &'static str {
        match self {
            Self::Attache => "attache",
            Self::IacCode => "iac_code",
        }
    }
}

/// What callers see of an agent at work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exposure {
    /// Tool calls, plans, changes of files, and decisions about permissions that were made without the caller.
    pub tool_trace: bool,
    /// The thoughts of a model, as it wrote them.
    pub raw_thinking: bool,
}

/// Tool calls, but no thoughts.
impl Default for Exposure {
    fn default() -> Self {
        Self { tool_trace: true, raw_thinking: false }
    }
}

/// A name that is not one of something that can be exposed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` cannot be exposed, expected `tool-trace`, `raw-thinking`, `all` or `none`")]
pub struct UnknownExposure(pub String);

impl Exposure {
    /// Nothing.
    pub const NONE: Self = Self { tool_trace: false, raw_thinking: false };

    /// Reads names, such as `tool-trace` or `raw_thinking`. `all` or `*` is everything; `none`, `off`, `false`, `0` and an empty
    /// text are nothing. One text can have several names, separated by `,` or `;`.
    pub fn parse<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, UnknownExposure> {
        let mut exposure = Self::NONE;
        for name in names.into_iter().flat_map(|text| text.split([',', ';'])) {
            match name.trim().to_ascii_lowercase().replace('_', "-").as_str() {
                "tool-trace" => exposure.tool_trace = true,
                "raw-thinking" => exposure.raw_thinking = true,
                "all" | "*" => exposure = Self { tool_trace: true, raw_thinking: true },
                "" | "none" | "off" | "false" | "0" => {}
                _ => return Err(UnknownExposure(name.trim().to_owned())),
            }
        }
        Ok(exposure)
    }

    /// The names of what is exposed, as cards list them.
    pub fn types(self) -> Vec<&'static str> {
        let raw = self.raw_thinking.then_some("raw_thinking");
        raw.into_iter().chain(self.tool_trace.then_some("tool_trace")).collect()
    }
}

/// How agents report what they do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReportOptions {
    /// The namespace of the metadata. `attache` unless set.
    pub namespace: Namespace,
    /// What callers see. Tool calls, but no thoughts, unless set.
    pub exposure: Exposure,
}

impl ReportOptions {
    /// Sets `namespace`.
    pub fn namespace(mut self, namespace: Namespace) -> Self {
        self.namespace = namespace;
        self
    }

    /// Sets `exposure`.
    pub fn exposure(mut self, exposure: Exposure) -> Self {
        self.exposure = exposure;
        self
    }

    /// The extensions that a card lists for reports.
    pub fn extensions(&self) -> Vec<AgentExtension> {
        let types = self.exposure.types();
        let with = |uri: &str, text: &str, params: Value| {
            let mut extension = AgentExtension::new(uri).description(text);
            extension.params = JsonObject::new(&params).ok();
            extension
        };
        match self.namespace {
            Namespace::Attache => vec![with(
                REPORTS_EXTENSION,
                "Status updates have the metadata `attache`: tool calls, plans, changes of files, tokens, permissions",
                json!({"namespace": "attache", "enabledTypes": types}),
            )],
            Namespace::IacCode => {
                let metadata = AgentExtension::new(IAC_CODE_METADATA).description(
                    "Status updates have the metadata `iac_code`: tool calls, permissions, tokens",
                );
                let thinking = || {
                    with(
                        IAC_CODE_THINKING,
                        "Which signals of the agent at work are exposed",
                        json!({"enabledTypes": types}),
                    )
                };
                std::iter::once(metadata).chain((!types.is_empty()).then(thinking)).collect()
            }
        }
    }

    /// The metadata of a report. `None` if nothing of it may be seen.
    pub(crate) fn metadata(&self, report: &Report) -> Option<JsonObject> {
        let visible = |section: &&Section| {
            report.is_allowed
                || match section.exposed_with() {
                    Some(Exposed::ToolTrace) => self.exposure.tool_trace,
                    Some(Exposed::RawThinking) => self.exposure.raw_thinking,
                    None => true,
                }
        };
        let sections = report.sections.iter().filter(visible);
        let members: Map<String, Value> = sections
            .filter_map(|section| section.member(self.namespace))
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        if members.is_empty() {
            return None;
        }
        JsonObject::new(&Map::from_iter([(self.namespace.name().to_owned(), Value::Object(members))])).ok()
    }
}

/// What has to be exposed for a section of a report.
pub(crate) enum Exposed {
    ToolTrace,
    RawThinking,
}

/// A report about an agent at work: metadata for programs, and a text for people.
///
/// ```
/// use attache_core::{AgentResult, Report, ToolReport, Turn, Usage};
///
/// async fn work(turn: Turn) -> AgentResult {
///     turn.report(ToolReport::started("call-1").name("search")).await?;
///     turn.report(ToolReport::completed("call-1").name("search").result("3 pages")).await?;
///     turn.report(Report::usage(Usage::new(120, 40))).await?;
///     turn.complete().await
/// }
/// ```
#[derive(Clone, Default, PartialEq)]
pub struct Report {
    text: String,
    sections: Vec<Section>,
    is_allowed: bool,
}

impl Report {
    fn of(section: Section) -> Self {
        Self { sections: vec![section], ..Self::default() }
    }

    /// A tool call.
    pub fn tool(tool: ToolReport) -> Self {
        Self::of(Section::Tool(Box::new(tool)))
    }

    /// The tokens that the turn has used.
    pub fn usage(usage: Usage) -> Self {
        Self::of(Section::Usage(usage))
    }

    /// A thought, or the next piece of one.
    pub fn thinking(text: impl Into<String>) -> Self {
        Self::of(Section::Thinking(text.into()))
    }

    /// The plan of the agent, as it is now.
    pub fn plan(steps: impl IntoIterator<Item = PlanStep>) -> Self {
        Self::of(Section::Plan(steps.into_iter().collect()))
    }

    /// Changes of files.
    pub fn diffs(diffs: impl IntoIterator<Item = FileDiff>) -> Self {
        Self::of(Section::Diff(diffs.into_iter().collect()))
    }

    /// How far the work is, and how far it will go, if that is known.
    pub fn progress(progress: f64, total: Option<f64>) -> Self {
        Self::of(Section::Progress { progress, total })
    }

    /// Why the agent stopped before it was done.
    pub fn stop_reason(reason: impl Into<String>) -> Self {
        Self::of(Section::StopReason(reason.into()))
    }

    /// Members of the permission protocol, which [`Turn::permission`] and its relatives make.
    pub(crate) fn section(section: Section) -> Self {
        Self::of(section)
    }

    /// This report and another one, in one status update.
    pub fn and(mut self, other: impl Into<Self>) -> Self {
        let other = other.into();
        self.sections.extend(other.sections);
        if self.text.is_empty() {
            self.text = other.text;
        }
        self
    }

    /// Changes all texts, but for thoughts, which come in pieces.
    pub(crate) fn change_texts(&mut self, change: &dyn Fn(&mut String)) {
        change(&mut self.text);
        self.sections.iter_mut().for_each(|section| section.change_texts(change));
    }

    /// Adds a text for people. Readers of the namespace `iac_code` do not get it.
    pub fn text(mut self, text: impl Into<String>) -> Self {
        self.text = text.into();
        self
    }

    /// Exposes the report whatever the options of the server say, because the settings of the agent itself allow it.
    pub fn allowed(mut self) -> Self {
        self.is_allowed = true;
        self
    }
}

impl From<ToolReport> for Report {
    fn from(tool: ToolReport) -> Self {
        Self::tool(tool)
    }
}

impl From<Usage> for Report {
    fn from(usage: Usage) -> Self {
        Self::usage(usage)
    }
}

/// Without contents, which may be secret.
impl fmt::Debug for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.sections.iter().map(Section::name).collect();
        f.debug_tuple("Report").field(&names).finish()
    }
}

impl Turn {
    /// Reports what the agent does. If callers may see nothing of it, there is no event. A file in the result of a tool,
    /// `{"artifact": {"filename": …, "mediaType": …, "content": …}}`, becomes an [artifact](Self::add_file) in any case, and the report
    /// only describes it.
    pub fn report(&self, report: impl Into<Report>) -> Emitted {
        let mut report = report.into();
        let options = self.report_options();
        for section in &mut report.sections {
            if let Section::Thinking(text) = section
                && (report.is_allowed || options.exposure.raw_thinking)
            {
                // People read the same piece, so it is searched together with the pieces before.
                let has_text = *text == report.text;
                self.inner.redact_thinking(text, has_text);
                if has_text {
                    report.text.clone_from(text);
                }
            }
        }
        // Files are searched as artifacts.
        let results = report.sections.iter_mut().filter_map(Section::result);
        let files: Vec<Part> = results.filter_map(tool_file::take).collect();
        self.inner.redact_report(&mut report);
        report.sections.retain(|section| !matches!(section, Section::Thinking(text) if text.is_empty()));
        let mut emitted = match options.metadata(&report) {
            Some(metadata) => self.update_report(report.text, metadata),
            None => Emitted::new(Ok(0)),
        };
        for file in files {
            if emitted.is_failed() {
                break;
            }
            emitted = self.add_file(file);
        }
        emitted
    }

    fn update_report(&self, text: String, metadata: JsonObject) -> Emitted {
        let text = match self.report_options().namespace {
            Namespace::Attache => text,
            Namespace::IacCode => String::new(),
        };
        let parts = (!text.is_empty()).then(|| vec![Part::text(text)]);
        self.update(TaskState::Working, parts, Some(metadata))
    }

    /// A report as metadata, for a part or an artifact. `None` if callers may see nothing of it.
    pub fn report_metadata(&self, report: impl Into<Report>) -> Option<JsonObject> {
        let mut report = report.into();
        self.inner.redact_report(&mut report);
        self.report_options().metadata(&report)
    }

    /// How reports are made, and what callers may see.
    pub fn report_options(&self) -> ReportOptions {
        self.inner.service.options.reports
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_the_exposure_is_read() {
        let both = Exposure { tool_trace: true, raw_thinking: true };
        let raw = Exposure { tool_trace: false, raw_thinking: true };
        for (names, expected) in [
            (vec!["tool_trace"], Exposure::default()),
            (vec!["tool-trace"], Exposure::default()),
            (vec!["raw-thinking"], raw),
            (vec![" RAW_THINKING "], raw),
            (vec!["tool-trace", "raw-thinking"], both),
            (vec!["tool_trace;raw_thinking"], both),
            (vec!["tool-trace, raw-thinking"], both),
            (vec!["all"], both),
            (vec!["*"], both),
            (vec!["none"], Exposure::NONE),
            (vec!["off"], Exposure::NONE),
            (vec!["false"], Exposure::NONE),
            (vec!["0"], Exposure::NONE),
            (vec![""], Exposure::NONE),
            (vec![], Exposure::NONE),
        ] {
            assert_eq!(Exposure::parse(names.clone()), Ok(expected), "{names:?}");
        }
        let error = Exposure::parse(["everything"]).unwrap_err().to_string();
        assert!(error.contains("`everything`") && error.contains("`raw-thinking`"), "{error}");
    }

    fn shown(options: ReportOptions, report: impl Into<Report>) -> Option<Value> {
        options.metadata(&report.into()).map(|metadata| metadata.read().unwrap())
    }

    #[test]
    fn what_is_not_exposed_is_not_in_a_report() {
        let options = ReportOptions::default();
        assert_eq!(shown(options, Report::thinking("hm")), None);
        let allowed = shown(options, Report::thinking("hm").allowed());
        assert_eq!(allowed, Some(json!({"attache": {"thinking": {"type": "raw_thinking", "text": "hm"}}})));
        let silent = options.exposure(Exposure::NONE);
        assert_eq!(shown(silent, ToolReport::started("t")), None);
        assert_eq!(shown(silent, Report::plan([PlanStep::new("a")])), None);
        let usage = Report::tool(ToolReport::started("t")).and(Usage::new(1, 2));
        let expected = json!({"attache": {"usage": {"inputTokens": 1, "outputTokens": 2, "totalTokens": 3}}});
        assert_eq!(shown(silent, usage), Some(expected));
    }

    #[test]
    fn the_namespace_of_iac_code_has_the_names_of_its_document() {
        let options = ReportOptions::default()
            .namespace(Namespace::IacCode)
            .exposure(Exposure { tool_trace: true, raw_thinking: true });
        let tool =
            ToolReport::input_complete("t").name("bash").title("Run").kind("execute").input(json!({"a": 1}));
        assert_eq!(
            shown(options, tool),
            Some(
                json!({"iac_code": {"tool": {"status": "input_complete", "toolUseId": "t", "name": "bash", "input": {"a": 1}}}})
            )
        );
        assert_eq!(
            shown(options, ToolReport::input_delta("t", 12)),
            Some(
                json!({"iac_code": {"tool": {"status": "input_delta", "toolUseId": "t", "partialJsonLength": 12}}})
            )
        );
        assert_eq!(shown(options, ToolReport::running("t")), None);
        for (tool, status) in [
            (ToolReport::completed("t").result("ok"), "completed"),
            (ToolReport::failed("t").result("ok"), "failed"),
        ] {
            assert_eq!(
                shown(options, tool),
                Some(json!({"iac_code": {"tool": {"status": status, "toolUseId": "t", "result": "ok"}}}))
            );
        }
        assert_eq!(
            shown(options, Report::thinking("ä".repeat(4_001))),
            Some(json!({"iac_code": {"thinking": {"type": "raw_thinking", "text": "ä".repeat(4_000)}}}))
        );
        let usage = Usage::new(3, 4).with("cost", 5);
        assert_eq!(
            shown(options, usage),
            Some(json!({"iac_code": {"usage": {"inputTokens": 3, "outputTokens": 4, "totalTokens": 7}}}))
        );
    }

    #[test]
    fn cards_list_the_extensions_of_the_namespace() {
        let uris = |options: ReportOptions| {
            let extensions = options.extensions();
            let entry =
                |it: AgentExtension| (it.uri, it.params.map(|params| params.read::<Value>().unwrap()));
            extensions.into_iter().map(entry).collect::<Vec<_>>()
        };
        let ours = json!({"namespace": "attache", "enabledTypes": ["tool_trace"]});
        assert_eq!(uris(ReportOptions::default()), [(REPORTS_EXTENSION.to_owned(), Some(ours))]);
        let theirs = ReportOptions::default().namespace(Namespace::IacCode);
        let metadata = ("urn:iac-code:a2a:artifact-metadata:v1".to_owned(), None);
        let thinking = (
            "urn:iac-code:a2a:thinking-exposure:v1".to_owned(),
            Some(json!({"enabledTypes": ["tool_trace"]})),
        );
        assert_eq!(uris(theirs), [metadata.clone(), thinking]);
        assert_eq!(uris(theirs.exposure(Exposure::NONE)), [metadata]);
    }

    #[test]
    fn plans_and_changes_of_files_have_at_most_100_entries() {
        let count = |report: Report, section: &str| {
            let shown = shown(ReportOptions::default(), report).unwrap();
            shown["attache"][section].as_array().unwrap().len()
        };
        for (given, expected) in [(100, 100), (101, 100)] {
            let steps = (0..given).map(|number| PlanStep::new(number.to_string()));
            assert_eq!(count(Report::plan(steps), "plan"), expected);
            let diffs = (0..given).map(|number| FileDiff {
                path: number.to_string(),
                old_text: None,
                new_text: String::new(),
            });
            assert_eq!(count(Report::diffs(diffs), "diff"), expected);
        }
    }
}
