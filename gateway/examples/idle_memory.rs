//! How much memory one idle link takes, measured on the real binary.
//!
//! ```text
//! cargo build --release --bin gateway --example idle_memory
//! target/release/examples/idle_memory target/release/gateway fixtures/estates/demo 19000
//! ```
//!
//! Starts the gateway on free ports, opens as many WebSocket links as told, each with a 20 kB first
//! report, its offer read, and one heartbeat; then prints (RSS with links - RSS before) / links from
//! `/proc/PID/smaps_rollup`. After that half of a 60 kB report goes to every link, and then the other
//! half (slow networks look like that): the peak, and what is left three seconds later.
//! Links come from several 127.x addresses, so that ports do not run out. Needs about as many
//! descriptors as links, here and in the gateway. Pings are not answered: everything must be over in
//! 45 s, else links are dropped and the probe ends with an error.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use prost::Message;
use prost::bytes::Bytes;
use proto::opamp::any_value::Value;
use proto::opamp::{
    AgentConfigFile, AgentConfigMap, AgentDescription, AgentToServer, AnyValue, EffectiveConfig,
    KeyValue,
};
use socket2::{Domain, Socket, Type};

const UPGRADE: &[u8] = b"GET /v1/opamp HTTP/1.1\r\nHost: gw\r\nConnection: Upgrade\r\n\
    Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
/// Threads that open links; the gateway has the other core.
const OPENERS: usize = 4;
/// Long enough for the workers to have collected.
const SETTLE: Duration = Duration::from_secs(3);

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let usage = || io::Error::other("usage: idle_memory GATEWAY ESTATE [LINKS] [FLAGS...]");
    let gateway = arguments.next().ok_or_else(usage)?;
    let estate = arguments.next().ok_or_else(usage)?;
    let count: usize = match arguments.next() {
        Some(text) => text.parse().map_err(|_| usage())?,
        None => 19_000,
    };
    raise_descriptors()?;
    let (gateway, addr) = Gateway::start(&gateway, &estate, arguments.collect())?;
    // The first link pays for what all share.
    drop(Link::open(addr, 0, 20_000)?);
    std::thread::sleep(SETTLE);
    let before = gateway.rss()?;
    println!("before    {before} bytes RSS");

    let cpu = gateway.cpu_ticks()?;
    let started = Duration::from_secs_f64(uptime()?);
    let mut links = open_all(addr, count)?;
    let took = Duration::from_secs_f64(uptime()?).saturating_sub(started);
    let ticks = gateway.cpu_ticks()? - cpu;
    println!(
        "opened    {count} links in {took:.1?}, {} µs of the gateway's CPU each",
        ticks * 10_000 / count as u64
    );
    std::thread::sleep(SETTLE);
    let idle = gateway.rss()?;
    let per_link = |bytes: u64| bytes.saturating_sub(before) / count as u64;
    println!("idle      {idle} bytes RSS, {} per link", per_link(idle));

    let mut rest = Vec::with_capacity(count);
    for link in &mut links {
        rest.push(link.send_half(60_000)?);
    }
    for (link, rest) in links.iter_mut().zip(&rest) {
        link.stream.write_all(rest)?;
    }
    for link in &mut links {
        link.read_frame()?;
    }
    let (after, peak) = (gateway.rss()?, gateway.peak()?);
    println!("burst     {peak} bytes RSS at its peak, {} above idle", peak.saturating_sub(idle));
    println!("after     {after} bytes RSS, {} per link", per_link(after));
    std::thread::sleep(SETTLE);
    let later = gateway.rss()?;
    println!("3 s later {later} bytes RSS, {} per link", per_link(later));
    Ok(())
}

/// The gateway under measurement; killed when this is dropped.
struct Gateway(Child);

impl Gateway {
    fn start(binary: &str, estate: &str, flags: Vec<String>) -> io::Result<(Self, SocketAddr)> {
        let mut child = Command::new(binary)
            .args(["serve", "--estate", estate, "--listen", "127.0.0.1:0"])
            .args(["--admin", "127.0.0.1:0", "--admission-burst", "1000000"])
            .args(flags)
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = child.stdout.take().ok_or_else(|| io::Error::other("no stdout"))?;
        let gateway = Self(child);
        let mut stdout = BufReader::new(stdout);
        let mut line = String::new();
        while stdout.read_line(&mut line)? > 0 {
            if let Some(rest) = line.strip_prefix("listen    ws://")
                && let Some((addr, _)) = rest.split_once('/')
            {
                let addr = addr.parse().map_err(io::Error::other)?;
                // Whatever else it says is read, so that it can go on saying it.
                std::thread::spawn(move || io::copy(&mut stdout, &mut io::sink()));
                return Ok((gateway, addr));
            }
            line.clear();
        }
        Err(io::Error::other("the gateway did not say where it listens"))
    }

    /// Resident bytes, from `smaps_rollup`: exact, where `status` is rounded per thread.
    fn rss(&self) -> io::Result<u64> {
        self.kilobytes("smaps_rollup", "Rss:")
    }

    fn peak(&self) -> io::Result<u64> {
        self.kilobytes("status", "VmHWM:")
    }

    fn kilobytes(&self, file: &str, key: &str) -> io::Result<u64> {
        let text = std::fs::read_to_string(format!("/proc/{}/{file}", self.0.id()))?;
        text.lines()
            .find_map(|line| {
                line.strip_prefix(key)?.trim().strip_suffix(" kB")?.parse::<u64>().ok()
            })
            .map(|kilobytes| kilobytes * 1_024)
            .ok_or_else(|| io::Error::other(format!("no {key} in {file}")))
    }

