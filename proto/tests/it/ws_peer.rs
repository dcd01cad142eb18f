//! The server's framing with tungstenite as the client.

use std::collections::VecDeque;
use std::io::{self, Read, Write};

use proptest::collection::vec;
use proptest::prelude::*;
use proto::ws::{self, Decoder, Event, Input, Limits, MAX_HEADER_BYTES, Opcode};
use tungstenite::protocol::frame::coding::{Data, OpCode};
use tungstenite::protocol::frame::{CloseFrame, Frame};
use tungstenite::protocol::{Role, WebSocket};
use tungstenite::{Error, Message};

#[derive(Clone, Debug)]
enum Step {
    /// A message from the client, in fragments with a ping or pong behind some of them.
    Up(Vec<(Vec<u8>, Between)>),
    /// A message from the server.
    Down(Vec<u8>),
    /// A ping from the server.
    Ping(Vec<u8>),
}

#[derive(Clone, Copy, Debug)]
enum Between {
    Nothing,
    Ping,
    Pong,
}

proptest! {
    #[test]
    fn a_client_and_our_framing_understand_each_other(
        steps in vec(step(), 1..12),
        sizes in vec(1_usize..5_000, 1..20),
    ) {
        let mut client = WebSocket::from_raw_socket(Wire::default(), Role::Client, None);
        let mut server = Server::new(sizes);
        for step in steps {
            match step {
                Step::Up(fragments) => {
                    let whole: Vec<u8> =
                        fragments.iter().flat_map(|(part, _)| part).copied().collect();
                    send(&mut client, fragments);
                    server.read(&mut client);
                    prop_assert_eq!(server.messages.pop_front(), Some(whole));
                }
                Step::Down(message) => {
                    server.write(&mut client, Opcode::Binary, &message);
                    prop_assert_eq!(receive(&mut client), Some(Message::binary(message)));
                }
                Step::Ping(payload) => {
                    client.get_mut().to_client.extend(ws::ping(&payload).as_ref());
                    prop_assert_eq!(receive(&mut client), Some(Message::Ping(payload.clone().into())));
                    client.flush().unwrap();
                    server.read(&mut client);
                    prop_assert_eq!(server.pongs.pop_front(), Some(payload));
                }
            }
            // The client takes each of our pongs.
            while let Some(pong) = receive(&mut client) {
                prop_assert_eq!(pong, Message::Pong(b"between".to_vec().into()));
                server.pings -= 1;
            }
        }
        prop_assert_eq!(server.pings, 0);
        prop_assert!(server.parked.is_none() && server.messages.is_empty());
    }
}

#[test]
fn the_client_closes_and_is_answered() {
    let mut client = WebSocket::from_raw_socket(Wire::default(), Role::Client, None);
    let mut server = Server::new(vec![3]);
    client.close(Some(CloseFrame { code: 1001.into(), reason: "bye".into() })).unwrap();
    server.read(&mut client);
    assert_eq!(server.closed, Some((Some(1001), "bye".to_owned())));
    let answer = CloseFrame { code: 1001.into(), reason: "".into() };
    assert_eq!(receive(&mut client), Some(Message::Close(Some(answer))));
}

#[test]
fn the_server_closes_and_is_answered() {
    let mut client = WebSocket::from_raw_socket(Wire::default(), Role::Client, None);
    let mut server = Server::new(vec![1]);
    let close = ws::close(ws::code::GOING_AWAY, "the gateway is being drained");
    client.get_mut().to_client.extend(close.as_ref());
    let expected = CloseFrame { code: 1001.into(), reason: "the gateway is being drained".into() };
    assert_eq!(receive(&mut client), Some(Message::Close(Some(expected))));
    client.flush().unwrap();
    server.read(&mut client);
    assert_eq!(server.closed.map(|(code, _)| code), Some(Some(1001)));
}

#[test]
fn what_a_client_of_text_is_told() {
    let mut client = WebSocket::from_raw_socket(Wire::default(), Role::Client, None);
    client.send(Message::text("hi")).unwrap();
    let mut bytes: Vec<u8> = client.get_mut().to_server.drain(..).collect();
    let mut decoder = Decoder::default();
    let violation = decoder.poll_event(&mut Input::new(&mut bytes), Limits::default()).unwrap_err();
    let close = ws::close(violation.code(), &violation.to_string());
    client.get_mut().to_client.extend(close.as_ref());
    let expected = CloseFrame { code: 1003.into(), reason: "text messages are not OpAMP".into() };
    assert_eq!(receive(&mut client), Some(Message::Close(Some(expected))));
}

