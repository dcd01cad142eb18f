//! One WebSocket, as opamp-go's client uses it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::{SinkExt, StreamExt};
use tokio::sync::watch;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tokio_tungstenite::tungstenite::protocol::frame::{CloseFrame, Frame};
use tokio_tungstenite::tungstenite::{Error, Message};

use super::{Ended, MESSAGE_MAX, Seat, alarm, ordered, retry_after};
use crate::agent::Sent;
use crate::endpoint::CONNECT_TIMEOUT;
use crate::faults::Vanishing;
use crate::ledger::Noted;
use crate::tls::Stream;

pub(super) type Socket = WebSocketStream<Stream>;

/// gorilla's write buffer: opamp-go sends longer messages in frames of this size (serving.md 3.1).
const FRAME_MAX: usize = 4_096;
/// tungstenite's read buffer, allocated for each link for as long as it lives.
const READ_BUFFER: usize = 4_096;
/// How long opamp-go waits for the server's Close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// One link to its end; `kept` is one that was silent and goes on.
pub(super) async fn session(
    seat: &mut Seat,
    kept: Option<Box<Socket>>,
    stop: &mut watch::Receiver<bool>,
) -> Ended {
    let mut answered = kept.is_some();
    let mut socket = match kept {
        Some(socket) => socket,
        None => {
            let attempt = tokio::select! {
                attempt = connect(seat) => attempt,
                _ = stop.wait_for(|stop| *stop) => return Ended::Failed { retry_after: None },
            };
            match attempt {
                Ok(socket) => {
                    seat.handle_up();
                    Box::new(socket)
                }
                Err(retry_after) => return Ended::Failed { retry_after },
            }
        }
    };
    loop {
        if let Some(how) = seat.leaving() {
            return Ended::Away { kept: vanish(socket, how).await };
        }
        while let Some((sent, message)) = seat.next_message() {
            if send(&mut socket, message).await.is_err() {
                return Ended::Lost { answered };
            }
            if sent == Sent::Disconnect {
                say_goodbye(seat, &mut socket).await;
                return Ended::Stopped;
            }
        }
        let deadline = seat.deadline();
        let received = tokio::select! {
            biased;
            received = socket.next() => received,
            () = alarm(&seat.shared, &mut seat.alarm, deadline) => {
                seat.handle_timeout(deadline);
                seat.try_goodbye();
                continue;
            }
            _ = stop.wait_for(|stop| *stop), if !seat.stopping => {
                seat.stopping = true;
                seat.try_goodbye();
                continue;
            }
            () = ordered(&mut seat.orders) => {
                seat.obey();
                continue;
            }
        };
        let Some(Ok(message)) = received else { return Ended::Lost { answered } };
        if !seat.handle_received(message) {
            return Ended::Lost { answered };
        }
        answered = true;
        seat.try_goodbye();
    }
}

impl Seat {
    fn handle_up(&mut self) {
        let live = &self.shared.live;
        live.connected.fetch_add(1, Ordering::Relaxed);
        if !self.ever_connected {
            self.ever_connected = true;
            live.ever_connected.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(lost_at) = self.lost_at.take() {
            let away = self.now().saturating_sub(lost_at);
            self.shared.timings().away.saturating_record(away);
        }
        self.backoff.handle_connected();
        self.collector.handle_connected(self.shared.world());
    }

    pub(super) fn next_message(&mut self) -> Option<(Sent, Bytes)> {
        let now = self.now();
        let message = self.collector.poll_transmit(now, self.shared.world())?;
        self.shared.live.messages.fetch_add(1, Ordering::Relaxed);
        Some(message)
    }

    fn try_goodbye(&mut self) {
        if self.may_say_goodbye() {
            self.collector.handle_stop();
        }
    }

    /// False when the link is over.
    fn handle_received(&mut self, message: Message) -> bool {
        let now = self.now();
        let world = self.shared.world();
        let noted = match &message {
            Message::Binary(payload) => {
                let bytes = on_the_wire(payload.len());
                self.collector.handle_websocket(now, payload, bytes, world)
            }
            Message::Text(text) => {
                let bytes = on_the_wire(text.len());
                self.collector.handle_undecodable(now, bytes, "a text frame", world)
            }
            Message::Ping(payload) => {
                self.collector.handle_ping(now, on_the_wire(payload.len()), world)
            }
            Message::Pong(_) | Message::Frame(_) => Noted::default(),
            Message::Close(_) => return false,
        };
        self.note(&noted);
        true
    }
}

/// Leaves a link as a dying process does; a frozen one keeps its socket.
async fn vanish(mut socket: Box<Socket>, how: Vanishing) -> Option<Box<Socket>> {
    match how {
        Vanishing::Silence => return Some(socket),
        Vanishing::Close => {
            let close = CloseFrame { code: CloseCode::Away, reason: "".into() };
            let farewell = async {
                if socket.close(Some(close)).await.is_ok() {
                    while let Some(Ok(_)) = socket.next().await {}
                }
            };
            // The server need not answer somebody who goes.
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, farewell).await;
        }
        Vanishing::Kill => {
            // Without it, dropping says FIN: that is as abrupt as it gets then.
            let _ = socket2::SockRef::from(socket.get_ref().tcp()).set_linger(Some(Duration::ZERO));
        }
    }
    None
}

