//! A harness connection that holds every frame against the contract.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::http::HeaderMap;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, accept_hdr_async, client_async_with_config};

use super::SOON;
use super::contract::{check_details, check_frame};

/// A connection to an executor, past its hello and first update.
pub struct Client {
    socket: WebSocketStream<Box<dyn Stream>>,
    /// The executor's hello.
    pub hello: Value,
    /// Its first capabilities update.
    pub update: Value,
    /// The session that calls use.
    pub session: String,
    /// Frames that came while another was waited for, oldest first.
    seen: Vec<Value>,
    calls: usize,
    names: Vec<(String, String)>,
    acks: bool,
}

/// A `tool.result`.
#[derive(Debug, Clone)]
pub struct Reply(pub Value);

impl Reply {
    /// How the call ended.
    pub fn outcome(&self) -> &str {
        self.0["outcome"].as_str().unwrap()
    }

    /// Whether it is an error for the model.
    pub fn is_error(&self) -> bool {
        self.0["is_error"].as_bool().unwrap()
    }

    /// The text of a block.
    pub fn block(&self, at: usize) -> &str {
        self.0["content"][at]["text"].as_str().unwrap_or_default()
    }

    /// The data: block 0.
    pub fn data(&self) -> &str {
        self.block(0)
    }

    /// The notes: every further block.
    pub fn notes(&self) -> String {
        let blocks = self.0["content"].as_array().unwrap();
        blocks
            .iter()
            .skip(1)
            .filter_map(|block| block["text"].as_str())
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// The error code, where there is one.
    pub fn code(&self) -> &str {
        self.0["error"]["code"].as_str().unwrap_or_default()
    }

    /// The details.
    pub fn details(&self) -> &Value {
        &self.0["details"]
    }

    /// Fails unless the tool did what it was asked.
    #[track_caller]
    pub fn check_done(&self) -> &Self {
        assert_eq!(
            (self.outcome(), self.is_error()),
            ("succeeded", false),
            "{:#}",
            self.0
        );
        self
    }

    /// Fails unless the tool reports an error that names each of the texts.
    #[track_caller]
    pub fn check_tool_error(&self, texts: &[&str]) -> &Self {
        assert_eq!(
            (self.outcome(), self.is_error()),
            ("succeeded", true),
            "{:#}",
            self.0
        );
        self.check_names(texts)
    }

    /// Fails unless the call was refused with a code and a sentence that names each of the texts.
    #[track_caller]
    pub fn check_failed(&self, code: &str, texts: &[&str]) -> &Self {
        assert_eq!(
            (self.outcome(), self.code()),
            ("failed", code),
            "{:#}",
            self.0
        );
        self.check_names(texts)
    }

    #[track_caller]
    fn check_names(&self, texts: &[&str]) -> &Self {
        for text in texts {
            assert!(
                self.data().contains(text),
                "{text:?} is not named in {:?}",
                self.data()
            );
        }
        self
    }
}

impl Client {
    /// Connects and takes hello and update.
    pub async fn connect(address: SocketAddr, key: Option<&str>) -> Self {
        let socket = open(address, key, &[])
            .await
            .expect("the handshake succeeds");
        Self::greet(socket).await.unwrap()
    }

    /// Takes hello and update.
    async fn greet(socket: WebSocketStream<Box<dyn Stream>>) -> Result<Self, String> {
        let mut client = Self {
            socket,
            hello: Value::Null,
            update: Value::Null,
            session: "s-1".to_owned(),
            seen: Vec::new(),
            calls: 0,
            names: Vec::new(),
            acks: false,
        };
        client.hello = client.next_frame().await?;
        assert_eq!(client.hello["method"], "executor.hello");
        client.update = client.next_frame().await?;
        assert_eq!(client.update["method"], "executor.capabilities.update");
        Ok(client)
    }

    /// Loses the connection without a word.
    pub fn cut(self) {
        drop(self);
    }

    /// Closes the connection with a code.
    pub async fn close(&mut self, code: u16) {
        let frame = CloseFrame {
            code: code.into(),
            reason: "".into(),
        };
        self.socket.close(Some(frame)).await.unwrap();
    }

    /// Sends a text as it is, unchecked: for what no harness should send.
    pub async fn send_text(&mut self, text: impl Into<String>) {
        self.send_message(Message::text(text.into())).await;
    }

    /// Sends a WebSocket message as it is.
    pub async fn send_message(&mut self, message: Message) {
        tokio::time::timeout(SOON, self.socket.send(message))
            .await
            .expect("the executor reads")
            .expect("the socket lives");
    }

    /// Pings, unless the connection is gone, and does not wait for the pong.
    pub async fn try_ping(&mut self) {
        let ping = Message::Ping(b"alive"[..].into());
        let sent = tokio::time::timeout(SOON, self.socket.send(ping)).await;
        if let Ok(Err(error)) = sent {
            println!("the connection is gone: {error}");
        }
    }

