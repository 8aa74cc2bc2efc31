//! Decides which functions are exposed.
//!
//! This is the only place that decides it, for the card and for every call. A function is hidden unless its metadata exposes it.
//! Some namespaces are never exposed. While the list of functions is not available, nothing is exposed.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use attache_core::Rights;
use serde_json::Value;

use crate::{Catalog, FunctionInfo};

/// The namespaces that are never exposed: those of the engine and its infrastructure, and the entry points of protocols.
pub const HARD_FLOOR: [&str; 7] = ["engine::", "state::", "stream::", "iii.", "iii::", "mcp::", "a2a::"];

/// The metadata key that exposes a function. Only the value `true` does.
const EXPOSE: &str = "a2a.expose";

/// The metadata key for the tier of a function.
const TIER: &str = "a2a.tier";

/// The metadata key for the scopes that a caller must have.
const SCOPES: &str = "a2a.scopes";

/// Which functions are exposed.
///
/// A caller has one tier: that of its credential, otherwise [`tier`](Self::tier), otherwise the lowest of [`tiers`](Self::tiers).
/// Without any of them every exposed function is shown. Otherwise a caller sees the functions of its own tier. If the tiers have an
/// order, it also sees those of lower tiers, and functions without a tier.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exposure {
    /// Expose all functions, whatever their metadata. For development.
    pub all: bool,
    /// The tier of callers whose credential has none.
    pub tier: Option<String>,
    /// The order of the tiers, lowest first. Without it, tiers are not related.
    pub tiers: Vec<String>,
}

/// Why a function cannot be called. The text is for the caller, and does not tell whether the function exists.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Hidden {
    /// It is in a namespace that is never exposed.
    #[error("Function '{0}' is in the iii-engine internal namespace and is not exposed as an A2A skill")]
    Internal(String),
    /// The caller cannot call a function with this id.
    #[error("There is no function '{id}'")]
    Unavailable {
        /// The id.
        id: String,
        /// The reason, for the operator.
        reason: HiddenReason,
    },
    /// The list of functions is not available, so the exposure is unknown.
    #[error(
        "Function '{0}' cannot be called now: the engine's list of functions is not available, so its exposure could not be verified"
    )]
    Unverified(String),
}

/// Why a function is hidden from a caller, for the log of the operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HiddenReason {
    /// No worker has registered it.
    #[error("no worker has registered it")]
    Unknown,
    /// The metadata does not expose it.
    #[error(r#"its metadata does not have `"a2a.expose": true`"#)]
    NotMarked,
    /// The metadata has another value than `true`.
    #[error("its `a2a.expose` is `{0}`, and only the value `true` exposes a function")]
    MarkedWrong(String),
    /// It has another tier.
    #[error("its tier is `{function}`, and the tier of the caller is `{caller}`")]
    OtherTier {
        /// The tier of the function.
        function: String,
        /// The tier of the caller.
        caller: String,
    },
    /// It has no tier, and the caller has one.
    #[error("it has no `a2a.tier`, and the tier of the caller is `{0}`")]
    NoTier(String),
    /// The tier is neither a string nor a list of strings.
    #[error("its `a2a.tier` is neither a string nor a list of strings")]
    InvalidTier,
}

/// Whether a function is in a namespace that is never exposed.
pub fn is_internal(id: &str) -> bool {
    HARD_FLOOR.iter().any(|prefix| id.starts_with(prefix))
}

/// The scopes that a caller must have to call a function, all of them. If the metadata is neither a string nor a list of strings,
/// the result is a scope that no caller has: a mistake must not expose a protected function.
pub fn scopes(function: &FunctionInfo) -> Vec<String> {
    match function.metadata_value(SCOPES) {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::String(scopes)) => scopes.split_whitespace().map(str::to_owned).collect(),
        Some(Value::Array(scopes)) => {
            let texts = scopes.iter().map(|scope| scope.as_str().map(str::to_owned));
            texts.map(|text| text.unwrap_or_else(|| UNSATISFIABLE.to_owned())).collect()
        }
        Some(_) => vec![UNSATISFIABLE.to_owned()],
    }
}

/// No credential has this scope, because scopes contain no spaces.
const UNSATISFIABLE: &str = "a2a.scopes is not a list of strings";

/// Whether a caller has the scopes of a function.
pub fn permits(function: &FunctionInfo, rights: &Rights) -> bool {
    scopes(function).iter().all(|scope| rights.has(scope))
}

