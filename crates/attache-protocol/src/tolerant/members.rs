//! The members of a JSON object, by the names that they have in any version.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::value::RawValue;

use crate::{Json, JsonObject};

/// The members of an object. `null` counts as absent.
pub(super) struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

/// Whether two names are the same, apart from case and underscores: `taskId`, `task_id` and `taskID` are.
fn same(a: &str, b: &str) -> bool {
    fn letters(name: &str) -> impl Iterator<Item = u8> {
        name.bytes().filter(|b| *b != b'_').map(|b| b.to_ascii_lowercase())
    }
    letters(a).eq(letters(b))
}

impl<'a> Members<'a> {
    pub(super) fn of(json: &'a RawValue) -> Option<Self> {
        let members: BTreeMap<Cow<'a, str>, &'a RawValue> = serde_json::from_str(json.get()).ok()?;
        Some(Self(members.into_iter().filter(|(_, value)| value.get() != "null").collect()))
    }

    /// The member with the first of these names that exists.
    pub(super) fn get(&self, names: &[&str]) -> Option<&'a RawValue> {
        names.iter().find_map(|name| Some(self.0.iter().find(|(key, _)| same(key, name))?.1))
    }

    pub(super) fn has(&self, names: &[&str]) -> bool {
        self.get(names).is_some()
    }

    /// A member that is an object.
    pub(super) fn object(&self, names: &[&str]) -> Option<Self> {
        names.iter().find_map(|name| Members::of(self.get(&[name])?))
    }

    /// A text. A number or a truth value is read as its text. An empty text counts as absent.
    pub(super) fn text(&self, names: &[&str]) -> Option<String> {
        names.iter().find_map(|name| text(self.get(&[name])?)).filter(|text| !text.is_empty())
    }

    /// A truth value, which may be written as text. Anything else is false.
    pub(super) fn flag(&self, name: &str) -> bool {
        self.text(&[name]).is_some_and(|text| text.eq_ignore_ascii_case("true") || text == "1")
    }

    /// A number, which may be written as text.
    pub(super) fn number<T: TryFrom<i64>>(&self, names: &[&str]) -> Option<T> {
        let text = self.text(names)?;
        T::try_from(text.parse().ok()?).ok()
    }

    /// The items of a list. A single value is a list of one.
    pub(super) fn list(&self, names: &[&str]) -> Vec<&'a RawValue> {
        let Some(json) = self.get(names) else { return Vec::new() };
        let items: Vec<&RawValue> = serde_json::from_str(json.get()).unwrap_or_else(|_| vec![json]);
        items.into_iter().filter(|item| item.get() != "null").collect()
    }

    /// The texts of a list.
    pub(super) fn texts(&self, names: &[&str]) -> Vec<String> {
        self.list(names).into_iter().filter_map(text).collect()
    }

    /// An object as it is written.
    pub(super) fn json_object(&self, name: &str) -> Option<JsonObject> {
        serde_json::from_str(self.get(&[name])?.get()).ok()
    }
}

/// The text of a string, a number or a truth value.
pub(super) fn text(json: &RawValue) -> Option<String> {
    match json.get().as_bytes().first()? {
        b'"' => serde_json::from_str(json.get()).ok(),
        b'{' | b'[' | b'n' => None,
        _ => Some(json.get().to_owned()),
    }
}

/// A value as it is written.
pub(super) fn json(raw: &RawValue) -> Json {
    Json::from(raw.to_owned())
}
