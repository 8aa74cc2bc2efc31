//! The suite itself: its steps are requests of their generation, and each operation succeeds in one of them.

use attache_protocol::{Dialect, ErrorKind, Operation};

use super::steps::{Known, Method};
use super::{Access, Case, Generation, HttpWire, play, server};

/// The generations that a request of a dialect may be of. A new dialect does not compile until it has a generation.
fn generations(dialect: Option<Dialect>) -> &'static [Generation] {
    match dialect {
        None => &[Generation::Current, Generation::V1_1],
        Some(Dialect::V0_3) => &[Generation::V0_3],
        Some(Dialect::Iii) => &[Generation::Iii],
        Some(Dialect::V0_1) => &[Generation::V0_1],
        Some(Dialect::Either) => &[Generation::V0_3, Generation::Iii, Generation::V0_1],
    }
}

#[test]
fn every_step_is_a_request_of_its_generation() {
    for generation in Generation::ALL {
        let mut own = 0;
        for step in generation.steps() {
            let Method::Of(operation) = step.method else { continue };
            let method = generation.method(operation).expect("the generation has the operation");
            assert_eq!(Operation::of_method(method), Some(operation), "{generation:?}");
            let params = (step.params)(&Known::default()).to_string();
            let of = generations(Dialect::of(method, params.as_bytes()));
            assert!(of.contains(generation), "{generation:?}: {} is of {of:?}", step.name);
            // 1.0 and 1.1 have the same requests.
            own += usize::from(of == [*generation] || of == [Generation::Current, Generation::V1_1]);
        }
        assert!(own > 0, "{generation:?} has no step that is of it alone");
    }
}

#[test]
fn an_operation_that_a_generation_does_not_have_is_no_method_of_it() {
    for operation in Operation::ALL {
        if Generation::V0_1.method(*operation).is_none() {
            let method = Generation::V0_3.method(*operation).expect("0.3 has all operations");
            let error = Dialect::V0_1.read(method, b"{}").expect_err("the method is not one of 0.1");
            assert_eq!(error.kind(), ErrorKind::MethodNotFound, "{operation:?}");
        }
    }
}

#[tokio::test]
async fn every_operation_of_every_generation_succeeds_in_a_step() {
    for generation in Generation::ALL {
        let listening = server(Access::Bearer).bind("127.0.0.1:0").listen().await.unwrap();
        let address = listening.address().expect("it listens on a port").to_string();
        let serving = tokio::spawn(listening.run());
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let mut wire = HttpWire::new(client, format!("http://{address}/a2a"));
        let played =
            play(&mut wire, &address, Case { generation: *generation, access: Access::Bearer }).await;
        for operation in Operation::ALL.iter().filter(|operation| generation.method(**operation).is_some()) {
            let events = if operation.is_streaming() { 2 } else { 1 };
            let found = played.iter().filter(|step| step.operation == Some(*operation)).any(|step| {
                // What the step has gotten at first, and until its end.
                let parts = played.iter().filter(|part| part.number == step.number);
                let frames: Vec<_> = parts.flat_map(|part| &part.frames).collect();
                frames.len() >= events && frames.iter().all(|frame| frame.get("result").is_some())
            });
            assert!(found, "{generation:?}: no step of {operation:?} succeeds");
        }
        serving.abort();
    }
}