async fn connect(seat: &Seat) -> Result<Socket, Option<u64>> {
    let shared = &seat.shared;
    let endpoint = seat.endpoint();
    let stream = endpoint.connect().await.map_err(|error| {
        shared.count_error(format!("connect: {error}"));
        None
    })?;
    let url = format!("ws://{}{}", endpoint.authority, endpoint.path);
    let request = url.into_client_request().map_err(|error| {
        shared.count_error(format!("request: {error}"));
        None
    })?;
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER)
        .write_buffer_size(0)
        .max_message_size(Some(MESSAGE_MAX))
        .max_frame_size(Some(MESSAGE_MAX));
    let handshake = tokio_tungstenite::client_async_with_config(request, stream, Some(config));
    match tokio::time::timeout(CONNECT_TIMEOUT, handshake).await {
        Ok(Ok((socket, _))) => Ok(socket),
        Ok(Err(Error::Http(response))) => {
            if matches!(response.status().as_u16(), 429 | 503) {
                shared.live.throttled.fetch_add(1, Ordering::Relaxed);
                return Err(retry_after(response.headers()));
            }
            shared.count_error(format!("upgrade refused: {}", response.status()));
            Err(None)
        }
        Ok(Err(error)) => {
            shared.count_error(format!("upgrade: {error}"));
            Err(None)
        }
        Err(_) => {
            shared.count_error("upgrade: no answer in 10 s".to_owned());
            Err(None)
        }
    }
}

/// Header and protobuf, in frames of at most [`FRAME_MAX`].
async fn send(socket: &mut Socket, protobuf: Bytes) -> Result<(), Error> {
    let mut payload = BytesMut::with_capacity(1 + protobuf.len());
    payload.put_u8(0);
    payload.put(protobuf);
    let mut rest = payload.freeze();
    let mut code = Data::Binary;
    while rest.len() > FRAME_MAX {
        let frame = Frame::message(rest.split_to(FRAME_MAX), OpCode::Data(code), false);
        socket.feed(Message::Frame(frame)).await?;
        code = Data::Continue;
    }
    socket.send(Message::Frame(Frame::message(rest, OpCode::Data(code), true))).await
}

/// Sends Close and reads on until the server's, as the books want to see what still comes.
async fn say_goodbye(seat: &mut Seat, socket: &mut Socket) {
    let close = CloseFrame { code: CloseCode::Normal, reason: "".into() };
    let farewell = async {
        if socket.close(Some(close)).await.is_err() {
            return; // the server was faster
        }
        while let Some(Ok(message)) = socket.next().await {
            if !seat.handle_received(message) {
                return;
            }
        }
    };
    if tokio::time::timeout(CLOSE_TIMEOUT, farewell).await.is_err() {
        seat.shared.count_error("close: no Close from the server in 5 s".to_owned());
    }
    seat.shared.live.connected.fetch_sub(1, Ordering::Relaxed);
}

/// Payload and header of an unmasked frame (RFC 6455, section 5.2).
fn on_the_wire(payload: usize) -> usize {
    payload
        + match payload {
            0..=125 => 2,
            126..=0xffff => 4,
            _ => 10,
        }
}
