//! Swarms without a gateway.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::channel;

use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::*;
use crate::endpoint::CONNECT_TIMEOUT;
use crate::watch::Watcher;

#[test]
fn neighbours_share_a_home_in_blocks_and_none_in_turn() {
    let homes = |homes: Homes| (0..10).map(|number| homes.of(number, 3)).collect::<Vec<_>>();
    assert_eq!(homes(Homes::InTurn), [0, 1, 2, 0, 1, 2, 0, 1, 2, 0]);
    assert_eq!(homes(Homes::Blocks(10)), [0, 0, 0, 0, 1, 1, 1, 2, 2, 2]);
    assert_eq!(Homes::Blocks(u32::MAX).of(u32::MAX, u32::MAX), u32::MAX - 1);
}

/// Turns of a loop that wait up to a tick each: half a minute of nothing happening.
const TURNS_MAX: u32 = 1_500;

/// So many collectors that connect to `address` as soon as there is room for them.
pub(super) fn swarm(collectors: u32, address: SocketAddr) -> Swarm {
    let estate = crate::testing::estate();
    let (_, model) = Watcher::open(estate.path()).unwrap();
    let plan = Plan::derive(&model, collectors).unwrap();
    let clock = Clock::start();
    let heads = Heads::new(Head::new(model, clock.now(), &plan, None), 0);
    let habits = Habits::new(plan.behaviour());
    let realm = Arc::new(Realm { clock, plan, habits, heads });
    Swarm::new(Given {
        realm,
        targets: vec![address],
        homes: Homes::InTurn,
        first: 0,
        path: "/v1/opamp".to_owned(),
        sources: Vec::new(),
        every: 0.0,
        reply_timeout: micros(Duration::from_secs(600)),
        reconnect_within: None,
    })
    .unwrap()
}

/// Takes a connection, makes a WebSocket of it, and says no more.
pub(super) fn upgrade_and_fall_silent(listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut key = None;
    for line in BufReader::new(&stream).lines() {
        let line = line.unwrap();
        if line.is_empty() {
            break;
        }
        key = key.or_else(|| line.strip_prefix("Sec-WebSocket-Key: ").map(str::to_owned));
    }
    let accept = derive_accept_key(key.unwrap().as_bytes());
    let answer = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
    );
    stream.write_all(answer.as_bytes()).unwrap();
    stream
}

/// Goes on until that is so.
pub(super) fn until(swarm: &mut Swarm, orders: &Receiver<Command>, done: &dyn Fn(&Swarm) -> bool) {
    let mut events = Events::with_capacity(EVENTS);
    for _ in 0..TURNS_MAX {
        swarm.turn(&mut events, orders, &mut |_| {}).unwrap();
        if done(swarm) {
            return;
        }
    }
    panic!("{} begun, {} coming", swarm.begun, swarm.coming);
}

#[test]
fn an_end_that_comes_together_with_bytes_is_seen() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let collectors = 5;
    let mut swarm = swarm(collectors, listener.local_addr().unwrap());
    let (commands, orders) = channel();
    commands.send(Command::Go(0)).unwrap();
    until(&mut swarm, &orders, &|swarm| swarm.coming == collectors);
    // Nothing is reset, as the servers' sockets stay open: the end is all that there is to see.
    let _links: Vec<_> = (0..collectors)
        .map(|_| {
            let link = upgrade_and_fall_silent(&listener);
            link.shutdown(Shutdown::Write).unwrap();
            link
        })
        .collect();
    until(&mut swarm, &orders, &|swarm| swarm.figures.other_ends.fin == u64::from(collectors));
}

#[test]
fn a_silent_server_takes_nobodys_place() {
    crate::host::raise_descriptors();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let waiting = 2;
    let mut swarm = swarm(COMING_MAX + waiting, listener.local_addr().unwrap());
    let (commands, orders) = channel();
    commands.send(Command::Go(0)).unwrap();
    until(&mut swarm, &orders, &|swarm| swarm.coming == COMING_MAX);
    let _links: Vec<_> = (0..COMING_MAX).map(|_| upgrade_and_fall_silent(&listener)).collect();
    until(&mut swarm, &orders, &|swarm| swarm.figures.connected == COMING_MAX);
    // They are up, were not answered, and keep the others out: for as long as a handshake may take.
    let pass = |swarm: &mut Swarm, time: Duration| {
        let realm = Arc::get_mut(&mut swarm.given.realm).unwrap();
        realm.clock = realm.clock.later(time);
    };
    pass(&mut swarm, CONNECT_TIMEOUT / 4);
    until(&mut swarm, &orders, &|swarm| swarm.figures.live.messages >= u64::from(COMING_MAX));
    assert_eq!((swarm.begun, swarm.coming), (COMING_MAX, COMING_MAX));
    pass(&mut swarm, CONNECT_TIMEOUT);
    until(&mut swarm, &orders, &|swarm| swarm.begun == COMING_MAX + waiting);
    assert_eq!(swarm.coming, waiting);
    // What happened to the silent ones is not forgotten: their links are up, and nothing is lost.
    assert_eq!((swarm.figures.connected, swarm.figures.live.links_lost), (COMING_MAX, 0));
    assert!(swarm.errors.is_empty(), "{:?}", swarm.errors);
}