    /// Sends a frame of the contract.
    pub async fn send(&mut self, method: &str, params: Value) {
        let frame = json!({"jsonrpc": "2.0", "method": method, "params": params});
        check_frame(&frame);
        self.send_text(frame.to_string()).await;
    }

    /// Says that this harness speaks v1.1 and takes large messages.
    pub async fn send_welcome(&mut self) {
        self.send_welcome_with(json!({})).await;
    }

    /// Says so, with further members.
    pub async fn send_welcome_with(&mut self, further: Value) {
        let mut params =
            json!({"protocol_version": "bma.executor.v1.1", "max_message_bytes": 64 << 20});
        params
            .as_object_mut()
            .unwrap()
            .extend(further.as_object().unwrap().clone());
        self.send("harness.welcome", params).await;
        self.acks = true;
    }

    /// Sends a call and returns its id.
    pub async fn send_call(&mut self, name: &str, input: Value) -> String {
        self.send_call_with(name, input, json!({})).await
    }

    /// Sends a call with further members and returns its id.
    pub async fn send_call_with(&mut self, name: &str, input: Value, further: Value) -> String {
        self.calls += 1;
        let id = format!("c-{}", self.calls);
        self.send_call_as(&id, name, input, further).await;
        id
    }

    /// Sends a call under a given id.
    pub async fn send_call_as(&mut self, id: &str, name: &str, input: Value, further: Value) {
        let mut params =
            json!({"session_id": self.session, "tool_call_id": id, "name": name, "input": input});
        params
            .as_object_mut()
            .unwrap()
            .extend(further.as_object().unwrap().clone());
        self.names.push((id.to_owned(), name.to_owned()));
        self.send("tool.call", params).await;
    }

    /// Cancels a call.
    pub async fn send_cancel(&mut self, id: &str) {
        let params = json!({"session_id": self.session, "tool_call_id": id});
        self.send("tool.cancel", params).await;
    }

    /// Calls a tool and waits for its result.
    pub async fn call(&mut self, name: &str, input: Value) -> Reply {
        let id = self.send_call(name, input).await;
        self.expect_result(&id).await
    }

    /// Calls `bash` with a command and waits for its result.
    pub async fn bash(&mut self, command: &str) -> Reply {
        self.call("bash", json!({"command": command})).await
    }

    /// Waits for the result of a call.
    pub async fn expect_result(&mut self, id: &str) -> Reply {
        self.expect_result_within(id, SOON).await
    }

    /// Waits for the result of a call, for as long as it may take.
    pub async fn expect_result_within(&mut self, id: &str, within: Duration) -> Reply {
        let wanted = |frame: &Value| {
            frame["method"] == "tool.result" && frame["params"]["tool_call_id"] == id
        };
        let frame = self
            .expect_within(&format!("the result of {id}"), within, wanted)
            .await;
        self.acknowledge(&frame).await
    }

    /// Waits for the next result of whichever call; returns its id too.
    pub async fn expect_any_result(&mut self, within: Duration) -> (String, Reply) {
        let frame = self
            .expect_within("a result", within, |frame| frame["method"] == "tool.result")
            .await;
        let reply = self.acknowledge(&frame).await;
        (reply.0["tool_call_id"].as_str().unwrap().to_owned(), reply)
    }

    /// Returns the next result that comes within a time, and its id.
    pub async fn take_any_result(&mut self, within: Duration) -> Option<(String, Reply)> {
        let is_result = |frame: &Value| frame["method"] == "tool.result";
        let frame = if let Some(at) = self.seen.iter().position(is_result) {
            self.seen.remove(at)
        } else {
            let next = async {
                loop {
                    let frame = self.next_frame().await.ok()?;
                    if is_result(&frame) {
                        return Some(frame);
                    }
                }
            };
            tokio::time::timeout(within, next).await.ok()??
        };
        let reply = self.acknowledge(&frame).await;
        Some((reply.0["tool_call_id"].as_str().unwrap().to_owned(), reply))
    }

    /// Checks and acknowledges a result.
    async fn acknowledge(&mut self, frame: &Value) -> Reply {
        let reply = Reply(frame["params"].clone());
        let id = &reply.0["tool_call_id"];
        let known = self.names.iter().rev().find(|(known, _)| known == id);
        if let (Some((_, name)), Some(details)) = (known, reply.0.get("details")) {
            check_details(name, details);
        }
        if self.acks {
            let params = json!({"session_id": reply.0["session_id"], "tool_call_id": id});
            self.send("tool.result.ack", params).await;
        }
        reply
    }

    /// Takes the result of a call if it came while something else was waited for.
    pub async fn take_result(&mut self, id: &str) -> Option<Reply> {
        let is_there = self
            .seen
            .iter()
            .any(|frame| frame["method"] == "tool.result" && frame["params"]["tool_call_id"] == id);
        if is_there {
            Some(self.expect_result(id).await)
        } else {
            None
        }
    }

