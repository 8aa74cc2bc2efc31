//! The standard input of a program.

use tokio::io::AsyncWriteExt;
use tokio::process::ChildStdin;
use tokio::sync::mpsc;

/// What a program reads. Writing does not wait for the program: what it has not read yet is kept in memory. The input is closed when this
/// is dropped and everything is read.
pub(super) struct Input(mpsc::UnboundedSender<Vec<u8>>);

impl Input {
    /// Writes to a pipe until the program has ended.
    pub(super) fn open(mut pipe: ChildStdin, ended: impl Future<Output = ()> + Send + 'static) -> Self {
        let (sender, mut queue) = mpsc::unbounded_channel::<Vec<u8>>();
        tokio::spawn(async move {
            let writing = async {
                while let Some(bytes) = queue.recv().await {
                    // A program that does not read its input is not an error.
                    if pipe.write_all(&bytes).await.is_err() || pipe.flush().await.is_err() {
                        break;
                    }
                }
            };
            tokio::select! {
                () = writing => {}
                // Another process can keep the other end of the pipe open, and read nothing.
                () = ended => {}
            }
        });
        Self(sender)
    }

    /// Writes bytes.
    pub(super) fn write(&self, bytes: Vec<u8>) {
        // Without a receiver the program reads no more, which is not an error.
        let _ = self.0.send(bytes);
    }
}
