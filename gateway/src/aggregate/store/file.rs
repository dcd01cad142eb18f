//! The file: opened, checked, read whole; set aside when it is damaged or somebody else's.

use std::io;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};

use redb::{
    Builder, Database, DatabaseError, ReadOnlyDatabase, ReadTransaction, ReadableDatabase as _,
    ReadableTable as _, StorageError, TableDefinition,
};
use render::artefact::ContentHash;
use render::rollout::evidence::{EvidenceKey, Identity, Millis};

use super::{CellRow, Kind, Loaded, ProcessRow, RowKey, Sight, StoredRecord};
use crate::aggregate::StoreError;
use crate::aggregate::packed;
use crate::aggregate::shard::Text;

/// Of the tables below and of the rows in them. Another number is another program's file.
const FORMAT: u64 = 1;
/// Pages kept in memory; the file is read once and then only written.
const CACHE_BYTES: usize = 16 << 20;

const META: TableDefinition<'_, &str, u64> = TableDefinition::new("tidegate.meta");
/// Kind, number, Rollout; JSON.
pub(super) const ROWS: TableDefinition<'_, (u8, u32, &str), &[u8]> =
    TableDefinition::new("tidegate.rows");
/// Number of the cell, identity; [`packed::encode`].
pub(super) const RECORDS: TableDefinition<'_, (u32, u128), &[u8]> =
    TableDefinition::new("tidegate.records");
/// As above; [`encode_text`].
pub(super) const TEXTS: TableDefinition<'_, (u32, u128), &[u8]> =
    TableDefinition::new("tidegate.texts");

/// What came of opening a file.
#[derive(Debug, Default)]
pub(in crate::aggregate) struct Opened {
    /// `None`: it cannot be written now.
    pub(in crate::aggregate) database: Option<Database>,
    /// What it held; empty when there was none.
    pub(in crate::aggregate) loaded: Loaded,
    /// The file was damaged or foreign: why, and where it is now.
    pub(in crate::aggregate) set_aside: Option<String>,
    /// Why it cannot be written.
    pub(in crate::aggregate) unwritable: Option<String>,
}

/// Why a file cannot be used as it is.
enum Fault {
    Locked,
    Damaged(String),
    Io(io::Error),
}

/// Opens the file, or makes it, and reads it whole.
///
/// # Errors
/// It is in use, or there may be halts in it that cannot be read.
pub(in crate::aggregate) fn open(file: &Path, unix_ms: Millis) -> Result<Opened, StoreError> {
    let unreadable = |why: String| StoreError::Unreadable { file: file.to_owned(), why };
    match open_or_create(file) {
        Ok((database, loaded)) => {
            Ok(Opened { database: Some(database), loaded, ..Opened::default() })
        }
        Err(Fault::Locked) => Err(StoreError::Locked { file: file.to_owned() }),
        Err(Fault::Damaged(why)) => Ok(replace(file, unix_ms, &why)),
        Err(Fault::Io(error)) => {
            let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
            if let Some(folder) = folder
                && !folder.is_dir()
            {
                return Err(unreadable(format!("there is no folder {}", folder.display())));
            }
            if file.is_dir() {
                return Err(unreadable("it is a folder".to_owned()));
            }
            let unwritable = Some(error.to_string());
            match file.symlink_metadata() {
                Err(missing) if missing.kind() == io::ErrorKind::NotFound => {
                    Ok(Opened { unwritable, ..Opened::default() })
                }
                Ok(_) | Err(_) => match read_only(file) {
                    Ok(loaded) => Ok(Opened { loaded, unwritable, ..Opened::default() }),
                    Err(Fault::Locked) => Err(StoreError::Locked { file: file.to_owned() }),
                    Err(Fault::Damaged(why)) => {
                        Err(unreadable(format!("{why}, and it cannot be written: {error}")))
                    }
                    Err(Fault::Io(error)) => Err(unreadable(error.to_string())),
                },
            }
        }
    }
}

