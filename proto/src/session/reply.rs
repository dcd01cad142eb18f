//! The bytes of a `ServerToAgent`, in two parts: a head of this agent alone, built on the stack,
//! and a body that many replies share. Field order within a message is free, so the parts need not
//! be copied into one.

use bytes::Bytes;

use crate::capabilities::{SERVER_CAPABILITIES, SERVER_REPORT_FULL_STATE};
use crate::ids::InstanceUid;

/// Bytes that a head can hold; the longest one has 42.
const HEAD_BYTES_MAX: usize = 47;

/// Bytes of an error text that are sent; the rest is cut off.
pub const ERROR_TEXT_BYTES_MAX: usize = 512;

/// `instance_uid`, and what is meant for this agent alone.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ReplyHead {
    len: u8,
    bytes: [u8; HEAD_BYTES_MAX],
}

/// What goes into a [`ReplyHead`] beside the uid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeadFields {
    /// Sets the flag that asks for everything, also for what has not changed.
    pub full_state: bool,
    /// The agent shall go by this uid from now on.
    pub new_uid: Option<InstanceUid>,
    /// States our capabilities. An offer states them in its body, and an error must not.
    pub capabilities: bool,
}

impl ReplyHead {
    /// A reply to the agent that calls itself `uid`.
    pub fn new(uid: InstanceUid, fields: HeadFields) -> Self {
        let mut head = Self::anonymous();
        head.push(&[0x0a, 16]);
        head.push(&uid.0);
        if fields.full_state {
            head.push(&[0x30, SERVER_REPORT_FULL_STATE as u8]);
        }
        if fields.capabilities {
            head.push(&[0x38, SERVER_CAPABILITIES as u8]);
        }
        if let Some(new_uid) = fields.new_uid {
            head.push(&[0x42, 18, 0x0a, 16]);
            head.push(&new_uid.0);
        }
        head
    }

    /// A reply to somebody whose uid could not be read: empty.
    pub fn anonymous() -> Self {
        Self { len: 0, bytes: [0; HEAD_BYTES_MAX] }
    }

    /// The encoded fields.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    fn push(&mut self, bytes: &[u8]) {
        let start = usize::from(self.len);
        self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len() as u8;
    }
}

const _: () = assert!(18 + 2 + 2 + 20 <= HEAD_BYTES_MAX);

impl std::fmt::Debug for ReplyHead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_slice().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Everything of a `ServerToAgent` with an offer that follows its head: `remote_config` with the
/// one file `""` of type `text/yaml`, and our capabilities (serving.md, decision 6).
///
/// `content_hash` is the hash as 64 lower-case hex characters: some clients need it to be UTF-8.
/// Encode once per artefact and share: replies and pushes then differ in nothing but their head.
pub fn encode_offer(artefact: &[u8], content_hash: &[u8; 64]) -> Bytes {
    const CONTENT_TYPE: &[u8] = b"text/yaml";
    let file = field_len(artefact.len()) + field_len(CONTENT_TYPE.len());
    let entry = field_len(0) + field_len(file);
    let map = field_len(entry);
    let remote_config = field_len(map) + field_len(content_hash.len());

    let mut out = Vec::with_capacity(field_len(remote_config) + 2);
    put_len(&mut out, 0x1a, remote_config);
    put_len(&mut out, 0x0a, map);
    put_len(&mut out, 0x0a, entry);
    // The key is written although it is the default: a map entry without one trips some decoders.
    put_len(&mut out, 0x0a, 0);
    put_len(&mut out, 0x12, file);
    put_bytes(&mut out, 0x0a, artefact);
    put_bytes(&mut out, 0x12, CONTENT_TYPE);
    put_bytes(&mut out, 0x12, content_hash);
    out.extend([0x38, SERVER_CAPABILITIES as u8]);
    out.into()
}

/// The rest of a `ServerToAgent` that refuses a message: `error_response` BAD_REQUEST with a
/// readable text. Nothing else may stand beside it, not even capabilities.
pub fn encode_bad_request(text: &str) -> Bytes {
    const BAD_REQUEST: u8 = 1;
    let text = &text[..text.floor_char_boundary(ERROR_TEXT_BYTES_MAX)];
    let error = 2 + field_len(text.len());
    let mut out = Vec::with_capacity(field_len(error));
    put_len(&mut out, 0x12, error);
    out.extend([0x08, BAD_REQUEST]);
    put_bytes(&mut out, 0x12, text.as_bytes());
    out.into()
}

/// Bytes of a field with a one-byte tag and `len` bytes of content.
fn field_len(len: usize) -> usize {
    let bits = (usize::BITS - (len | 1).leading_zeros()) as usize;
    1 + bits.div_ceil(7) + len
}

fn put_len(out: &mut Vec<u8>, tag: u8, mut len: usize) {
    out.push(tag);
    while len > 0x7f {
        out.push(len as u8 | 0x80);
        len >>= 7;
    }
    out.push(len as u8);
}

fn put_bytes(out: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
    put_len(out, tag, bytes.len());
    out.extend_from_slice(bytes);
}