fn send(client: &mut WebSocket<Wire>, fragments: Vec<(Vec<u8>, Between)>) {
    let last = fragments.len() - 1;
    for (at, (part, between)) in fragments.into_iter().enumerate() {
        let data = if at == 0 { Data::Binary } else { Data::Continue };
        let frame = Frame::message(part, OpCode::Data(data), at == last);
        client.send(Message::Frame(frame)).unwrap();
        let payload = b"between".to_vec().into();
        match between {
            Between::Nothing => {}
            Between::Ping => client.send(Message::Ping(payload)).unwrap(),
            Between::Pong => client.send(Message::Pong(payload)).unwrap(),
        }
    }
}

fn receive(client: &mut WebSocket<Wire>) -> Option<Message> {
    match client.read() {
        Ok(message) => Some(message),
        Err(Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => None,
        Err(error) => panic!("{error}"),
    }
}

/// A server's end of a link, reading pieces of given sizes.
struct Server {
    parked: Option<Box<Decoder>>,
    sizes: Vec<usize>,
    turn: usize,
    messages: VecDeque<Vec<u8>>,
    pongs: VecDeque<Vec<u8>>,
    /// How many were answered.
    pings: usize,
    closed: Option<(Option<u16>, String)>,
}

impl Server {
    fn new(sizes: Vec<usize>) -> Self {
        Self {
            parked: None,
            sizes,
            turn: 0,
            messages: VecDeque::new(),
            pongs: VecDeque::new(),
            pings: 0,
            closed: None,
        }
    }

    fn read(&mut self, client: &mut WebSocket<Wire>) {
        let wire = client.get_mut();
        while !wire.to_server.is_empty() {
            let size = self.sizes[self.turn % self.sizes.len()].min(wire.to_server.len());
            self.turn += 1;
            let mut scratch: Vec<u8> = wire.to_server.drain(..size).collect();
            let mut input = Input::new(&mut scratch);
            let mut decoder = self.parked.take().map_or_else(Decoder::default, |parked| *parked);
            while let Some(event) = decoder.poll_event(&mut input, Limits::default()).unwrap() {
                match event {
                    Event::Message(payload) => self.messages.push_back(payload.to_vec()),
                    Event::Ping(payload) => {
                        wire.to_client.extend(ws::pong(payload).as_ref());
                        self.pings += 1;
                    }
                    Event::Pong(b"between") => {}
                    Event::Pong(payload) => self.pongs.push_back(payload.to_vec()),
                    Event::Close(close) => {
                        wire.to_client.extend(close.answer().as_ref());
                        self.closed = Some((close.code, close.reason.to_owned()));
                    }
                }
            }
            self.parked = (!decoder.is_idle()).then(|| Box::new(decoder));
        }
    }

    fn write(&self, client: &mut WebSocket<Wire>, opcode: Opcode, payload: &[u8]) {
        let mut header = [0; MAX_HEADER_BYTES];
        let len = ws::encode_header(opcode, payload.len(), &mut header);
        client.get_mut().to_client.extend(&header[..len]);
        client.get_mut().to_client.extend(payload);
    }
}

/// Both directions of a connection, in memory.
#[derive(Default)]
struct Wire {
    to_server: VecDeque<u8>,
    to_client: VecDeque<u8>,
}

impl Read for Wire {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self.to_client.read(out)? {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            len => Ok(len),
        }
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.to_server.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn step() -> impl Strategy<Value = Step> {
    let between = prop_oneof![
        3 => Just(Between::Nothing),
        1 => Just(Between::Ping),
        1 => Just(Between::Pong),
    ];
    let size = prop_oneof![0_usize..200, 65_530_usize..65_545, 4_000_usize..4_200];
    let payload = (size, any::<u8>()).prop_map(|(size, seed)| {
        (0..size).map(|at| seed.wrapping_add((at % 253) as u8)).collect::<Vec<u8>>()
    });
    prop_oneof![
        3 => vec((payload.clone(), between), 1..5).prop_map(Step::Up),
        1 => payload.prop_map(Step::Down),
        1 => vec(any::<u8>(), 0..126).prop_map(Step::Ping),
    ]
}
