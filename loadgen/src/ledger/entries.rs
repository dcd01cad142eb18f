//! What the books are made of.

use std::sync::Arc;

use crate::clock::Micros;
use crate::heads::Epoch;
use crate::model::Artefact;

/// What went wrong.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Wrong {
    /// Neither the head in force nor a neighbour within the window leads to these bytes.
    Offer,
    /// Not one file with the empty name, `text/yaml`, a body, and a hash of 64 lower-case hex digits.
    Shape,
    /// The content that the collector holds already.
    Duplicate,
    /// Right for an older head after a newer one's was delivered.
    Regression,
    /// An offer to a collector that accepts none.
    Unasked,
    /// A reply to nothing.
    Extra,
    /// Not addressed to this collector.
    Misaddressed,
    /// Not the capabilities that every reply must carry.
    Capabilities,
    /// The server refused a message of ours, which are all good.
    Refused,
    /// Not a `ServerToAgent`.
    Undecodable,
    /// Something that nobody asked for: full state, another uid, settings, a command, a ping.
    Unexpected,
    /// A message that was not answered in time.
    Unanswered,
    /// A status that HTTP knows for trouble.
    HttpStatus,
    /// A candidate that FAILED on this collector, which the server had acknowledged.
    OfferedAgain,
    /// A candidate, though the server had said for some time that it is braked.
    Braked,
}

/// One explanation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What kind.
    pub wrong: Wrong,
    /// When.
    pub at: Micros,
    /// What the model expects, and what came.
    pub text: String,
}

/// Sums of one collector; added up over all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Messages sent.
    pub sent: u64,
    /// Exact acks.
    pub acks: u64,
    /// Requests for full state, due or not.
    pub full_state_requests: u64,
    /// Pings, due or not.
    pub pings: u64,
    /// Offers judged right.
    pub offers_right: u64,
    /// Bytes of messages received.
    pub bytes_received: u64,
    /// Of these, bytes that neither an ack, a right offer, a due request nor a due ping explains.
    pub bytes_beyond_acks: u64,
}

/// A right offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The head whose change it belongs to.
    pub epoch: Epoch,
    /// When it came.
    pub at: Micros,
}

/// What became of a message, for those who keep the time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Noted {
    /// An offer judged right, and the artefact.
    pub right: Option<(Delivery, Arc<Artefact>)>,
    /// How long the reply took.
    pub reply_after: Option<Micros>,
    /// How many things went wrong.
    pub wrong: u32,
}
