//! Browsers that signed in: a cookie stands for the token that was given once.
//!
//! Sessions live in this process alone and end after [`SESSION_SECONDS`], by signing out, or when
//! their token leaves the file. Wrong tokens are held back by the address they come from.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::tokens::AdminTokens;
use crate::clock::Seconds;
use crate::tokens::new::hex;

/// A session ends this long after it began, however it is used: a working day.
pub const SESSION_SECONDS: Seconds = 8 * 3_600;

/// Sessions at one time; the oldest ends when one more begins.
pub const SESSIONS_MAX: usize = 256;

/// Wrong tokens that an address may give in a row; after that one each [`WRONG_EVERY`].
pub const WRONG_MAX: u32 = 5;

/// Time after which an address may give one more wrong token.
pub const WRONG_EVERY: Duration = Duration::from_secs(10);

/// Addresses share so many counts, so that many addresses cost no memory.
const BUCKETS: usize = 1_024;

/// All of them.
pub struct Sessions {
    /// By the hash of their secret: what a look-up's time tells is of no use.
    live: Mutex<BTreeMap<[u8; 32], Session>>,
    /// When, since the process started, the address's wrong tokens will be forgotten.
    forgiven_at: Mutex<Box<[Duration]>>,
    seed: RandomState,
}

#[derive(Clone, Copy, Debug)]
struct Session {
    began: Seconds,
    /// Of the token that it stands for.
    token: [u8; 32],
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sessions(..)")
    }
}

impl Default for Sessions {
    fn default() -> Self {
        Self {
            live: Mutex::default(),
            forgiven_at: Mutex::new(vec![Duration::ZERO; BUCKETS].into()),
            seed: RandomState::new(),
        }
    }
}

impl Sessions {
    /// Begins a session for whoever gave a token whose hash is `token`; returns its secret, which
    /// is kept nowhere.
    ///
    /// # Errors
    ///
    /// When the operating system has no randomness to give.
    pub fn begin(&self, token: [u8; 32], now: Seconds) -> Result<String, getrandom::Error> {
        let mut bytes = [0_u8; 32];
        getrandom::fill(&mut bytes)?;
        let secret = hex(&bytes);
        let mut live = lock(&self.live);
        live.retain(|_, session| session.is_live(now));
        if live.len() >= SESSIONS_MAX
            && let Some(oldest) =
                live.iter().min_by_key(|(_, session)| session.began).map(|(id, _)| *id)
        {
            live.remove(&oldest);
        }
        live.insert(Sha256::digest(secret.as_bytes()).into(), Session { began: now, token });
        Ok(secret)
    }

    /// Whether `secret` is of a session that lives, and whose token is still one of `tokens`.
    pub fn holds(&self, secret: &[u8], tokens: &AdminTokens, now: Seconds) -> bool {
        let id: [u8; 32] = Sha256::digest(secret).into();
        let session = lock(&self.live).get(&id).copied();
        session.is_some_and(|session| session.is_live(now) && tokens.contains_hash(&session.token))
    }

    /// Ends a session.
    pub fn end(&self, secret: &[u8]) {
        let id: [u8; 32] = Sha256::digest(secret).into();
        lock(&self.live).remove(&id);
    }

    /// How long `peer` must wait until it may try another token; `None`: it may now.
    pub fn must_wait(&self, peer: IpAddr, now: Duration) -> Option<Duration> {
        let forgiven_at = lock(&self.forgiven_at)[self.bucket(peer)];
        let wait = (forgiven_at + WRONG_EVERY).saturating_sub(now + WRONG_EVERY * WRONG_MAX);
        Some(wait).filter(|wait| !wait.is_zero())
    }

    /// Counts a wrong token.
    pub fn handle_wrong(&self, peer: IpAddr, now: Duration) {
        let bucket = self.bucket(peer);
        let mut forgiven_at = lock(&self.forgiven_at);
        forgiven_at[bucket] = forgiven_at[bucket].max(now) + WRONG_EVERY;
    }

