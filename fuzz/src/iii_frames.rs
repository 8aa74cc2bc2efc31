//! What iii workers send: frames that are read and written again are the same, and any call of a built-in function ends.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use attache_core::MemoryStore;
use attache_iii::engine::{Engine, EngineOptions};
use attache_iii::wire::{FrameError, InvokeFunction, Message};
use attache_iii::{FunctionCall, Functions};
use serde_json::value::RawValue;
use tokio::runtime::Runtime;

/// After so many calls everything begins anew.
const CALLS: u32 = 64;

/// A frame, as text.
pub fn iii_frames(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let message = match Message::read(text) {
        Ok(message) => message,
        Err(error) => {
            let (FrameError::NotAMessage(_)
            | FrameError::Unknown(_)
            | FrameError::Bad { .. }
            | FrameError::TooLarge { .. }) = &error;
            assert!(error.to_string().len() < 1000 + text.len(), "a long story about a short frame");
            return;
        }
    };
    let written = message.write();
    match Message::read(&written) {
        Ok(again) => assert_eq!(again.write(), written, "a frame changes when it is read again"),
        Err(error) => panic!("what was written cannot be read: {error}: {written}"),
    }
    if let Message::InvokeFunction(InvokeFunction { function_id, data, .. }) = &message {
        call(function_id, data.unwrap_or(RawValue::NULL));
    }
}

/// Calls a built-in function of the engine. No worker has registered any.
fn call(function: &str, payload: &RawValue) {
    thread_local! {
        static ENGINE: RefCell<Option<(Engine, u32, Runtime)>> = const { RefCell::new(None) };
    }
    ENGINE.with_borrow_mut(|server| {
        if server.as_ref().is_some_and(|(_, calls, _)| *calls == CALLS) {
            *server = None;
        }
        let (engine, calls, runtime) = server.get_or_insert_with(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .start_paused(true)
                .build()
                .expect("a runtime needs nothing that could be missing");
            let engine = runtime
                .block_on(async { Engine::new(Arc::new(MemoryStore::new()), EngineOptions::default()) });
            (engine, 0, runtime)
        });
        *calls += 1;
        let call = FunctionCall { function, payload, timeout: Duration::from_secs(1), trace_parent: None };
        if let Ok(result) = runtime.block_on(engine.call(call)) {
            let read = serde_json::from_str::<&RawValue>(result.get());
            assert!(read.is_ok(), "{read:?}: {}", result.get());
        }
    });
}
