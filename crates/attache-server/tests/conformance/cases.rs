//! The list of generations and of ways to authenticate, and the tests that are made of it.

/// Passes the list of cases to a macro.
///
/// A new generation or a new way to authenticate is added here, and every transport is tested with it.
macro_rules! cases {
    ([$($then:tt)*] $($arguments:tt)*) => {
        $($then)*! {
            generations [
                /// Protocol 1.0.
                Current answers_1_0_as_http_does,
                /// Protocol 1.1: that of 1.0 with the generations of tasks.
                V1_1 answers_1_1_as_http_does,
                /// Protocol 0.3, and 0.2.
                V0_3 answers_0_3_as_http_does,
                /// The dialect of the earlier iii-a2a.
                Iii answers_iii_as_http_does,
                /// Protocol 0.1.
                V0_1 answers_0_1_as_http_does,
            ]
            access [
                /// All callers.
                Open without_credentials,
                /// Callers with a bearer token.
                Bearer with_a_bearer_token,
                /// Callers with a key in a header.
                ApiKey with_an_api_key,
            ]
            $($arguments)*
        }
    };
}

pub(crate) use cases;

macro_rules! define {
    (
        generations [$($(#[$about:meta])* $generation:ident $_module:ident,)*]
        access [$($(#[$who:meta])* $access:ident $_test:ident,)*]
    ) => {
        /// A generation of the protocol.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Generation { $($(#[$about])* $generation),* }

        impl Generation {
            pub(crate) const ALL: &[Self] = &[$(Self::$generation),*];
        }

        /// Which callers the server answers.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Access { $($(#[$who])* $access),* }
    };
}

cases! { [define] }

/// One run of the suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) generation: Generation,
    pub(crate) access: Access,
}

/// The tests of transports. Each has a name and an async function that runs a [`Case`] over it.
macro_rules! matrix {
    ($($transport:ident: $compare:expr),* $(,)?) => {$(
        mod $transport {
            use super::*;

            $crate::conformance::cases! { [$crate::conformance::matrix_of_generations] $compare }
        }
    )*};
}

macro_rules! matrix_of_generations {
    (
        generations [$($(#[$_about:meta])* $generation:ident $module:ident,)*]
        access $access:tt
        $compare:expr
    ) => {$(
        mod $module {
            use super::*;

            $crate::conformance::matrix_of_access! { $generation $access $compare }
        }
    )*};
}

macro_rules! matrix_of_access {
    ($generation:ident [$($(#[$_who:meta])* $access:ident $test:ident,)*] $compare:expr) => {$(
        #[tokio::test]
        async fn $test() {
            use $crate::conformance::{Access, Case, Generation};
            let compare = $compare;
            compare(Case { generation: Generation::$generation, access: Access::$access }).await;
        }
    )*};
}

pub(crate) use {matrix, matrix_of_access, matrix_of_generations};