/// Opens the file for the writer, which has everything in memory already.
///
/// # Errors
/// Why not.
pub(in crate::aggregate) fn reopen(file: &Path, unix_ms: Millis) -> Result<Opened, String> {
    match open_or_create(file) {
        Ok((database, _)) => Ok(Opened { database: Some(database), ..Opened::default() }),
        Err(Fault::Damaged(why)) => Ok(replace(file, unix_ms, &why)),
        Err(Fault::Locked) => Err("another process has it open".to_owned()),
        Err(Fault::Io(error)) => Err(error.to_string()),
    }
}

/// Moves the file out of the way and makes another.
fn replace(file: &Path, unix_ms: Millis, why: &str) -> Opened {
    let aside = aside(file, unix_ms);
    let aside_text = aside.display();
    if let Err(error) = std::fs::rename(file, &aside) {
        let unwritable = format!("it is damaged ({why}) and cannot be renamed: {error}");
        return Opened {
            set_aside: Some(format!("the store was damaged ({why})")),
            unwritable: Some(unwritable),
            ..Opened::default()
        };
    }
    let set_aside = Some(format!("the store was damaged ({why}) and is now {aside_text}"));
    match open_or_create(file) {
        Ok((database, loaded)) => {
            Opened { database: Some(database), loaded, set_aside, unwritable: None }
        }
        Err(fault) => {
            let unwritable = Some(match fault {
                Fault::Locked => "another process has it open".to_owned(),
                Fault::Damaged(why) => why,
                Fault::Io(error) => error.to_string(),
            });
            Opened { set_aside, unwritable, ..Opened::default() }
        }
    }
}

/// `FILE.damaged-<milliseconds>`.
fn aside(file: &Path, unix_ms: Millis) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".damaged-{unix_ms}"));
    PathBuf::from(name)
}

fn open_or_create(file: &Path) -> Result<(Database, Loaded), Fault> {
    guarded(|| {
        let database = Builder::new()
            .set_cache_size(CACHE_BYTES)
            .set_check_integrity_on_open(true)
            .create(file)
            .map_err(database_fault)?;
        prepare(&database)?;
        let loaded = load(&database.begin_read().map_err(fault)?)?;
        Ok((database, loaded))
    })
}

fn read_only(file: &Path) -> Result<Loaded, Fault> {
    guarded(|| {
        let database: ReadOnlyDatabase = Builder::new()
            .set_cache_size(CACHE_BYTES)
            .open_read_only(file)
            .map_err(database_fault)?;
        load(&database.begin_read().map_err(fault)?)
    })
}

/// redb may panic over a file that was altered behind its back; that is damage like any other.
fn guarded<T>(run: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    std::panic::catch_unwind(AssertUnwindSafe(run))
        .unwrap_or_else(|_| Err(Fault::Damaged("reading it panicked".to_owned())))
}

/// Makes the tables of a fresh file; a file that is not fresh must be one of ours.
fn prepare(database: &Database) -> Result<(), Fault> {
    let write = database.begin_write().map_err(fault)?;
    let tables = write.list_tables().map_err(fault)?.count();
    {
        let mut meta = write.open_table(META).map_err(fault)?;
        let format = meta.get("format").map_err(fault)?.map(|format| format.value());
        match format {
            Some(FORMAT) => {}
            None if tables == 0 => {
                meta.insert("format", FORMAT).map_err(fault)?;
            }
            None => return Err(Fault::Damaged("another program's database".to_owned())),
            Some(other) => {
                return Err(Fault::Damaged(format!(
                    "its format is {other}, and this gateway writes {FORMAT}"
                )));
            }
        }
        write.open_table(ROWS).map_err(fault)?;
        write.open_table(RECORDS).map_err(fault)?;
        write.open_table(TEXTS).map_err(fault)?;
    }
    write.commit().map_err(fault)
}

