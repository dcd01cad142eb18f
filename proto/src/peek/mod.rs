//! What the gateway reads of an `AgentToServer`: slices of the message, without allocation but for
//! a description of very many attributes.
//!
//! The scan goes one level deep by itself and two or three more where something is read; whatever
//! may nest without end (attribute values, component health, component lists) is skipped by its
//! length, so that no input can make it recurse. Like protobuf itself it takes fields in any
//! order, lets the last value of a field win, and reads a sub-message that was written in several
//! pieces as one. Unknown fields are passed over. What it reads it agrees on with a full decoder;
//! what it skips it does not check.

mod config;
mod description;
mod error;

use crate::ids::InstanceUid;
use crate::wire::{Fields, Merged, Value};

pub use config::{EffectiveConfig, Files, MAX_CONFIG_FILES, MAX_FILE_NAME_BYTES};
pub use description::{
    Description, Gathered, INLINE_ATTRIBUTES, MAX_ATTRIBUTE_KEY_BYTES, MAX_ATTRIBUTE_VALUE_BYTES,
    MAX_ATTRIBUTES,
};
pub use error::{PeekError, PeekErrorKind};

/// An `AgentToServer`, read but not copied.
///
/// A sub-message that is absent has not changed since the agent's last message; one that is
/// present but empty is a report of its defaults.
#[derive(Clone, Copy, Debug)]
pub struct Peek<'m> {
    /// Field 1, exactly 16 bytes.
    pub uid: InstanceUid,
    /// Field 2, `sequence_num`; 0 also when absent.
    pub sequence: u64,
    /// Field 4, the bits of [`AgentCapabilities`](crate::capabilities::AgentCapabilities); 0 also
    /// when absent, which in anything but a first message says nothing.
    pub capabilities: u64,
    /// Field 10.
    pub flags: u64,
    /// Field 3.
    pub description: Option<Description<'m>>,
    /// Field 5.
    pub health: Option<Health<'m>>,
    /// Field 6.
    pub effective_config: Option<EffectiveConfig<'m>>,
    /// Field 7.
    pub remote_config_status: Option<RemoteConfigStatus<'m>>,
    /// Field 9, `agent_disconnect`: the agent's last message.
    pub disconnect: bool,
    /// Field 11 is there.
    pub connection_settings_request: bool,
}

const _: () = assert!(size_of::<Peek<'_>>() <= 320);

/// The top of a `ComponentHealth`: the agent as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health<'m> {
    /// Field 1.
    pub healthy: bool,
    /// Field 2: since when it runs, in nanoseconds of Unix time; 0 when it does not.
    pub start_time_unix_nano: u64,
    /// Field 3.
    pub last_error: &'m str,
    /// Field 4, free text.
    pub status: &'m str,
    /// Field 5: when this was observed, in nanoseconds of Unix time.
    pub status_time_unix_nano: u64,
}

/// What became of the last remote configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteConfigStatus<'m> {
    /// Field 1, `last_remote_config_hash`; of any length, empty when nothing was received.
    pub hash: &'m [u8],
    /// Field 2.
    pub status: Status,
    /// Field 3, empty unless it failed.
    pub error_message: &'m str,
}

/// `RemoteConfigStatuses`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Status {
    /// 0: nothing has been received.
    #[default]
    Unset,
    /// 1: it runs.
    Applied,
    /// 2: it is being applied.
    Applying,
    /// 3: it did not work.
    Failed,
    /// A number that is not ours.
    Other(i32),
}

impl From<i32> for Status {
    fn from(number: i32) -> Self {
        match number {
            0 => Self::Unset,
            1 => Self::Applied,
            2 => Self::Applying,
            3 => Self::Failed,
            other => Self::Other(other),
        }
    }
}

impl<'m> Peek<'m> {
    /// Reads `message`, the protobuf bytes of an `AgentToServer`. Its attributes, if it has any,
    /// take the place of what is in `gathered`.
    ///
    /// Whatever it returns has been checked: UTF-8, sizes and counts, so that iterating never
    /// fails. The error knows the uid whenever the message has a readable one, wherever it stands.
    // hot: once per message; allocates only past `INLINE_ATTRIBUTES`.
    pub fn parse<'b: 'm>(
        message: &'b [u8],
        gathered: &'m mut Gathered<'b>,
    ) -> Result<Self, PeekError> {
        scan(message, gathered).map_err(|kind| PeekError::new(kind, uid_of(message)))
    }
}

