//! A small OpAMP server that serves an estate rightly, or lies in one way.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use loadgen::model::{Attributes, Model, Value};
use prost::Message as _;
use proto::opamp as wire;
use render::tree::Tree;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_tungstenite::tungstenite::Message;

/// How a server deviates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    /// Not at all.
    None,
    /// Offers under the hash of the bytes, stamps included.
    WrongHash,
    /// Offers one byte more.
    WrongBytes,
    /// Gives every collector of the estate the artefact for strays.
    WrongTier,
    /// Leaves out the content type.
    NoContentType,
    /// Swallows the message that reports APPLIED.
    NoReply,
    /// Answers APPLIED twice.
    TwoReplies,
    /// Offers again to who reports the content.
    Again,
    /// Answers as if to somebody else.
    OtherUid,
    /// Asks for full state whenever there is no description, as the reference does.
    FullStateAlways,
    /// Never offers.
    NoOffer,
    /// Offers to those who accept none.
    Foreign,
    /// After a change, pushes the candidate to one who is no member: host bridge-a2, whose bucket
    /// is 9,791 of 10,000.
    PushToOutsider,
    /// After a change, pushes to everybody whatever they hold.
    PushToAll,
    /// After a change, pushes nothing.
    NoPush,
    /// Answers in text frames.
    Text,
    /// Adds an empty field to acks.
    LongAck,
    /// Closes each link after the first APPLIED, once.
    Kick,
    /// Refuses the first requests with 503.
    Busy,
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    heads: watch::Sender<Arc<Model>>,
    estate: PathBuf,
}

impl Server {
    pub(crate) async fn start(estate: &Path, lie: Lie) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (heads, receiver) = watch::channel(Arc::new(read(estate)));
        let state = Arc::new(State {
            lie,
            polls: Mutex::default(),
            kicks: AtomicU32::new(0),
            busy: AtomicU32::new(0),
        });
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&state), receiver.clone()));
            }
        });
        Self { address, heads, estate: estate.to_owned() }
    }

    pub(crate) fn url(&self) -> String {
        format!("ws://{}/v1/opamp", self.address)
    }

    /// Takes the estate as it is now for the new head.
    pub(crate) fn reload(&self) {
        self.heads.send_replace(Arc::new(read(&self.estate)));
    }
}

struct State {
    lie: Lie,
    /// Over HTTP, links by uid.
    polls: Mutex<HashMap<Bytes, Link>>,
    kicks: AtomicU32,
    busy: AtomicU32,
}

/// What is known of one collector.
#[derive(Default)]
struct Link {
    uid: Bytes,
    attributes: Option<Attributes>,
    accepts: bool,
    believed: Bytes,
    applied: bool,
}

const BUSY: u32 = 5;
const KICKS: u32 = 3;

async fn serve(mut stream: TcpStream, state: Arc<State>, heads: watch::Receiver<Arc<Model>>) {
    if state.lie == Lie::Busy && state.busy.fetch_add(1, Ordering::Relaxed) < BUSY {
        let mut request = [0; 2048];
        let _ = stream.read(&mut request).await.unwrap();
        let refusal = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        stream.write_all(refusal).await.unwrap();
        return;
    }
    let mut head = [0; 3];
    stream.peek(&mut head).await.unwrap();
    if head.starts_with(b"POS") {
        poll(stream, state, heads).await;
    } else {
        websocket(stream, state, heads).await;
    }
}

async fn websocket(stream: TcpStream, state: Arc<State>, mut heads: watch::Receiver<Arc<Model>>) {
    let Ok(mut socket) = tokio_tungstenite::accept_async(stream).await else { return };
    let mut link = Link::default();
    loop {
        let replies = tokio::select! {
            message = socket.next() => match message {
                Some(Ok(Message::Binary(payload))) => {
                    let message = wire::AgentToServer::decode(payload.slice(1..)).unwrap();
                    let model = Arc::clone(&heads.borrow());
                    link.answer(&message, &model, state.lie)
                }
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                Some(Ok(_)) => continue,
            },
            changed = heads.changed() => {
                if changed.is_err() {
                    return;
                }
                let model = Arc::clone(&heads.borrow_and_update());
                link.push(&model, state.lie)
            }
        };
        for reply in replies {
            let mut payload = vec![0];
            payload.extend(reply);
            let message = match state.lie {
                Lie::Text => Message::text("ok"),
                _ => Message::binary(payload),
            };
            if socket.send(message).await.is_err() {
                return;
            }
        }
        let kick = state.lie == Lie::Kick && link.applied;
        if kick && state.kicks.fetch_add(1, Ordering::Relaxed) < KICKS {
            return;
        }
    }
}

