//! The settings of a budget.

use attache_agents::budget::BudgetOptions;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::units::{Count, FromText, Time};

/// How much each caller may use in a period.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct BudgetSettings {
    /// How many tokens, in and out; only for models
    pub(crate) tokens: Option<FromText<Count>>,
    /// How much time all turns together may take
    time: Option<FromText<Time>>,
    /// The period; 1 day if this is not set
    per: Option<FromText<Time>>,
}

impl BudgetSettings {
    pub(crate) fn options(&self) -> BudgetOptions {
        BudgetOptions::default().with(|options| {
            options.tokens = self.tokens.as_ref().map(|tokens| u64::from(tokens.0.0.get()));
            options.time = self.time.as_ref().map(|time| time.0.0);
            if let Some(period) = &self.per {
                options.period = period.0.0;
            }
        })
    }
}
