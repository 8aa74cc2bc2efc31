//! Signals from the operating system to this process.

use std::io;
use std::sync::Once;

use tokio::sync::Notify;

/// The signals that ask the server to read its settings again: SIGHUP.
///
/// Only Unix has this signal. On other systems [`next`](Self::next) never returns, and changed settings need a restart.
pub(crate) struct ReloadSignals {
    #[cfg(unix)]
    hangups: tokio::signal::unix::Signal,
}

impl ReloadSignals {
    /// Registers for the signals. From now on they do not end the process.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            #[cfg(unix)]
            hangups: tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal. There are no more after `None`.
    pub(crate) async fn next(&mut self) -> Option<()> {
        #[cfg(unix)]
        return self.hangups.recv().await;
        #[cfg(not(unix))]
        std::future::pending().await
    }
}

/// Waits until Ctrl-C is pressed, on every system. If it is pressed while no caller waits, the next call returns at once.
pub(crate) async fn interrupted() {
    static PRESSED: Notify = Notify::const_new();
    static LISTENING: Once = Once::new();
    LISTENING.call_once(|| {
        tokio::spawn(async {
            while tokio::signal::ctrl_c().await.is_ok() {
                PRESSED.notify_one();
            }
        });
    });
    PRESSED.notified().await;
}
