//! Decides which functions are exposed.
//!
//! This is the only place that decides it, for the card and for every call. A function is hidden unless its metadata exposes it.
//! Some namespaces are never exposed. While the list of functions is not available, nothing is exposed.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
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
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exposure {
    /// Expose all functions, whatever their metadata. For development.
    pub all: bool,
    /// Expose only functions of this tier.
    pub tier: Option<String>,
}

/// Why a function cannot be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hidden {
    /// It is in a namespace that is never exposed.
    Internal(String),
    /// Its metadata does not expose it, or it is in another tier.
    NotExposed(String),
    /// There is no such function.
    Unknown(String),
    /// The list of functions is not available, so the exposure is unknown.
    Unverified(String),
}

impl fmt::Display for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Internal(id) => write!(
                f,
                "Function '{id}' is in the iii-engine internal namespace and is not exposed as an A2A skill"
            ),
            Self::NotExposed(id) => write!(
                f,
                "Function '{id}' is not exposed via a2a.expose metadata (or does not match the active --tier filter)"
            ),
            Self::Unknown(id) => {
                write!(f, "Error: remote error (function_not_found): Function {id} not found")
            }
            Self::Unverified(id) => write!(
                f,
                "Function '{id}' cannot be called now: the engine's list of functions is not available, so its exposure could \
                 not be verified"
            ),
        }
    }
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
            Some(tier) => Cow::Owned(Self { all: self.all, tier: Some(tier.to_owned()) }),
            None => Cow::Borrowed(self),
        }
    }

    /// Whether a function is exposed.
    pub fn exposes(&self, function: &FunctionInfo) -> bool {
        let exposed = self.all || function.metadata_value(EXPOSE) == Some(&Value::Bool(true));
        let tier = match &self.tier {
            None => true,
            Some(tier) => function.metadata_value(TIER).and_then(Value::as_str) == Some(tier),
        };
        !is_internal(&function.id) && exposed && tier
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
        if is_internal(id) {
            return Err(Hidden::Internal(id.to_owned()));
        }
        let Some(catalog) = catalog else { return Err(Hidden::Unverified(id.to_owned())) };
        match catalog.get(id) {
            Some(function) if self.exposes(function) => Ok(function.clone()),
            None if self.all && self.tier.is_none() => Err(Hidden::Unknown(id.to_owned())),
            // A caller that may not call a function must not learn whether it exists.
            Some(_) | None => Err(Hidden::NotExposed(id.to_owned())),
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
            assert!(Exposure { all: true, tier: None }.exposes(&function("a::b", metadata)));
        }
    }

    #[test]
    fn a_tier_shows_its_own_functions_and_no_others() {
        let partner = Exposure { all: false, tier: Some("partner".to_owned()) };
        assert!(partner.exposes(&function("a::b", json!({"a2a.expose": true, "a2a.tier": "partner"}))));
        for metadata in [
            json!({"a2a.expose": true}),
            json!({"a2a.expose": true, "a2a.tier": "public"}),
            json!({"a2a.expose": true, "a2a.tier": "Partner"}),
            json!({"a2a.expose": true, "a2a.tier": ["partner"]}),
            json!({"a2a.tier": "partner"}),
        ] {
            assert!(!partner.exposes(&function("a::b", metadata.clone())), "{metadata}");
        }
        let all_partners = Exposure { all: true, ..partner };
        assert!(all_partners.exposes(&function("a::b", json!({"a2a.tier": "partner"}))));
        assert!(!all_partners.exposes(&function("a::b", json!({}))));
    }

    #[test]
    fn nothing_is_exposed_while_the_list_of_functions_is_not_available() {
        let all = Exposure { all: true, tier: None };
        assert_eq!(all.exposed(None).count(), 0);
        assert_eq!(all.check("a::b", None), Err(Hidden::Unverified("a::b".to_owned())));
        assert_eq!(all.check("state::set", None), Err(Hidden::Internal("state::set".to_owned())));
    }

    #[test]
    fn each_reason_has_its_own_message() {
        let catalog = catalog([function("demo::hidden", json!({}))]);
        let text = |exposure: &Exposure, id| exposure.check(id, Some(&catalog)).unwrap_err().to_string();
        let by_author = Exposure::default();
        assert_eq!(
            text(&by_author, "demo::hidden"),
            "Function 'demo::hidden' is not exposed via a2a.expose metadata (or does not match the active --tier filter)"
        );
        assert_eq!(
            text(&by_author, "state::set"),
            "Function 'state::set' is in the iii-engine internal namespace and is not exposed as an A2A skill"
        );
        assert_eq!(
            text(&by_author, "no::such"),
            text(&by_author, "demo::hidden").replace("demo::hidden", "no::such")
        );
        let all = Exposure { all: true, tier: None };
        assert_eq!(
            text(&all, "no::such"),
            "Error: remote error (function_not_found): Function no::such not found"
        );
    }

    proptest! {
        #[test]
        fn no_setting_lifts_the_hard_floor(
            prefix in prop::sample::select(HARD_FLOOR.to_vec()), rest in ".{0,12}",
            all: bool, tier in prop::option::of("[a-c]"),
        ) {
            let id = format!("{prefix}{rest}");
            let function = function(&id, json!({"a2a.expose": true, "a2a.tier": tier.clone().unwrap_or_default()}));
            let exposure = Exposure { all, tier };
            prop_assert!(!exposure.exposes(&function));
            let refused = exposure.check(&id, Some(&catalog([function])));
            prop_assert_eq!(refused, Err(Hidden::Internal(id)));
        }

        #[test]
        fn exactly_the_functions_in_the_card_can_be_called(
            ids in prop::collection::vec("(a|b|state|a2a)::[a-d]", 1..8),
            flags in prop::collection::vec((any::<bool>(), "[xy]"), 8), all: bool, tier in prop::option::of("[xy]"),
        ) {
            let catalog = catalog(ids.iter().zip(&flags).map(|(id, (expose, tier))| {
                function(id, json!({"a2a.expose": expose, "a2a.tier": tier}))
            }));
            let exposure = Exposure { all, tier };
            let listed: Vec<_> = exposure.exposed(Some(&catalog)).map(|function| function.id.clone()).collect();
            for id in catalog.keys() {
                prop_assert_eq!(exposure.check(id, Some(&catalog)).is_ok(), listed.contains(id));
            }
        }
    }
}