impl Exposure {
    /// The exposure for a caller. If the caller's credentials set a tier, it is that tier.
    pub fn to(&self, rights: &Rights) -> Cow<'_, Self> {
        match rights.tier() {
            Some(tier) => Cow::Owned(Self { tier: Some(tier.to_owned()), ..self.clone() }),
            None => Cow::Borrowed(self),
        }
    }

    /// The tier of the caller. `None` if all tiers are shown.
    pub fn tier(&self) -> Option<&str> {
        self.tier.as_deref().or(self.tiers.first().map(String::as_str))
    }

    /// Whether a function is exposed.
    pub fn exposes(&self, function: &FunctionInfo) -> bool {
        !is_internal(&function.id) && self.hidden(function).is_none()
    }

    /// Why a function is hidden, internal namespaces aside.
    fn hidden(&self, function: &FunctionInfo) -> Option<HiddenReason> {
        match function.metadata_value(EXPOSE) {
            _ if self.all => {}
            Some(Value::Bool(true)) => {}
            None | Some(Value::Null | Value::Bool(false)) => return Some(HiddenReason::NotMarked),
            Some(other) => {
                return Some(HiddenReason::MarkedWrong(other.to_string().chars().take(40).collect()));
            }
        }
        let caller = self.tier()?;
        match function.metadata_value(TIER) {
            None | Some(Value::Null) if self.tiers.is_empty() => {
                Some(HiddenReason::NoTier(caller.to_owned()))
            }
            // It is for every caller.
            None | Some(Value::Null) => None,
            Some(Value::String(tier)) => self.hidden_by_tiers(&[tier], caller),
            Some(Value::Array(tiers)) => match tiers.iter().map(Value::as_str).collect::<Option<Vec<_>>>() {
                Some(tiers) if !tiers.is_empty() => self.hidden_by_tiers(&tiers, caller),
                // A mistake must not expose a function.
                Some(_) | None => Some(HiddenReason::InvalidTier),
            },
            Some(_) => Some(HiddenReason::InvalidTier),
        }
    }

    /// A function with several tiers is for the callers of each of them.
    fn hidden_by_tiers(&self, tiers: &[impl AsRef<str>], caller: &str) -> Option<HiddenReason> {
        let mut tiers = tiers.iter().map(AsRef::as_ref);
        if tiers.clone().any(|tier| tier == caller || self.is_below(tier, caller)) {
            return None;
        }
        let first = tiers.next().unwrap_or_default().to_owned();
        let function = tiers.fold(first, |all, tier| format!("{all}, {tier}"));
        Some(HiddenReason::OtherTier { function, caller: caller.to_owned() })
    }

    fn is_below(&self, tier: &str, other: &str) -> bool {
        let rank = |name: &str| self.tiers.iter().position(|tier| tier == name);
        rank(tier).zip(rank(other)).is_some_and(|(tier, other)| tier < other)
    }

    /// The exposed functions, by id. Empty while the list is not available.
    pub fn exposed<'a>(
        &'a self,
        catalog: Option<&'a Catalog>,
    ) -> impl Iterator<Item = &'a Arc<FunctionInfo>> + 'a {
        catalog.into_iter().flat_map(BTreeMap::values).filter(|function| self.exposes(function))
    }

    /// The function with this id, if it is exposed.
    pub fn check(&self, id: &str, catalog: Option<&Catalog>) -> Result<Arc<FunctionInfo>, Hidden> {
        self.find(id, catalog, |function| self.hidden(function))
    }

    /// The function for messages that name no function. The operator chose it, so it is for every caller unless it has a tier.
    pub fn check_default(&self, id: &str, catalog: Option<&Catalog>) -> Result<Arc<FunctionInfo>, Hidden> {
        self.find(id, catalog, |function| {
            self.hidden(function).filter(|reason| !matches!(reason, HiddenReason::NoTier(_)))
        })
    }

    fn find(
        &self,
        id: &str,
        catalog: Option<&Catalog>,
        hidden: impl Fn(&FunctionInfo) -> Option<HiddenReason>,
    ) -> Result<Arc<FunctionInfo>, Hidden> {
        if is_internal(id) {
            return Err(Hidden::Internal(id.to_owned()));
        }
        let Some(catalog) = catalog else { return Err(Hidden::Unverified(id.to_owned())) };
        let unavailable = |reason| Err(Hidden::Unavailable { id: id.to_owned(), reason });
        match catalog.get(id) {
            Some(function) => hidden(function).map_or_else(|| Ok(function.clone()), unavailable),
            None => unavailable(HiddenReason::Unknown),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn function(id: &str, metadata: Value) -> FunctionInfo {
        let metadata = Some(metadata).filter(|metadata| !metadata.is_null());
        FunctionInfo { metadata, ..FunctionInfo::new(id) }
    }

    fn everything() -> Exposure {
        Exposure { all: true, ..Exposure::default() }
    }

    fn catalog(functions: impl IntoIterator<Item = FunctionInfo>) -> Catalog {
        functions.into_iter().map(|function| (function.id.clone(), Arc::new(function))).collect()
    }

    #[test]
    fn only_true_exposes_a_function() {
        let by_author = Exposure::default();
        assert!(by_author.exposes(&function("a::b", json!({"a2a.expose": true}))));
        for metadata in [
            json!(null),
            json!({}),
            json!({"a2a.expose": false}),
            json!({"a2a.expose": "true"}),
            json!({"a2a.expose": 1}),
            json!({"a2a.expose": [true]}),
            json!({"a2a": {"expose": true}}),
            json!("a2a.expose"),
            json!([{"a2a.expose": true}]),
        ] {
            assert!(!by_author.exposes(&function("a::b", metadata.clone())), "{metadata}");
            assert!(everything().exposes(&function("a::b", metadata)));
        }
    }

    #[test]
    fn a_tier_without_an_order_shows_its_own_functions_and_no_others() {
        let partner = Exposure { tier: Some("partner".to_owned()), ..Exposure::default() };
        assert!(partner.exposes(&function("a::b", json!({"a2a.expose": true, "a2a.tier": "partner"}))));
        for metadata in [
            json!({"a2a.expose": true}),
            json!({"a2a.expose": true, "a2a.tier": "public"}),
            json!({"a2a.expose": true, "a2a.tier": "Partner"}),
            json!({"a2a.expose": true, "a2a.tier": []}),
            json!({"a2a.expose": true, "a2a.tier": ["public", "ops"]}),
            json!({"a2a.expose": true, "a2a.tier": ["partner", 7]}),
            json!({"a2a.tier": "partner"}),
        ] {
            assert!(!partner.exposes(&function("a::b", metadata.clone())), "{metadata}");
        }
        let all_partners = Exposure { all: true, ..partner };
        assert!(all_partners.exposes(&function("a::b", json!({"a2a.tier": "partner"}))));
        assert!(!all_partners.exposes(&function("a::b", json!({}))));
    }

    #[test]
    fn a_function_can_have_several_tiers() {
        let both = function("a::b", json!({"a2a.expose": true, "a2a.tier": ["public", "partner"]}));
        let exposed =
            |tier: &str| Exposure { tier: Some(tier.to_owned()), ..Exposure::default() }.exposes(&both);
        assert!(exposed("public") && exposed("partner") && !exposed("ops"));
        let hidden = Exposure { tier: Some("ops".to_owned()), ..Exposure::default() }.hidden(&both).unwrap();
        assert_eq!(hidden.to_string(), "its tier is `public, partner`, and the tier of the caller is `ops`");
    }

    #[test]
    fn nothing_is_exposed_while_the_list_of_functions_is_not_available() {
        let all = everything();
        assert_eq!(all.exposed(None).count(), 0);
        assert_eq!(all.check("a::b", None), Err(Hidden::Unverified("a::b".to_owned())));
        assert_eq!(all.check("state::set", None), Err(Hidden::Internal("state::set".to_owned())));
    }

    /// The table of tiers in docs/functions.md.
    #[test]
    fn a_caller_sees_its_tier_and_those_below_it() {
        let ordered = |tier: Option<&str>| Exposure {
            tier: tier.map(str::to_owned),
            tiers: ["public", "partner", "internal"].map(str::to_owned).into(),
            ..Exposure::default()
        };
        let functions = [Some("public"), Some("partner"), Some("internal"), Some("other"), None];
        let seen = |exposure: &Exposure| {
            functions.map(|tier| {
                exposure.exposes(&function("a::b", json!({"a2a.expose": true, "a2a.tier": tier})))
            })
        };
        for (tier, expected) in [
            (None, [true, false, false, false, true]),
            (Some("public"), [true, false, false, false, true]),
            (Some("partner"), [true, true, false, false, true]),
            (Some("internal"), [true, true, true, false, true]),
            (Some("other"), [false, false, false, true, true]),
        ] {
            assert_eq!(seen(&ordered(tier)), expected, "{tier:?}");
        }
        let alone = |tier: &str| Exposure { tier: Some(tier.to_owned()), ..Exposure::default() };
        assert_eq!(seen(&alone("partner")), [false, true, false, false, false], "no order");
        assert_eq!(seen(&Exposure::default()), [true; 5], "no tier");
    }

    #[test]
    fn the_default_function_is_for_every_caller_unless_it_has_a_tier() {
        let chat =
            |tier: Value| catalog([function("a::chat", json!({"a2a.expose": true, "a2a.tier": tier}))]);
        let public = Exposure { tier: Some("public".to_owned()), ..Exposure::default() };
        assert!(public.check("a::chat", Some(&chat(json!(null)))).is_err());
        assert!(public.check_default("a::chat", Some(&chat(json!(null)))).is_ok());
        assert!(public.check_default("a::chat", Some(&chat(json!("ops")))).is_err());
        assert!(public.check_default("a::chat", Some(&catalog([function("a::chat", json!({}))]))).is_err());
    }

    #[test]
    fn the_caller_gets_the_same_text_for_every_reason_and_the_operator_gets_the_reason() {
        let catalog = catalog([
            function("demo::hidden", json!({})),
            function("demo::text", json!({"a2a.expose": "true"})),
            function("demo::ops", json!({"a2a.expose": true, "a2a.tier": "ops"})),
            function("demo::open", json!({"a2a.expose": true})),
            function("demo::odd", json!({"a2a.expose": true, "a2a.tier": 7})),
        ]);
        let public = Exposure { tier: Some("public".to_owned()), ..Exposure::default() };
        for (id, expected) in [
            ("demo::hidden", r#"its metadata does not have `"a2a.expose": true`"#),
            ("demo::text", r#"its `a2a.expose` is `"true"`, and only the value `true` exposes a function"#),
            ("demo::ops", "its tier is `ops`, and the tier of the caller is `public`"),
            ("demo::open", "it has no `a2a.tier`, and the tier of the caller is `public`"),
            ("demo::odd", "its `a2a.tier` is neither a string nor a list of strings"),
            ("no::such", "no worker has registered it"),
        ] {
            let hidden = public.check(id, Some(&catalog)).unwrap_err();
            assert_eq!(hidden.to_string(), format!("There is no function '{id}'"));
            let Hidden::Unavailable { reason, .. } = hidden else { panic!("{hidden:?}") };
            assert_eq!(reason.to_string(), expected);
        }
        let internal = public.check("state::set", Some(&catalog)).unwrap_err().to_string();
        assert_eq!(
            internal,
            "Function 'state::set' is in the iii-engine internal namespace and is not exposed as an A2A skill"
        );
    }

    proptest! {
        #[test]
        fn no_setting_lifts_the_hard_floor(
            prefix in prop::sample::select(HARD_FLOOR.to_vec()), rest in ".{0,12}",
            all: bool, tier in prop::option::of("[a-c]"), tiers in prop::collection::btree_set("[a-c]", 0..3),
        ) {
            let id = format!("{prefix}{rest}");
            let function = function(&id, json!({"a2a.expose": true, "a2a.tier": tier.clone().unwrap_or_default()}));
            let exposure = Exposure { all, tier, tiers: tiers.into_iter().collect() };
            prop_assert!(!exposure.exposes(&function));
            let refused = exposure.check(&id, Some(&catalog([function])));
            prop_assert_eq!(refused, Err(Hidden::Internal(id)));
        }

        #[test]
        fn exactly_the_functions_in_the_card_can_be_called(
            ids in prop::collection::vec("(a|b|state|a2a)::[a-d]", 1..8),
            flags in prop::collection::vec((any::<bool>(), "[xy]"), 8), all: bool, tier in prop::option::of("[xy]"),
            tiers in prop::collection::btree_set("[xy]", 0..3),
        ) {
            let catalog = catalog(ids.iter().zip(&flags).map(|(id, (expose, tier))| {
                function(id, json!({"a2a.expose": expose, "a2a.tier": tier}))
            }));
            let exposure = Exposure { all, tier, tiers: tiers.into_iter().collect() };
            let listed: Vec<_> = exposure.exposed(Some(&catalog)).map(|function| function.id.clone()).collect();
            for id in catalog.keys() {
                prop_assert_eq!(exposure.check(id, Some(&catalog)).is_ok(), listed.contains(id));
            }
        }
    }
}
