//! Why a message cannot be read, and whom to tell.

use crate::ids::InstanceUid;
use crate::wire::WireError;

/// A message that is answered with `error_response` BAD_REQUEST. Its text is meant for the agent's
/// log: it names fields and numbers and repeats nothing that the peer sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}")]
pub struct PeekError {
    /// What is wrong.
    pub kind: PeekErrorKind,
    uid: Option<InstanceUid>,
}

impl PeekError {
    pub(super) fn new(kind: PeekErrorKind, uid: Option<InstanceUid>) -> Self {
        Self { kind, uid }
    }

    /// Whom the answer is for, if the message could be read that far.
    pub fn uid(&self) -> Option<InstanceUid> {
        self.uid
    }

    /// A metric label: one of a few words.
    pub fn reason(&self) -> &'static str {
        match self.kind {
            PeekErrorKind::Truncated => "truncated",
            PeekErrorKind::Varint => "varint",
            PeekErrorKind::Tag => "tag",
            PeekErrorKind::Group => "group",
            PeekErrorKind::WireType { .. } => "wire_type",
            PeekErrorKind::Utf8 { .. } => "utf8",
            PeekErrorKind::Uid { .. } => "uid",
            PeekErrorKind::Attributes => "attributes",
            PeekErrorKind::AttributeKey { .. } | PeekErrorKind::AttributeValue { .. } => {
                "attribute_size"
            }
            PeekErrorKind::ConfigFiles | PeekErrorKind::ConfigFileName { .. } => "config_files",
        }
    }
}

/// What is wrong with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeekErrorKind {
    /// The bytes end inside a field.
    #[error("the message ends inside a field")]
    Truncated,
    /// A varint of more than ten bytes or 64 bits.
    #[error("a varint is longer than 64 bits")]
    Varint,
    /// Field number 0, or a tag of more than 32 bits.
    #[error("a field has no valid number")]
    Tag,
    /// A group, which proto3 does not have, or a wire type that protobuf does not have.
    #[error("a field has a wire type that proto3 does not use")]
    Group,
    /// A field that we know is of another wire type than the schema says.
    #[error("{field} has the wrong wire type")]
    WireType {
        /// Its name in the schema.
        field: &'static str,
    },
    /// A string is not UTF-8.
    #[error("{field} is not UTF-8")]
    Utf8 {
        /// Its name in the schema.
        field: &'static str,
    },
    /// There is no instance uid of 16 bytes.
    #[error("instance_uid has {len} bytes and must have 16")]
    Uid {
        /// How long it is; 0 when absent.
        len: usize,
    },
    /// More attributes than [`MAX_ATTRIBUTES`](super::MAX_ATTRIBUTES).
    #[error("agent_description has more than {} attributes", super::MAX_ATTRIBUTES)]
    Attributes,
    /// A key longer than [`MAX_ATTRIBUTE_KEY_BYTES`](super::MAX_ATTRIBUTE_KEY_BYTES).
    #[error("an attribute key has {len} bytes and may have {}", super::MAX_ATTRIBUTE_KEY_BYTES)]
    AttributeKey {
        /// Its length in bytes.
        len: usize,
    },
    /// A string value longer than [`MAX_ATTRIBUTE_VALUE_BYTES`](super::MAX_ATTRIBUTE_VALUE_BYTES).
    #[error("an attribute value has {len} bytes and may have {}", super::MAX_ATTRIBUTE_VALUE_BYTES)]
    AttributeValue {
        /// Its length in bytes.
        len: usize,
    },
    /// More files than [`MAX_CONFIG_FILES`](super::MAX_CONFIG_FILES).
    #[error("effective_config has more than {} files", super::MAX_CONFIG_FILES)]
    ConfigFiles,
    /// A name longer than [`MAX_FILE_NAME_BYTES`](super::MAX_FILE_NAME_BYTES).
    #[error(
        "a file name in effective_config has {len} bytes and may have {}",
        super::MAX_FILE_NAME_BYTES
    )]
    ConfigFileName {
        /// Its length in bytes.
        len: usize,
    },
}

impl From<WireError> for PeekErrorKind {
    fn from(error: WireError) -> Self {
        match error {
            WireError::Truncated => Self::Truncated,
            WireError::Varint => Self::Varint,
            WireError::Tag => Self::Tag,
            WireError::WireType => Self::Group,
        }
    }
}