fn load(read: &ReadTransaction) -> Result<Loaded, Fault> {
    let mut loaded = Loaded::default();
    let meta = read.open_table(META).map_err(fault)?;
    let format = meta.get("format").map_err(fault)?.map(|format| format.value());
    if format != Some(FORMAT) {
        return Err(Fault::Damaged(format!("its format is not {FORMAT}")));
    }
    for row in read.open_table(ROWS).map_err(fault)?.iter().map_err(fault)? {
        let (key, value) = row.map_err(fault)?;
        let (kind, number, rollout) = key.value();
        take_row(&mut loaded, kind, number, rollout, value.value())
            .map_err(|why| Fault::Damaged(format!("a row cannot be read: {why}")))?;
        let key: RowKey = (kind, number, rollout.into());
        loaded.rows.insert(key, value.value().to_vec());
    }
    let texts = read.open_table(TEXTS).map_err(fault)?;
    for row in read.open_table(RECORDS).map_err(fault)?.iter().map_err(fault)? {
        let (key, value) = row.map_err(fault)?;
        let (cell, identity) = key.value();
        let (record, no_bucket) = packed::decode(value.value())
            .ok_or_else(|| Fault::Damaged("a record cannot be read".to_owned()))?;
        let text = match texts.get((cell, identity)).map_err(fault)? {
            None => None,
            Some(text) => Some(
                decode_text(text.value())
                    .ok_or_else(|| Fault::Damaged("a text cannot be read".to_owned()))?,
            ),
        };
        let identity = Identity(identity);
        loaded.records.push(StoredRecord { cell, identity, record, no_bucket, text });
    }
    Ok(loaded)
}

fn take_row(
    loaded: &mut Loaded,
    kind: u8,
    number: u32,
    rollout: &str,
    value: &[u8],
) -> Result<(), String> {
    fn json<'v, T: serde::Deserialize<'v>>(value: &'v [u8]) -> Result<T, String> {
        serde_json::from_slice(value).map_err(|error| error.to_string())
    }
    if kind == Kind::Cell as u8 {
        let row: CellRow = json(value)?;
        let candidate = ContentHash::from_hex(row.candidate.as_bytes())
            .ok_or_else(|| "a content hash is none".to_owned())?;
        let (rollout, origin) = (row.rollout.clone(), row.origin.clone());
        loaded.cells.insert(number, (EvidenceKey { rollout, origin, candidate }, row));
    } else if kind == Kind::Sight as u8 {
        let row: Sight = json(value)?;
        loaded.sights.insert(rollout.into(), row);
    } else if kind == Kind::Process as u8 {
        let row: ProcessRow = json(value)?;
        loaded.processes.insert(number, row);
    } else {
        return Err(format!("there is no kind {kind}"));
    }
    Ok(())
}

/// Three texts, each after its length in two bytes.
pub(in crate::aggregate) fn encode_text(text: &Text) -> Vec<u8> {
    let mut out = Vec::with_capacity(6 + text.label.len() + text.version.len() + text.error.len());
    for part in [&text.label, &text.version, &text.error] {
        let part = &part[..part.floor_char_boundary(usize::from(u16::MAX))];
        out.extend_from_slice(&u16::try_from(part.len()).unwrap_or(u16::MAX).to_le_bytes());
        out.extend_from_slice(part.as_bytes());
    }
    out
}

fn decode_text(mut bytes: &[u8]) -> Option<Text> {
    let mut part = || {
        let (length, rest) = bytes.split_first_chunk::<2>()?;
        let (part, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
        bytes = rest;
        Some(Box::from(std::str::from_utf8(part).ok()?))
    };
    let text = Text { label: part()?, version: part()?, error: part()? };
    bytes.is_empty().then_some(text)
}

fn fault(error: impl Into<redb::Error>) -> Fault {
    match error.into() {
        redb::Error::Io(error) if !is_damage(&error) => Fault::Io(error),
        redb::Error::DatabaseAlreadyOpen | redb::Error::LockProtocolMismatch => Fault::Locked,
        other => Fault::Damaged(other.to_string()),
    }
}

fn database_fault(error: DatabaseError) -> Fault {
    match error {
        DatabaseError::DatabaseAlreadyOpen | DatabaseError::LockProtocolMismatch => Fault::Locked,
        DatabaseError::Storage(StorageError::Io(error)) if !is_damage(&error) => Fault::Io(error),
        other => Fault::Damaged(other.to_string()),
    }
}

/// What redb says of a file that is too short or no database.
fn is_damage(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
}
