//! Replaces values of a server that the model does not have, for a client.
//!
//! A newer server may send a state, a role or a part that this version does not know. The rest of the message is still useful: an
//! unknown state or role is unspecified, and an unknown part or an impossible time is left out. Requests of clients are not treated
//! this way: [`to_model`](crate::to_model) refuses them.

use attache_protocol::{Role, TaskState, Timestamp};

use crate::ProtoConvert;

/// A message of a server.
pub(crate) trait Tolerate {
    /// Replaces the values that the model does not have.
    fn tolerate(&mut self);
}

fn known(number: i32, is_known: bool) -> i32 {
    if is_known { number } else { 0 }
}

/// The messages of both packages have the same fields.
macro_rules! tolerate {
    ($package:ident) => {
        const _: () = {
            use crate::$package::proto::{
                Artifact, ListTaskPushNotificationConfigsResponse, Message, SendMessageResponse, SendPayload,
                StreamPayload, StreamResponse, Task, TaskPushNotificationConfig, TaskStatus,
            };

            impl Tolerate for Message {
                fn tolerate(&mut self) {
                    self.role = known(self.role, Role::from_number(self.role.into()).is_some());
                    self.parts.retain(|part| part.content.is_some());
                }
            }

            impl Tolerate for Artifact {
                fn tolerate(&mut self) {
                    self.parts.retain(|part| part.content.is_some());
                }
            }

            impl Tolerate for TaskStatus {
                fn tolerate(&mut self) {
                    self.state = known(self.state, TaskState::from_number(self.state.into()).is_some());
                    self.message.iter_mut().for_each(Tolerate::tolerate);
                    self.timestamp =
                        self.timestamp.take().filter(|time| Timestamp::from_proto(time.clone()).is_ok());
                }
            }

            impl Tolerate for Task {
                fn tolerate(&mut self) {
                    self.status.iter_mut().for_each(Tolerate::tolerate);
                    self.artifacts.iter_mut().for_each(Tolerate::tolerate);
                    self.history.iter_mut().for_each(Tolerate::tolerate);
                }
            }

            impl Tolerate for SendMessageResponse {
                fn tolerate(&mut self) {
                    match &mut self.payload {
                        Some(SendPayload::Task(task)) => task.tolerate(),
                        Some(SendPayload::Message(message)) => message.tolerate(),
                        None => {}
                    }
                }
            }

            impl Tolerate for StreamResponse {
                fn tolerate(&mut self) {
                    match &mut self.payload {
                        Some(StreamPayload::Task(task)) => task.tolerate(),
                        Some(StreamPayload::Message(message)) => message.tolerate(),
                        Some(StreamPayload::StatusUpdate(update)) => {
                            update.status.iter_mut().for_each(Tolerate::tolerate);
                        }
                        Some(StreamPayload::ArtifactUpdate(update)) => {
                            update.artifact.iter_mut().for_each(Tolerate::tolerate);
                        }
                        None => {}
                    }
                }
            }

            impl Tolerate for TaskPushNotificationConfig {
                fn tolerate(&mut self) {}
            }

            impl Tolerate for ListTaskPushNotificationConfigsResponse {
                fn tolerate(&mut self) {}
            }
        };
    };
}

tolerate!(v0_3);
tolerate!(v1_0);

impl Tolerate for crate::v1_0::proto::ListTasksResponse {
    fn tolerate(&mut self) {
        self.tasks.iter_mut().for_each(Tolerate::tolerate);
    }
}

impl Tolerate for crate::v1_0::proto::AgentCard {
    fn tolerate(&mut self) {}
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use crate::v0_3::FileForm;
    use crate::{DecodeResponse, Package, to_model, v0_3, v1_0};

    #[test]
    fn what_only_a_newer_server_knows_does_not_spoil_a_task() {
        macro_rules! check {
            ($package:ident, $name:expr) => {
                use $package::proto;
                let part = |content| proto::Part { content, ..Default::default() };
                let task = proto::Task {
                    id: "t".to_owned(),
                    status: Some(proto::TaskStatus {
                        state: 99,
                        timestamp: Some(prost_types::Timestamp { seconds: 0, nanos: -1 }),
                        ..Default::default()
                    }),
                    history: vec![proto::Message {
                        role: 7,
                        parts: vec![part(None), part(Some(proto::Content::Text("hi".to_owned())))],
                        ..Default::default()
                    }],
                    ..Default::default()
                };
                let bytes = task.encode_to_vec();
                let read = attache_protocol::Task::decode($name, FileForm::Base64, &bytes).unwrap();
                assert_eq!(read.status, attache_protocol::TaskStatus::default());
                assert_eq!(read.history[0].parts, [attache_protocol::Part::text("hi")]);
                assert!(to_model::<_, attache_protocol::Task>(task).is_err(), "a request stays strict");
            };
        }
        {
            check!(v1_0, Package::V1_0);
        }
        {
            check!(v0_3, Package::V0_3);
        }
    }
}