fn scan<'m, 'b: 'm>(
    message: &'b [u8],
    gathered: &'m mut Gathered<'b>,
) -> Result<Peek<'m>, PeekErrorKind> {
    let mut uid: &[u8] = &[];
    let mut peek = Peek {
        uid: InstanceUid([0; 16]),
        sequence: 0,
        capabilities: 0,
        flags: 0,
        description: None,
        health: None,
        effective_config: None,
        remote_config_status: None,
        disconnect: false,
        connection_settings_request: false,
    };
    let mut description: Option<Merged<'_>> = None;
    let mut effective_config: Option<Merged<'_>> = None;

    let mut fields = Fields::new(message);
    while let Some((field, value)) = fields.next()? {
        match field {
            1 => uid = bytes(value, "instance_uid")?,
            2 => peek.sequence = varint(value, "sequence_num")?,
            3 => {
                let body = bytes(value, "agent_description")?;
                description.get_or_insert_with(|| Merged::new(3, body, fields.rest()));
            }
            4 => peek.capabilities = varint(value, "capabilities")?,
            5 => merge_health(peek.health.get_or_insert_default(), bytes(value, "health")?)?,
            6 => {
                let body = bytes(value, "effective_config")?;
                effective_config.get_or_insert_with(|| Merged::new(6, body, fields.rest()));
            }
            7 => merge_status(
                peek.remote_config_status.get_or_insert_default(),
                bytes(value, "remote_config_status")?,
            )?,
            8 => _ = bytes(value, "package_statuses")?,
            9 => {
                bytes(value, "agent_disconnect")?;
                peek.disconnect = true;
            }
            10 => peek.flags = varint(value, "flags")?,
            11 => {
                bytes(value, "connection_settings_request")?;
                peek.connection_settings_request = true;
            }
            12 => _ = bytes(value, "custom_capabilities")?,
            13 => _ = bytes(value, "custom_message")?,
            14 => _ = bytes(value, "available_components")?,
            15 => _ = bytes(value, "connection_settings_status")?,
            _ => {}
        }
    }

    peek.uid = InstanceUid::from_slice(uid).ok_or(PeekErrorKind::Uid { len: uid.len() })?;
    peek.description =
        description.map(|fields| Description::gather(fields, gathered)).transpose()?;
    peek.effective_config = effective_config.map(EffectiveConfig::check).transpose()?;
    Ok(peek)
}

/// The uid of a message that may be broken anywhere else.
#[cold]
fn uid_of(message: &[u8]) -> Option<InstanceUid> {
    let mut fields = Fields::new(message);
    let mut uid = None;
    while let Ok(Some((field, value))) = fields.next() {
        if let (1, Value::Len(bytes)) = (field, value) {
            uid = InstanceUid::from_slice(bytes);
        }
    }
    uid
}

fn merge_health<'m>(health: &mut Health<'m>, body: &'m [u8]) -> Result<(), PeekErrorKind> {
    let mut fields = Fields::new(body);
    while let Some((field, value)) = fields.next()? {
        match field {
            1 => health.healthy = varint(value, "health.healthy")? != 0,
            2 => health.start_time_unix_nano = fixed64(value, "health.start_time_unix_nano")?,
            3 => health.last_error = text(value, "health.last_error")?,
            4 => health.status = text(value, "health.status")?,
            5 => health.status_time_unix_nano = fixed64(value, "health.status_time_unix_nano")?,
            _ => {}
        }
    }
    Ok(())
}

fn merge_status<'m>(
    status: &mut RemoteConfigStatus<'m>,
    body: &'m [u8],
) -> Result<(), PeekErrorKind> {
    let mut fields = Fields::new(body);
    while let Some((field, value)) = fields.next()? {
        match field {
            1 => status.hash = bytes(value, "remote_config_status.last_remote_config_hash")?,
            2 => status.status = enumeration(value, "remote_config_status.status")?.into(),
            3 => status.error_message = text(value, "remote_config_status.error_message")?,
            _ => {}
        }
    }
    Ok(())
}

fn varint(value: Value<'_>, field: &'static str) -> Result<u64, PeekErrorKind> {
    match value {
        Value::Varint(value) => Ok(value),
        Value::Fixed64(_) | Value::Len(_) | Value::Fixed32 => {
            Err(PeekErrorKind::WireType { field })
        }
    }
}

/// Enums travel as 64-bit varints of which the lower 32 bits count.
fn enumeration(value: Value<'_>, field: &'static str) -> Result<i32, PeekErrorKind> {
    #[expect(clippy::cast_possible_truncation, reason = "protobuf says so")]
    varint(value, field).map(|value| value as i32)
}

fn fixed64(value: Value<'_>, field: &'static str) -> Result<u64, PeekErrorKind> {
    match value {
        Value::Fixed64(value) => Ok(value),
        Value::Varint(_) | Value::Len(_) | Value::Fixed32 => Err(PeekErrorKind::WireType { field }),
    }
}

fn bytes<'m>(value: Value<'m>, field: &'static str) -> Result<&'m [u8], PeekErrorKind> {
    match value {
        Value::Len(bytes) => Ok(bytes),
        Value::Varint(_) | Value::Fixed64(_) | Value::Fixed32 => {
            Err(PeekErrorKind::WireType { field })
        }
    }
}

fn text<'m>(value: Value<'m>, field: &'static str) -> Result<&'m str, PeekErrorKind> {
    let bytes = bytes(value, field)?;
    match ascii(bytes) {
        Some(text) => Ok(text),
        None => str::from_utf8(bytes).map_err(|_| PeekErrorKind::Utf8 { field }),
    }
}

/// Keys and values of attributes are short and ASCII, nearly all of them: whether a few bytes are
/// ASCII is told in a quarter of the instructions that UTF-8 takes.
#[inline]
#[expect(
    unsafe_code,
    reason = "the standard library has no safe way from ASCII bytes to a str yet"
)]
fn ascii(bytes: &[u8]) -> Option<&str> {
    // SAFETY: ASCII is UTF-8.
    bytes.is_ascii().then(|| unsafe { str::from_utf8_unchecked(bytes) })
}