async fn poll(stream: TcpStream, state: Arc<State>, heads: watch::Receiver<Arc<Model>>) {
    let service = service_fn(move |request: Request<hyper::body::Incoming>| {
        let (state, model) = (Arc::clone(&state), Arc::clone(&heads.borrow()));
        async move {
            let body = request.into_body().collect().await?.to_bytes();
            let message = wire::AgentToServer::decode(body).unwrap();
            let mut polls = state.polls.lock().unwrap();
            let link = polls.entry(message.instance_uid.clone()).or_default();
            let mut replies = link.answer(&message, &model, state.lie);
            let response = Response::builder().header("content-type", "application/x-protobuf");
            let body = if replies.is_empty() { Vec::new() } else { replies.remove(0) };
            Ok::<_, hyper::Error>(response.body(Full::new(Bytes::from(body))).unwrap())
        }
    });
    // The client going away ends it; what it saw is what the tests look at.
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

impl Link {
    fn answer(&mut self, message: &wire::AgentToServer, model: &Model, lie: Lie) -> Vec<Vec<u8>> {
        self.uid = message.instance_uid.clone();
        self.accepts = message.capabilities & 2 != 0 || lie == Lie::Foreign;
        if let Some(description) = &message.agent_description {
            self.attributes = Some(Attributes {
                identifying: convert(&description.identifying_attributes),
                non_identifying: convert(&description.non_identifying_attributes),
            });
        }
        let status = message.remote_config_status.as_ref();
        if let Some(status) = status {
            self.believed = status.last_remote_config_hash.clone();
        }
        let applied = status.is_some_and(|status| status.status == 1);
        self.applied |= applied;
        let known = self.attributes.is_some();
        let full_state =
            !known || (lie == Lie::FullStateAlways && message.agent_description.is_none());
        let mut reply = self.bare();
        if lie == Lie::OtherUid {
            reply.instance_uid = Bytes::from_static(&[7; 16]);
        }
        reply.flags = u64::from(full_state);
        if message.agent_disconnect.is_none()
            && let Some(offer) = self.decide(model, lie, applied && lie == Lie::Again)
        {
            reply.remote_config = Some(offer);
        }
        let mut bytes = reply.encode_to_vec();
        match lie {
            Lie::NoReply if applied => return Vec::new(),
            Lie::TwoReplies if applied => return vec![bytes.clone(), bytes],
            Lie::LongAck if applied => bytes.extend([0x30, 0x00]), // flags, said to be none
            _ => {}
        }
        vec![bytes]
    }

    fn push(&mut self, model: &Model, lie: Lie) -> Vec<Vec<u8>> {
        if lie == Lie::NoPush || self.attributes.is_none() || !self.accepts {
            return Vec::new();
        }
        let mut message = self.bare();
        message.remote_config = self.decide(model, lie, lie == Lie::PushToAll);
        if lie == Lie::PushToOutsider && self.is("bridge-a2") {
            let member = Attributes {
                identifying: vec![("service.name".to_owned(), Value::Text("one".to_owned()))],
                non_identifying: vec![("host.name".to_owned(), Value::Text("trusted".to_owned()))],
            };
            message.remote_config = Some(offer(model, &member, lie));
        }
        if message.remote_config.is_none() { Vec::new() } else { vec![message.encode_to_vec()] }
    }

    fn decide(&mut self, model: &Model, lie: Lie, anyway: bool) -> Option<wire::AgentRemoteConfig> {
        if !self.accepts || lie == Lie::NoOffer {
            return None;
        }
        let stray = Attributes::default();
        let attributes = self.attributes.as_ref()?;
        let offer = offer(model, if lie == Lie::WrongTier { &stray } else { attributes }, lie);
        if offer.config_hash == self.believed && !anyway {
            return None;
        }
        self.believed = offer.config_hash.clone();
        Some(offer)
    }

    fn is(&self, host: &str) -> bool {
        let flat = self.attributes.as_ref().map(Attributes::flat);
        flat.is_some_and(|flat| flat.get("host.name") == Some(&host))
    }

    fn bare(&self) -> wire::ServerToAgent {
        wire::ServerToAgent {
            instance_uid: self.uid.clone(),
            capabilities: 7,
            ..wire::ServerToAgent::default()
        }
    }
}

fn offer(model: &Model, attributes: &Attributes, lie: Lie) -> wire::AgentRemoteConfig {
    let artefact = model.artefact(model.place(attributes));
    let mut body = artefact.bytes.to_vec();
    let mut hash = artefact.hash.clone();
    if lie == Lie::WrongBytes {
        body.push(b'\n');
    }
    if lie == Lie::WrongHash {
        hash = Bytes::from("0".repeat(64));
    }
    let file = wire::AgentConfigFile {
        body: body.into(),
        content_type: if lie == Lie::NoContentType { "" } else { "text/yaml" }.to_owned(),
        ..wire::AgentConfigFile::default()
    };
    wire::AgentRemoteConfig {
        config: Some(wire::AgentConfigMap { config_map: BTreeMap::from([(String::new(), file)]) }),
        config_hash: hash,
    }
}

fn convert(list: &[wire::KeyValue]) -> Vec<(String, Value)> {
    list.iter()
        .map(|pair| {
            let value = match pair.value.as_ref().and_then(|value| value.value.as_ref()) {
                Some(wire::any_value::Value::StringValue(text)) => Value::Text(text.clone()),
                _ => Value::Truth(false),
            };
            (pair.key.clone(), value)
        })
        .collect()
}

fn read(estate: &Path) -> Model {
    Model::read(&Tree::read_dir(estate, "estate").unwrap()).unwrap()
}