    /// Waits for a frame of a method.
    pub async fn expect(&mut self, method: &str) -> Value {
        let frame = self
            .expect_within(method, SOON, |frame| frame["method"] == method)
            .await;
        frame["params"].clone()
    }

    /// Waits for a frame; others are kept for later waits.
    pub async fn expect_within(
        &mut self,
        what: &str,
        within: Duration,
        wanted: impl Fn(&Value) -> bool,
    ) -> Value {
        if let Some(at) = self.seen.iter().position(&wanted) {
            return self.seen.remove(at);
        }
        let until = Instant::now() + within;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match tokio::time::timeout(left, self.next_frame()).await {
                Ok(Ok(frame)) if wanted(&frame) => return frame,
                Ok(Ok(frame)) => self.seen.push(frame),
                Ok(Err(error)) => panic!("{what} did not come: {error}; seen: {:#?}", self.seen),
                Err(_) => panic!(
                    "{what} did not come within {within:?}; seen: {:#?}",
                    self.seen
                ),
            }
        }
    }

    /// Returns every frame that comes until it has been quiet for a while, and those kept before.
    pub async fn drain(&mut self, quiet: Duration) -> Vec<Value> {
        let mut frames = std::mem::take(&mut self.seen);
        while let Ok(Ok(frame)) = tokio::time::timeout(quiet, self.next_frame()).await {
            frames.push(frame);
        }
        frames
    }

    /// Waits until the executor closes, and returns the close code; 1006 where the stream just ends.
    pub async fn expect_close(&mut self) -> u16 {
        let closed = async {
            loop {
                match self.socket.next().await {
                    Some(Ok(Message::Close(Some(frame)))) => return u16::from(frame.code),
                    Some(Ok(Message::Close(None))) => return 1005,
                    Some(Ok(Message::Text(text))) => self.seen.push(parse(&text)),
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return 1006,
                }
            }
        };
        tokio::time::timeout(SOON, closed)
            .await
            .expect("the executor closes the connection")
    }

    /// Pings, and returns how long the pong took.
    pub async fn ping(&mut self) -> Duration {
        let sent = Instant::now();
        self.send_message(Message::Ping(b"are you there"[..].into()))
            .await;
        let pong = async {
            loop {
                match self.socket.next().await {
                    Some(Ok(Message::Pong(payload))) if &payload[..] == b"are you there" => return,
                    Some(Ok(Message::Text(text))) => self.seen.push(parse(&text)),
                    Some(Ok(_)) => {}
                    other => panic!("no pong but {other:?}"),
                }
            }
        };
        tokio::time::timeout(SOON, pong)
            .await
            .expect("a pong comes");
        sent.elapsed()
    }

    /// Fails unless the session still runs commands.
    pub async fn check_alive(&mut self) {
        let reply = self.bash("echo alive").await;
        assert_eq!(reply.data(), "alive\nexit_code: 0");
    }

    async fn next_frame(&mut self) -> Result<Value, String> {
        loop {
            match self.socket.next().await {
                Some(Ok(Message::Text(text))) => return Ok(parse(&text)),
                Some(Ok(Message::Close(frame))) => return Err(format!("closed: {frame:?}")),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error.to_string()),
                None => return Err("the stream ended".to_owned()),
            }
        }
    }
}

fn parse(text: &str) -> Value {
    let frame =
        serde_json::from_str(text).unwrap_or_else(|error| panic!("not JSON ({error}): {text}"));
    check_frame(&frame);
    frame
}

/// Any byte stream.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send + std::fmt::Debug {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + std::fmt::Debug> Stream for S {}

/// Answers an executor that dials, as its harness; returns the connection and the headers that it asked with.
pub async fn accept_executor(
    stream: impl Stream + 'static,
    answer: impl Fn(&Request, Response) -> Result<Response, ErrorResponse>,
) -> (Result<Client, String>, HeaderMap) {
    let mut headers = HeaderMap::new();
    let stream: Box<dyn Stream> = Box::new(stream);
    let check = |request: &Request, response: Response| {
        headers = request.headers().clone();
        answer(request, response)
    };
    let socket = accept_hdr_async(stream, check)
        .await
        .map_err(|error| error.to_string());
    let client = match socket {
        Ok(socket) => Client::greet(socket).await,
        Err(error) => Err(error),
    };
    (client, headers)
}

/// Opens a WebSocket with headers of the test's choice.
pub async fn open(
    address: SocketAddr,
    key: Option<&str>,
    headers: &[(&'static str, &str)],
) -> Result<WebSocketStream<Box<dyn Stream>>, Error> {
    let mut request = format!("ws://{address}").into_client_request()?;
    if let Some(key) = key {
        request
            .headers_mut()
            .insert("authorization", format!("Bearer {key}").parse().unwrap());
    }
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let config = WebSocketConfig::default()
        .max_message_size(Some(64 << 20))
        .max_frame_size(Some(64 << 20));
    let stream: Box<dyn Stream> = Box::new(stream);
    client_async_with_config(request, stream, Some(config))
        .await
        .map(|(socket, _)| socket)
}
