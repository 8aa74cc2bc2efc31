//! Protocol 0.3: the package `a2a.v1`.

mod convert;
mod files;
mod names;
#[expect(missing_docs, reason = "a message and its fields are what those of the same name in the model are")]
pub mod proto;
mod status;

pub use self::convert::{card, read_card};
pub use self::files::{FileForm, HasFiles};
pub(crate) use self::status::{kind_in, status};

macro_rules! calls {
    ($( $name:ident ),+ $(,)?) => {
        /// The calls of the service.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[expect(missing_docs, reason = "the names are those of the protocol")]
        pub enum Call { $( $name ),+ }

        impl Call {
            /// The call with this name.
            pub fn from_name(name: &str) -> Option<Self> {
                match name {
                    $( stringify!($name) => Some(Self::$name), )+
                    _ => None,
                }
            }

            /// Its name.
            pub const fn name(self) -> &'static str {
                match self { $( Self::$name => stringify!($name) ),+ }
            }
        }
    };
}

calls! {
    SendMessage,
    SendStreamingMessage,
    GetTask,
    CancelTask,
    TaskSubscription,
    CreateTaskPushNotificationConfig,
    GetTaskPushNotificationConfig,
    ListTaskPushNotificationConfig,
    DeleteTaskPushNotificationConfig,
    GetAgentCard,
}