    /// An address of IPv6 counts by its network: a host has any number of them.
    fn bucket(&self, peer: IpAddr) -> usize {
        let network = match peer.to_canonical() {
            IpAddr::V4(address) => u128::from(address.to_bits()),
            IpAddr::V6(address) => address.to_bits() >> 64 << 64,
        };
        self.seed.hash_one(network) as usize % BUCKETS
    }
}

impl Session {
    fn is_live(self, now: Seconds) -> bool {
        now.saturating_sub(self.began) < SESSION_SECONDS
    }
}

/// Every change is whole, so that a panic elsewhere leaves nothing half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::super::tokens::hash;
    use super::*;

    fn tokens(lines: &str) -> AdminTokens {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("admin");
        std::fs::write(&file, lines).unwrap();
        AdminTokens::load(&file).unwrap()
    }

    const TOKEN: &str = "0123456789abcdef01234567";

    #[test]
    fn a_session_ends_by_time_by_signing_out_and_with_its_token() {
        let (sessions, tokens, others) =
            (Sessions::default(), tokens(TOKEN), tokens("another-0123456789abcdef"));
        let secret = sessions.begin(hash(TOKEN.as_bytes()), 10).unwrap();
        let holds = |secret: &str, tokens, now| sessions.holds(secret.as_bytes(), tokens, now);
        assert!(holds(&secret, &tokens, 10));
        assert!(holds(&secret, &tokens, 10 + SESSION_SECONDS - 1));
        assert!(!holds(&secret, &tokens, 10 + SESSION_SECONDS));
        assert!(!holds(&secret, &others, 10), "the token left the file");
        assert!(!holds("", &tokens, 10));
        assert!(!holds(TOKEN, &tokens, 10), "the token itself is no session");
        let other = sessions.begin(hash(TOKEN.as_bytes()), 11).unwrap();
        assert_ne!(secret, other);
        sessions.end(secret.as_bytes());
        assert!(!holds(&secret, &tokens, 10));
        assert!(holds(&other, &tokens, 11));
    }

    #[test]
    fn the_oldest_session_makes_room() {
        let (sessions, tokens) = (Sessions::default(), tokens(TOKEN));
        let secrets: Vec<String> = (0..=SESSIONS_MAX as u32)
            .map(|now| sessions.begin(hash(TOKEN.as_bytes()), now).unwrap())
            .collect();
        assert_eq!(lock(&sessions.live).len(), SESSIONS_MAX);
        assert!(!sessions.holds(secrets[0].as_bytes(), &tokens, 300));
        assert!(sessions.holds(secrets[1].as_bytes(), &tokens, 300));
    }

    #[test]
    fn an_address_that_guesses_waits_and_others_do_not() {
        let sessions = Sessions::default();
        let guesser = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
        let start = Duration::from_secs(100);
        for _ in 0..WRONG_MAX {
            assert_eq!(sessions.must_wait(guesser, start), None);
            sessions.handle_wrong(guesser, start);
        }
        assert_eq!(sessions.must_wait(guesser, start), Some(WRONG_EVERY));
        assert_eq!(sessions.must_wait(guesser, start + WRONG_EVERY), None);
        let free = (0..BUCKETS as u32 * 4)
            .map(|n| IpAddr::V4(Ipv4Addr::from_bits(n)))
            .filter(|other| sessions.must_wait(*other, start).is_none())
            .count();
        assert!(free > BUCKETS * 4 - 64, "{free}: the rest shares the guesser's count by chance");
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one() {
        let sessions = Sessions::default();
        for host in 0..u128::from(WRONG_MAX) {
            let address = Ipv6Addr::from_bits((0x2001_0db8_0001_0002 << 64) + host);
            sessions.handle_wrong(IpAddr::V6(address), Duration::ZERO);
        }
        let another = Ipv6Addr::from_bits((0x2001_0db8_0001_0002 << 64) + 0xffff);
        assert_eq!(sessions.must_wait(IpAddr::V6(another), Duration::ZERO), Some(WRONG_EVERY));
    }
}
