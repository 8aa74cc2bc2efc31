//! Protocol 1.0: the package `lf.a2a.v1`.

mod convert;
#[expect(missing_docs, reason = "a message and its fields are what those of the same name in the model are")]
pub mod proto;
