//! The transports that carry JSON-RPC, each as the same few steps: send the bytes of a request, get the frames of the response.
//!
//! A new transport needs a line in [`transports`], and gets the whole suite in [`crate::conformance`] with it.

mod card;
mod faults;
mod forwarding;
mod limits;
mod listeners;
mod matrix;
mod multiplexing;
mod unix_http;
mod websocket;

use std::net::SocketAddr;
use std::path::PathBuf;

use attache_core::{Agent, BoxFuture};
use attache_grpc::call_result;
use attache_grpc::envelope::{JsonRpcEnvelope, SERVICE};
use attache_protocol::Operation;
use attache_server::{LocalAddress, Server};
use futures::{SinkExt, StreamExt};
use http::uri::PathAndQuery;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, DuplexStream};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};
use tonic::transport::{Channel, Endpoint};

use crate::conformance::{Calls, HttpWire, denied, split_headers};
pub(crate) use crate::conformance::{Got, Wire, exchange};
use crate::support::soon;

/// Passes the list of transports to a macro, each with the module of its tests.
macro_rules! transports {
    ($then:ident!) => {
        $then! {
            /// Lines over a Unix socket.
            Unix unix,
            /// Lines over a stream that is open already, as over standard input and output.
            Lines lines,
            WebSocket websocket,
            /// A WebSocket connection at the path of JSON-RPC.
            WebSocketAtJsonRpc websocket_at_the_path_of_json_rpc,
            /// A WebSocket connection over a Unix socket.
            WebSocketOverUnix websocket_over_unix,
            /// Messages of gRPC.
            Envelope envelope,
            /// Messages of gRPC over a Unix socket.
            EnvelopeOverUnix envelope_over_unix,
            /// Requests and server-sent events over a Unix socket.
            HttpOverUnix http_over_unix,
        }
    };
}

use transports;