    /// User and system time, in hundredths of a second.
    fn cpu_ticks(&self) -> io::Result<u64> {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id()))?;
        let after_name = text.rsplit(')').next().unwrap_or_default();
        let fields: Vec<&str> = after_name.split_whitespace().collect();
        let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<u64>().ok());
        ticks(11).zip(ticks(12)).map(|(user, system)| user + system).ok_or_else(|| {
            io::Error::other("the kernel writes /proc/PID/stat in another way than we know")
        })
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to do.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One link, and the number of its agent.
struct Link {
    stream: TcpStream,
    number: u32,
}

impl Link {
    /// Connects, reports `bytes`, reads the offer, beats once and reads the answer.
    fn open(addr: SocketAddr, number: u32, bytes: usize) -> io::Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_tcp_nodelay(true)?;
        // The kernel looks long for a free port once an address has used many.
        let source = [127, 0, 1, 1 + u8::try_from(number / 2_000).unwrap_or(0)];
        socket.bind(&SocketAddr::from((source, 0)).into())?;
        socket.connect(&addr.into())?;
        let mut link = Self { stream: socket.into(), number };
        link.stream.write_all(UPGRADE)?;
        link.read_head()?;
        link.stream.write_all(&frame(&link.message(0, Some(bytes))))?;
        link.read_frame()?;
        link.stream.write_all(&frame(&link.message(1, None)))?;
        link.read_frame()?;
        Ok(link)
    }

    /// Sends the first half of another report; returns the second.
    fn send_half(&mut self, bytes: usize) -> io::Result<Vec<u8>> {
        let mut frame = frame(&self.message(2, Some(bytes)));
        let rest = frame.split_off(frame.len() / 2);
        self.stream.write_all(&frame)?;
        Ok(rest)
    }

    fn message(&self, sequence_num: u64, report: Option<usize>) -> Vec<u8> {
        let mut uid = [0x22; 16];
        uid[12..].copy_from_slice(&self.number.to_be_bytes());
        let text = |key: &str, value: String| KeyValue {
            key: key.into(),
            value: Some(AnyValue { value: Some(Value::StringValue(value)) }),
        };
        let message = AgentToServer {
            instance_uid: Bytes::copy_from_slice(&uid),
            sequence_num,
            capabilities: 0x3007,
            agent_description: report.map(|_| AgentDescription {
                identifying_attributes: vec![text("service.name", "otelcol-gateway".into())],
                non_identifying_attributes: vec![
                    text("host.name", format!("node-{}", self.number)),
                    text("deployment.environment.name", "production".into()),
                ],
            }),
            effective_config: report.map(|bytes| EffectiveConfig {
                config_map: Some(AgentConfigMap {
                    config_map: [(
                        String::new(),
                        AgentConfigFile {
                            body: Bytes::from(vec![b'#'; bytes]),
                            ..AgentConfigFile::default()
                        },
                    )]
                    .into(),
                }),
            }),
            ..AgentToServer::default()
        };
        let mut bytes = vec![0];
        bytes.extend(message.encode_to_vec());
        bytes
    }

    fn read_head(&mut self) -> io::Result<()> {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            self.stream.read_exact(&mut byte)?;
            head.push(byte[0]);
        }
        if head.starts_with(b"HTTP/1.1 101 ") {
            return Ok(());
        }
        Err(io::Error::other(String::from_utf8_lossy(&head).into_owned()))
    }

    fn read_frame(&mut self) -> io::Result<()> {
        loop {
            let mut start = [0; 2];
            self.stream.read_exact(&mut start)?;
            let length = match start[1] {
                126 => {
                    let mut length = [0; 2];
                    self.stream.read_exact(&mut length)?;
                    u64::from(u16::from_be_bytes(length))
                }
                127 => {
                    let mut length = [0; 8];
                    self.stream.read_exact(&mut length)?;
                    u64::from_be_bytes(length)
                }
                short => short.into(),
            };
            io::copy(&mut (&self.stream).take(length), &mut io::sink())?;
            // A ping may come in between while the probe is slow; the gateway waits for no pong here.
            if start[0] & 0xf == 2 {
                return Ok(());
            }
        }
    }
}

fn open_all(addr: SocketAddr, count: usize) -> io::Result<Vec<Link>> {
    let threads: Vec<_> = (0..OPENERS)
        .map(|opener| {
            std::thread::spawn(move || {
                (opener..count)
                    .step_by(OPENERS)
                    .map(|number| Link::open(addr, u32::try_from(number + 1).unwrap_or(0), 20_000))
                    .collect::<io::Result<Vec<_>>>()
            })
        })
        .collect();
    let mut links = Vec::with_capacity(count);
    for thread in threads {
        let opened = thread.join().map_err(|_| io::Error::other("an opener panicked"))?;
        links.extend(opened?);
    }
    Ok(links)
}

/// A masked binary frame; the mask is zero, which is as good as any here.
fn frame(payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x82];
    match u16::try_from(payload.len()) {
        Ok(short @ 0..=125) => frame.push(0x80 | short as u8),
        Ok(length) => {
            frame.push(0x80 | 126);
            frame.extend_from_slice(&length.to_be_bytes());
        }
        Err(_) => {
            frame.push(0x80 | 127);
            frame.extend_from_slice(&(payload.len() as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(payload);
    frame
}

fn raise_descriptors() -> io::Result<()> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    Ok(setrlimit(Resource::Nofile, limit)?)
}

/// Seconds since boot: a monotonic clock without asking for the time.
fn uptime() -> io::Result<f64> {
    let text = std::fs::read_to_string("/proc/uptime")?;
    let first = text.split(' ').next().unwrap_or_default();
    first.parse().map_err(io::Error::other)
}
