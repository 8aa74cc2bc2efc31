//! The pipes from a program.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};

/// How long a pipe is read after its program has ended, if another process keeps it open.
const AFTER_END: Duration = Duration::from_secs(1);

/// A pipe from a program. It ends when all processes have closed it, and at the latest a second after the program has ended: a process
/// that left the group of the program can keep the pipe open for ever. What the program has written is read in any case.
pub struct Output<R> {
    pipe: R,
    /// Ready when nothing more is expected. `None` after that.
    over: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl<R> Output<R> {
    pub(crate) fn new(pipe: R, ended: impl Future<Output = ()> + Send + 'static) -> Self {
        let over = async {
            ended.await;
            tokio::time::sleep(AFTER_END).await;
        };
        Self { pipe, over: Some(Box::pin(over)) }
    }
}

impl<R> fmt::Debug for Output<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Output").field("is_over", &self.over.is_none()).finish_non_exhaustive()
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Output<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.pipe).poll_read(cx, buf);
        if read.is_ready() {
            return read;
        }
        // Nothing is in the pipe.
        let is_waiting = self.over.as_mut().is_some_and(|over| over.as_mut().poll(cx).is_pending());
        if is_waiting {
            return Poll::Pending;
        }
        self.over = None;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::oneshot;

    use super::*;

    fn pipe() -> (Output<tokio::io::DuplexStream>, tokio::io::DuplexStream, oneshot::Sender<()>) {
        let (ours, theirs) = tokio::io::duplex(1024);
        let (end, ended) = oneshot::channel();
        let output = Output::new(ours, async {
            let _ = ended.await;
        });
        (output, theirs, end)
    }

    #[tokio::test(start_paused = true)]
    async fn a_pipe_that_another_process_keeps_open_ends_soon_after_the_program() {
        let (mut output, mut other, end) = pipe();
        other.write_all(b"first ").await.unwrap();
        end.send(()).unwrap();
        let later = tokio::spawn(async move {
            for _ in 0..10 {
                other.write_all(b"x").await.unwrap();
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
            other
        });
        let begun = tokio::time::Instant::now();
        let mut text = String::new();
        output.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "first xxxx");
        assert_eq!(begun.elapsed(), AFTER_END);
        later.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_in_a_pipe_is_read_also_long_after_the_end_of_the_program() {
        let (mut output, mut other, end) = pipe();
        end.send(()).unwrap();
        tokio::time::sleep(AFTER_END * 10).await;
        other.write_all(b"all of it").await.unwrap();
        drop(other);
        let mut text = String::new();
        output.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "all of it");
    }

    #[tokio::test(start_paused = true)]
    async fn a_pipe_of_a_program_that_runs_stays_open() {
        let (mut output, mut other, _end) = pipe();
        let read = tokio::spawn(async move {
            let mut bytes = [0; 4];
            output.read_exact(&mut bytes).await.unwrap();
            bytes
        });
        tokio::time::sleep(AFTER_END * 10).await;
        other.write_all(b"late").await.unwrap();
        assert_eq!(&read.await.unwrap(), b"late");
    }
}