macro_rules! define {
    ($($(#[$about:meta])* $transport:ident $_module:ident,)*) => {
        /// A way to carry JSON-RPC.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Transport {
            /// Requests and server-sent events over HTTP, which the others are compared with.
            Http,
            $($(#[$about])* $transport),*
        }
    };
}

transports! { define! }

impl Transport {
    /// One for each way to carry frames.
    pub(crate) const FRAMED: [Self; 4] = [Self::Unix, Self::Lines, Self::WebSocket, Self::Envelope];
}

/// The same for a request with one response.
pub(crate) async fn ask(wire: &mut dyn Wire, request: Value) -> Value {
    let mut frames = exchange(wire, request).await;
    assert_eq!(frames.len(), 1, "{frames:?}");
    frames.remove(0)
}

/// A request of 1.0.
pub(crate) fn request(id: impl Into<Value>, method: &str, params: Value) -> Value {
    let id: Value = id.into();
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params, "headers": {"A2A-Version": "1.0"}})
}

/// A server that answers on all transports at the same time.
pub(crate) struct Everywhere {
    pub(crate) address: SocketAddr,
    pub(crate) socket: PathBuf,
    stream: Option<DuplexStream>,
    stop: Option<oneshot::Sender<()>>,
    served: JoinHandle<std::io::Result<()>>,
    _folder: tempfile::TempDir,
}

/// Starts a server on all transports.
pub(crate) async fn everywhere<A: Agent>(server: Server<A>) -> Everywhere {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("agent.sock");
    let (stream, served) = tokio::io::duplex(64 * 1024);
    let server = server.bind("127.0.0.1:0").bind(format!("unix:{}", socket.display())).lines(served);
    let listening = server.listen().await.unwrap();
    let address = listening.address().unwrap();
    assert_eq!(
        listening.local_addresses().unwrap(),
        [LocalAddress::Tcp(address), LocalAddress::Unix(socket.clone())]
    );
    let (stop, stopped) = oneshot::channel();
    let served = tokio::spawn(listening.run_until(async {
        let _ = stopped.await;
    }));
    Everywhere { address, socket, stream: Some(stream), stop: Some(stop), served, _folder: folder }
}

impl Everywhere {
    /// A connection. There is one only for [`Transport::Lines`].
    pub(crate) async fn wire(&mut self, transport: Transport) -> Box<dyn Wire> {
        let url = || format!("http://{}/a2a", self.address);
        match transport {
            Transport::Http => {
                Box::new(HttpWire::new(reqwest::Client::builder().no_proxy().build().unwrap(), url()))
            }
            Transport::HttpOverUnix => Box::new(HttpWire::new(self.http_over_unix(), url())),
            Transport::Unix => Box::new(LineWire(BufReader::new(self.connect_unix().await))),
            Transport::Lines => {
                Box::new(LineWire(BufReader::new(self.stream.take().expect("one connection"))))
            }
            Transport::WebSocket => Box::new(WebSocketWire(self.websocket("/ws", &[]).await)),
            Transport::WebSocketAtJsonRpc => Box::new(WebSocketWire(self.websocket("/a2a", &[]).await)),
            Transport::WebSocketOverUnix => Box::new(WebSocketWire(self.websocket_over_unix("/ws").await)),
            Transport::Envelope => Box::new(EnvelopeWire::new(self.grpc().await)),
            Transport::EnvelopeOverUnix => Box::new(EnvelopeWire::new(self.grpc_over_unix().await)),
        }
    }

    /// A connection to the Unix socket.
    pub(crate) async fn connect_unix(&self) -> UnixStream {
        soon(UnixStream::connect(&self.socket)).await.unwrap()
    }

    /// A connection of gRPC.
    async fn grpc(&self) -> Channel {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address)).unwrap();
        soon(endpoint.connect()).await.unwrap()
    }

    /// A connection of gRPC over the Unix socket.
    pub(crate) async fn grpc_over_unix(&self) -> Channel {
        let endpoint = Endpoint::from_shared(format!("unix://{}", self.socket.display())).unwrap();
        // The client names the server `tonic`.
        soon(endpoint.connect()).await.unwrap()
    }

    /// An HTTP client that connects to the Unix socket, whatever the URL of a request is.
    pub(crate) fn http_over_unix(&self) -> reqwest::Client {
        reqwest::Client::builder().no_proxy().unix_socket(self.socket.as_path()).build().unwrap()
    }

    /// A WebSocket connection over the Unix socket.
    pub(crate) async fn websocket_over_unix(&self, path: &str) -> WebSocketStream<UnixStream> {
        let stream = self.connect_unix().await;
        let opened = tokio_tungstenite::client_async(format!("ws://localhost{path}"), stream);
        soon(opened).await.expect("the connection is opened").0
    }

    /// A WebSocket connection.
    pub(crate) async fn websocket(
        &self,
        path: &str,
        headers: &[(&'static str, &str)],
    ) -> WebSocketStream<MaybeTlsStream<TcpStream>> {
        self.try_websocket(path, headers).await.expect("the connection is opened")
    }

    /// A WebSocket connection, or the status and the body of the refusal.
    pub(crate) async fn try_websocket(
        &self,
        path: &str,
        headers: &[(&'static str, &str)],
    ) -> Result<WebSocketStream<MaybeTlsStream<TcpStream>>, (u16, String)> {
        let mut request = format!("ws://{}{path}", self.address).into_client_request().unwrap();
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        match soon(tokio_tungstenite::connect_async(request)).await {
            Ok((socket, _)) => Ok(socket),
            Err(tokio_tungstenite::tungstenite::Error::Http(response)) => {
                let body = response.body().clone().unwrap_or_default();
                Err((response.status().as_u16(), String::from_utf8(body).unwrap()))
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// The end of the stream that [`Transport::Lines`] uses.
    pub(crate) fn take_stream(&mut self) -> DuplexStream {
        self.stream.take().expect("one connection")
    }

    /// Stops the server and waits until it has stopped.
    pub(crate) async fn stop(mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        self.stopped().await;
    }

    /// Waits until the server has stopped.
    pub(crate) async fn stopped(&mut self) {
        soon(&mut self.served).await.unwrap().unwrap();
    }
}

/// A connection with lines.
pub(crate) struct LineWire<S>(pub(crate) BufReader<S>);

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Wire for LineWire<S> {
    fn send(&mut self, request: Value) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.0.get_mut().write_all(format!("{request}\n").as_bytes()).await.unwrap();
        })
    }

    fn next(&mut self) -> BoxFuture<'_, Option<Got>> {
        Box::pin(async move {
            let mut line = String::new();
            if self.0.read_line(&mut line).await.unwrap_or_default() == 0 {
                return None;
            }
            let mut payload: Value = serde_json::from_str(&line).unwrap();
            let is_final = payload.as_object_mut().unwrap().remove("final") == Some(json!(true));
            // A line with an event has a number. A response without one is whole.
            let last = is_final || payload.get("eventId").is_none();
            Some(Got { payload, last })
        })
    }
}

/// A WebSocket connection.
pub(crate) struct WebSocketWire<S>(pub(crate) WebSocketStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Wire for WebSocketWire<S> {
    fn send(&mut self, request: Value) -> BoxFuture<'_, ()> {
        Box::pin(async move { self.0.send(Message::text(request.to_string())).await.unwrap() })
    }

    fn next(&mut self) -> BoxFuture<'_, Option<Got>> {
        Box::pin(async move {
            loop {
                match self.0.next().await? {
                    Ok(Message::Text(text)) => {
                        let frame: Value = serde_json::from_str(&text).unwrap();
                        let members: Vec<_> = frame.as_object().unwrap().keys().cloned().collect();
                        assert_eq!(members, ["final", "id", "payload"], "{frame}");
                        assert_eq!(frame["id"], frame["payload"]["id"]);
                        let last = frame["final"].as_bool().unwrap();
                        return Some(Got { payload: frame["payload"].clone(), last });
                    }
                    Ok(Message::Close(_)) | Err(_) => return None,
                    Ok(_) => {}
                }
            }
        })
    }
}

struct EnvelopeWire {
    channel: Channel,
    calls: Calls,
}

impl EnvelopeWire {
    fn new(channel: Channel) -> Self {
        Self { channel, calls: Calls::new() }
    }
}

impl Wire for EnvelopeWire {
    fn send(&mut self, request: Value) -> BoxFuture<'_, ()> {
        let method = request["method"].as_str().unwrap_or_default();
        let is_stream = Operation::of_method(method).is_some_and(Operation::is_streaming);
        let (payload, headers) = split_headers(request);
        let mut message = tonic::Request::new(JsonRpcEnvelope { payload: payload.into(), r#final: true });
        for (name, value) in headers {
            let name = tonic::metadata::MetadataKey::from_bytes(name.to_lowercase().as_bytes()).unwrap();
            message.metadata_mut().insert(name, value.parse().unwrap());
        }
        let (channel, frames) = (self.channel.clone(), self.calls.sender.clone());
        tokio::spawn(async move {
            let mut client = tonic::client::Grpc::new(channel);
            client.ready().await.unwrap();
            let codec = tonic_prost::ProstCodec::<JsonRpcEnvelope, JsonRpcEnvelope>::default();
            let path = |name: &str| PathAndQuery::try_from(format!("{SERVICE}/{name}")).unwrap();
            let got = |message: JsonRpcEnvelope| Got {
                payload: serde_json::from_slice(&message.payload).unwrap(),
                last: message.r#final,
            };
            let failed = |status: tonic::Status| {
                let code = status.code();
                if code == tonic::Code::Unauthenticated {
                    denied()
                } else if code == tonic::Code::ResourceExhausted {
                    exhausted(status)
                } else {
                    Got { payload: json!({"error": {"message": status.to_string()}}), last: true }
                }
            };
            if is_stream {
                match client.server_streaming(message, path("Stream"), codec).await {
                    Err(status) => drop(frames.send(failed(status))),
                    Ok(stream) => {
                        let mut stream = stream.into_inner();
                        while let Ok(Some(message)) = stream.message().await {
                            let _ = frames.send(got(message));
                        }
                    }
                }
            } else {
                let answer = client.unary(message, path("Send"), codec).await;
                let _ = frames.send(answer.map_or_else(failed, |answer| got(answer.into_inner())));
            }
        });
        Box::pin(async {})
    }

    fn next(&mut self) -> BoxFuture<'_, Option<Got>> {
        Box::pin(self.calls.receiver.recv())
    }
}

/// The status of a call that a limit refused, as the frame that others would have.
fn exhausted(status: tonic::Status) -> Got {
    let headers = status.into_http::<()>().into_parts().0.headers;
    let status = call_result(&headers).expect("a status").expect_err("the call failed");
    let details: Vec<Value> =
        status.details.iter().map(|detail| serde_json::from_str(detail.as_str()).unwrap()).collect();
    let error = json!({"code": -32052, "message": status.message, "data": details});
    Got { payload: json!({"error": error}), last: true }
}
