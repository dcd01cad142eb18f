//! The closed sets of label values, so that a handle is an index and not a lookup.

/// A label whose values are known when this is compiled.
pub trait Label: Copy + 'static {
    /// The label's name.
    const NAME: &'static str;
    /// Every value, in index order.
    fn all() -> &'static [Self];
    /// Position in [`Label::all`].
    fn index(self) -> usize;
    /// The value as Prometheus sees it.
    fn label(self) -> &'static str;
}

macro_rules! label {
    ($(#[$doc:meta])* $name:ident = $label:literal { $($(#[$value_doc:meta])* $value:ident => $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name { $($(#[$value_doc])* $value,)+ }

        impl Label for $name {
            const NAME: &'static str = $label;
            fn all() -> &'static [Self] { &[$(Self::$value),+] }
            fn index(self) -> usize { self as usize }
            fn label(self) -> &'static str { match self { $(Self::$value => $text),+ } }
        }
    };
}

label! {
    /// How a collector talks to us.
    Transport = "transport" {
        /// WebSocket: a link is a socket.
        Ws => "ws",
        /// HTTP POST: a link is a session kept between polls.
        Http => "http",
    }
}

label! {
    /// Why a link ended.
    Closed = "reason" {
        /// The peer said so (close frame, or `agent_disconnect` over HTTP).
        Peer => "peer",
        /// The socket ended or broke without a word.
        Lost => "lost",
        /// Silent: no message and no pong in time.
        Silent => "silent",
        /// Began a message and did not finish it in time.
        Stalled => "stalled",
        /// Did not read what it was sent.
        SlowReader => "slow_reader",
        /// Broke the framing rules, or sent a text frame.
        Protocol => "protocol",
        /// A message past the size limit.
        Oversize => "oversize",
        /// Another link proved to be the living one under its uid.
        Duplicate => "duplicate",
        /// No poll for 90 s (HTTP).
        Expired => "expired",
        /// Pushed out by newer sessions at the cap (HTTP).
        Evicted => "evicted",
        /// We are draining.
        Drain => "drain",
    }
}

label! {
    /// Why a new link was not admitted.
    RejectReason = "reason" {
        /// The token bucket was empty.
        Rate => "rate",
        /// The cap on live links was reached.
        Links => "links",
        /// We are draining.
        Drain => "drain",
        /// No bytes left in flight for its message.
        Bytes => "bytes",
        /// Did not finish its handshake in time.
        HandshakeDeadline => "handshake_deadline",
        /// Silent or slow in its handshake while others waited for a place.
        MadeRoom => "made_room",
        /// The TLS handshake failed.
        Tls => "tls",
        /// Not a request that this listener serves.
        BadRequest => "bad_request",
        /// 401.
        Unauthorised => "unauthorised",
    }
}

label! {
    /// Why a replica was not listened to, or no longer.
    UplinkRefused = "reason" {
        /// No certificate of ours, another protocol, or no QUIC.
        Tls => "tls",
        /// Too many connections.
        Busy => "busy",
        /// Its certificate is not for the name that it calls itself.
        Name => "name",
        /// It said nothing in time.
        Silent => "silent",
        /// It said what cannot be read, or what does not come there.
        Unreadable => "unreadable",
        /// No format in common, or another reason that it was told.
        Refused => "refused",
        /// More frames than it may send.
        Flood => "flood",
    }
}

label! {
    /// Why full state was asked for (serving.md decision 4).
    FullStateReason = "reason" {
        /// A message without a description from an agent that we do not know.
        Unknown => "unknown",
        /// As before, over HTTP: it probably polled another replica until now.
        Moved => "moved",
        /// A gap in its sequence numbers.
        Gap => "gap",
        /// A new head mentions an attribute that its session did not keep.
        Attributes => "attributes",
    }
}

label! {
    /// How a look at the source ended.
    FetchOutcome = "outcome" {
        /// Nothing new.
        Unchanged => "unchanged",
        /// A new head was loaded.
        Loaded => "loaded",
        /// It failed, and the old head stays.
        Failed => "failed",
    }
}
