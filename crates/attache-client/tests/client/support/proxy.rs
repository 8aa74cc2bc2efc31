//! A proxy between client and server that can cut connections.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Forwards connections. Each one is cut after a number of bytes from the server.
pub(crate) struct Proxy {
    address: SocketAddr,
    listener: Option<TcpListener>,
    line: Arc<Line>,
}

struct Line {
    budgets: Mutex<VecDeque<usize>>,
    cuts: watch::Sender<usize>,
    connections: AtomicUsize,
}

impl Proxy {
    pub(crate) async fn new(budgets: impl IntoIterator<Item = usize>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let line = Line {
            budgets: Mutex::new(budgets.into_iter().collect()),
            cuts: watch::Sender::new(0),
            connections: AtomicUsize::new(0),
        };
        Self { address: listener.local_addr().unwrap(), listener: Some(listener), line: Arc::new(line) }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Starts to forward.
    pub(crate) fn forward_to(&mut self, server: SocketAddr) {
        let (listener, line) = (self.listener.take().expect("it forwards to one server"), self.line.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                line.connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(line.clone().forward(client, server));
            }
        });
    }

    /// Sets after how many bytes the next connections are cut.
    pub(crate) fn cut_next(&self, budgets: impl IntoIterator<Item = usize>) {
        *self.line.budgets.lock().unwrap() = budgets.into_iter().collect();
    }

    /// Cuts every open connection.
    pub(crate) fn cut(&self) {
        self.line.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// The number of connections so far.
    pub(crate) fn connections(&self) -> usize {
        self.line.connections.load(Ordering::SeqCst)
    }
}

impl Line {
    async fn forward(self: Arc<Self>, client: TcpStream, server: SocketAddr) {
        let budget = self.budgets.lock().unwrap().pop_front().unwrap_or(usize::MAX);
        let mut cuts = self.cuts.subscribe();
        let server = TcpStream::connect(server).await.unwrap();
        let (mut from_client, mut to_client) = client.into_split();
        let (mut from_server, mut to_server) = server.into_split();
        let answers = async {
            let (mut left, mut bytes) = (budget, [0; 512]);
            while left > 0 {
                let room = left.min(bytes.len());
                match from_server.read(&mut bytes[..room]).await {
                    Ok(0) | Err(_) => return,
                    Ok(length) => {
                        if to_client.write_all(&bytes[..length]).await.is_err() {
                            return;
                        }
                        left -= length;
                    }
                }
            }
        };
        tokio::select! {
            () = answers => {}
            _ = copy(&mut from_client, &mut to_server) => {}
            _ = cuts.changed() => {}
        }
    }
}
