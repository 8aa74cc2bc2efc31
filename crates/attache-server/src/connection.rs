//! Accepting connections, serving them, and stopping without cutting anyone off.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::{Surface, options::ServerOptions};

/// A server that has its port and waits to be run.
pub struct Listening {
    pub(crate) listener: TcpListener,
    pub(crate) surface: Surface,
}

impl Listening {
    /// The address that it listens on.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until the process is told to stop (interrupt or termination signal).
    pub async fn run(self) -> std::io::Result<()> {
        self.run_until(stop_signal()).await
    }

    /// Serves until `stop` is done, then lets running turns and open streams finish.
    pub async fn run_until(self, stop: impl Future<Output = ()>) -> std::io::Result<()> {
        let Self { listener, surface } = self;
        let options: ServerOptions = surface.options().clone();
        let builder = builder(&options);
        let graceful = GracefulShutdown::new();
        let places = Arc::new(Semaphore::new(options.max_connections));
        let mut stop = std::pin::pin!(stop);
        loop {
            let accepted = tokio::select! {
                biased;
                () = &mut stop => break,
                accepted = accept(&listener, &places) => accepted,
            };
            let Some((socket, place)) = accepted else { continue };
            let surface = surface.clone();
            let service = service_fn(move |request| {
                let surface = surface.clone();
                async move { Ok::<_, Infallible>(surface.handle(request).await) }
            });
            let connection = builder.serve_connection(TokioIo::new(socket), service).into_owned();
            let connection = graceful.watch(connection);
            tokio::spawn(async move {
                if let Err(error) = connection.await {
                    tracing::debug!(%error, "a connection ended early");
                }
                drop(place);
            });
        }
        drop(listener);
        tracing::info!("stopping: finishing what runs");
        let late = surface.service().shutdown(options.drain).await;
        if late > 0 {
            tracing::warn!(turns = late, "turns had to be ended before they were done");
        }
        if tokio::time::timeout(options.drain, graceful.shutdown()).await.is_err() {
            tracing::warn!("some connections did not close in time");
        }
        Ok(())
    }
}

/// The next connection, as soon as there is a place for it. Nothing when accepting failed, which passes.
async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> Option<(tokio::net::TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let place = places.clone().acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((socket, _)) => {
            // Events are small and must not wait for each other.
            if let Err(error) = socket.set_nodelay(true) {
                tracing::debug!(%error, "a socket vanished before it was used");
            }
            Some((socket, place))
        }
        Err(error) => {
            tracing::warn!(%error, "a connection could not be accepted");
            // Out of file descriptors, most likely: give others the time to close theirs.
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            None
        }
    }
}

fn builder(options: &ServerOptions) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(options.header_timeout)
        .max_buf_size(options.max_headers.max(8192))
        .pipeline_flush(true);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(u32::try_from(options.max_headers).unwrap_or(u32::MAX))
        .max_concurrent_streams(1024)
        .keep_alive_interval(options.header_timeout)
        .keep_alive_timeout(options.header_timeout);
    builder
}

async fn stop_signal() {
    let interrupt = async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    #[cfg(unix)]
    let terminate = async {
        match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
            Ok(mut signal) => {
                signal.recv().await;
            }
            Err(_) => std::future::pending().await,
        }
    };
    #[cfg(not(unix))]
    let terminate = std::future::pending::<()>();
    tokio::select! {
        () = interrupt => {}
        () = terminate => {}
    }
}
