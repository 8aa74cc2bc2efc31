//! A stream of bytes that arrives in pieces, and a runtime to read it.

use std::cell::OnceCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, ReadBuf};
use tokio::runtime::Runtime;

/// Runs a future on a runtime with virtual time.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    thread_local! {
        static RUNTIME: OnceCell<Runtime> = const { OnceCell::new() };
    }
    RUNTIME.with(|runtime| {
        let build = || tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.get_or_init(|| build().expect("a runtime needs nothing that could be missing"));
        runtime.block_on(future)
    })
}

/// Gives one piece for each call, or as much of it as is taken.
pub(crate) struct Pieces<'a>(pub(crate) Vec<&'a [u8]>);

impl AsyncRead for Pieces<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.0.first().is_some_and(|piece| piece.is_empty()) {
            self.0.remove(0);
        }
        if let Some(piece) = self.0.first_mut() {
            let (taken, rest) = piece.split_at(piece.len().min(buffer.remaining()));
            buffer.put_slice(taken);
            *piece = rest;
        }
        Poll::Ready(Ok(()))
    }
}
