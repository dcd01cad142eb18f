//! The raw records of a drill, and their files. Everything else is derived from these.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::clock::Nanos;

/// Rows of one kind in one drill; past it the drill is void. A full one has some 70,000 probes.
pub const ROWS_MAX: usize = 2_000_000;

/// What came of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Answered in time, decodable, with the uid that asked.
    Ok,
    /// The same, but too late.
    Late,
    /// 429 or 503.
    Shed,
    /// Nobody listened.
    Refused,
    /// The connection broke.
    Reset,
    /// No answer.
    Timeout,
    /// An answer that is none.
    Undecodable,
}

/// One probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// `route-0` …, `direct-…`, `control`.
    pub stream: String,
    /// Within the stream.
    pub seq: u64,
    /// When the schedule wanted it.
    pub intended_ns: Nanos,
    /// When it began.
    pub sent_ns: Nanos,
    /// Connected; 0 for never.
    pub connected_ns: Nanos,
    /// First byte of the answer; 0 for never.
    pub first_byte_ns: Nanos,
    /// Over.
    pub done_ns: Nanos,
    /// Its own port, by which the route's record of it is found.
    pub port: u16,
    /// `Tidegate-Instance` of the answer.
    pub answer: String,
    /// What came of it.
    pub outcome: Outcome,
}

/// One connection through the route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passage {
    /// The client's address: its kind by host, itself by port.
    pub client: String,
    /// Accepted.
    pub accepted_ns: Nanos,
    /// The table that chose.
    pub epoch: u64,
    /// What it chose; empty for nothing.
    pub backend: String,
    /// Connected to it; 0 for never.
    pub dialed_ns: Nanos,
    /// Over; 0 when the drill ended first.
    pub closed_ns: Nanos,
}

/// Something that changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// When.
    pub ns: Nanos,
    /// `spawned`, `listening`, `ready`, `routable`, `term`, `unready`, `unroutable`, `applied`,
    /// `listener_closed`, `exited`, `died`, `phase`, `config`, `report` …
    pub kind: String,
    /// The gateway, or the name of a phase.
    pub name: String,
    /// Of the route's table, where it matters.
    pub epoch: u64,
    /// More.
    pub detail: String,
}

/// The modeled counters after a controller pass that changed them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// When.
    pub ns: Nanos,
    /// Of the deployment.
    pub status: String,
    /// old, target, healthy target, pending stop, available, bound.
    pub counters: [i64; 6],
    /// Of the route's table.
    pub epoch: u64,
    /// Gateways that run.
    pub processes: i64,
}

/// Where everything is collected while a drill goes on.
#[derive(Debug, Clone, Default)]
pub struct Tape(Arc<Mutex<Recorded>>);

/// All records of a drill.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Route and direct streams.
    pub probes: Vec<Probe>,
    /// The control stream.
    pub control: Vec<Probe>,
    /// Connections through the route.
    pub passages: Vec<Passage>,
    /// Events.
    pub changes: Vec<Change>,
    /// Modeled counters.
    pub rows: Vec<Row>,
    /// Whether a kind had more rows than are kept.
    pub truncated: bool,
}

impl Tape {
    /// Adds to the records.
    pub(crate) fn with(&self, add: impl FnOnce(&mut Recorded)) {
        add(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn probe(&self, probe: Probe) {
        self.with(|all| {
            let truncated = &mut all.truncated;
            let list = if probe.stream == "control" { &mut all.control } else { &mut all.probes };
            if list.len() < ROWS_MAX { list.push(probe) } else { *truncated = true }
        });
    }

    pub(crate) fn passage(&self, passage: Passage) {
        self.with(|all| {
            if all.passages.len() < ROWS_MAX {
                all.passages.push(passage)
            } else {
                all.truncated = true
            }
        });
    }

    pub(crate) fn change(&self, ns: Nanos, kind: &str, name: &str, epoch: u64, detail: &str) {
        let change = Change {
            ns,
            kind: kind.to_owned(),
            name: name.to_owned(),
            epoch,
            detail: detail.to_owned(),
        };
        self.with(|all| {
            if all.changes.len() < ROWS_MAX {
                all.changes.push(change)
            } else {
                all.truncated = true
            }
        });
    }

    /// Everything so far, in the order of time.
    pub(crate) fn take(&self) -> Recorded {
        let mut all = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        all.probes.sort_by(|a, b| (a.intended_ns, &a.stream).cmp(&(b.intended_ns, &b.stream)));
        all.control.sort_by_key(|probe| probe.intended_ns);
        all.passages.sort_by_key(|passage| passage.accepted_ns);
        all.changes.sort_by_key(|change| change.ns);
        all
    }
}

/// Why a raw file cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file} line {line}: {why}")]
pub struct RecordError {
    /// Its name.
    pub file: &'static str,
    /// From 1.
    pub line: usize,
    /// What is wrong.
    pub why: String,
}

/// Files of [`Recorded`], in the order of [`Recorded::files`].
pub const FILES: [&str; 5] =
    ["checkpoints.csv", "control.csv", "events.jsonl", "probes.csv", "sessions.csv"];

const PROBE_HEADER: &str =
    "stream,seq,intended_ns,sent_ns,connected_ns,first_byte_ns,done_ns,port,answer,outcome";
const PASSAGE_HEADER: &str = "client,accepted_ns,epoch,backend,dialed_ns,closed_ns";
const ROW_HEADER: &str = "ns,status,old_active,target_active,target_healthy,pending_stop,\
modeled_available,surge_bound,epoch,processes";

impl Recorded {
    /// Name and content of each raw file.
    ///
    /// # Errors
    /// When an event cannot be encoded.
    pub fn files(&self) -> Result<[(&'static str, String); 5], serde_json::Error> {
        let mut rows = format!("{ROW_HEADER}\n");
        for row in &self.rows {
            let [a, b, c, d, e, f] = row.counters;
            let Row { ns, status, epoch, processes, .. } = row;
            // Writing to a string does not fail.
            let _ = writeln!(rows, "{ns},{status},{a},{b},{c},{d},{e},{f},{epoch},{processes}");
        }
        let mut passages = format!("{PASSAGE_HEADER}\n");
        for passage in &self.passages {
            let Passage { client, accepted_ns, epoch, backend, dialed_ns, closed_ns } = passage;
            let _ = writeln!(
                passages,
                "{client},{accepted_ns},{epoch},{backend},{dialed_ns},{closed_ns}"
            );
        }
        let mut changes = String::new();
        for change in &self.changes {
            changes.push_str(&serde_json::to_string(change)?);
            changes.push('\n');
        }
        let [checkpoints, control, events, probes, sessions] = FILES;
        Ok([
            (checkpoints, rows),
            (control, probe_file(&self.control)?),
            (events, changes),
            (probes, probe_file(&self.probes)?),
            (sessions, passages),
        ])
    }

    /// Reads raw files back, given in the order of [`FILES`].
    ///
    /// # Errors
    /// [`RecordError`] at the first line that is not one.
    pub fn parse(texts: [&str; 5]) -> Result<Self, RecordError> {
        let [rows, control, changes, probes, passages] = texts;
        let [row_file, control_file, change_file, probe_file, passage_file] = FILES;
        let changes = changes
            .lines()
            .zip(1..)
            .map(|(text, line)| {
                serde_json::from_str(text).map_err(|error| RecordError {
                    file: change_file,
                    line,
                    why: error.to_string(),
                })
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            probes: lines(probe_file, probes, PROBE_HEADER, probe)?,
            control: lines(control_file, control, PROBE_HEADER, probe)?,
            passages: lines(passage_file, passages, PASSAGE_HEADER, |fields| {
                let [client, accepted, epoch, backend, dialed, closed] = fields[..] else {
                    return None;
                };
                Some(Passage {
                    client: client.to_owned(),
                    accepted_ns: accepted.parse().ok()?,
                    epoch: epoch.parse().ok()?,
                    backend: backend.to_owned(),
                    dialed_ns: dialed.parse().ok()?,
                    closed_ns: closed.parse().ok()?,
                })
            })?,
            changes,
            rows: lines(row_file, rows, ROW_HEADER, |fields| {
                let [ns, status, a, b, c, d, e, f, epoch, processes] = fields[..] else {
                    return None;
                };
                let number = |text: &str| text.parse::<i64>().ok();
                Some(Row {
                    ns: ns.parse().ok()?,
                    status: status.to_owned(),
                    counters: [
                        number(a)?,
                        number(b)?,
                        number(c)?,
                        number(d)?,
                        number(e)?,
                        number(f)?,
                    ],
                    epoch: epoch.parse().ok()?,
                    processes: number(processes)?,
                })
            })?,
            truncated: false,
        })
    }
}

fn probe_file(probes: &[Probe]) -> Result<String, serde_json::Error> {
    let mut text = format!("{PROBE_HEADER}\n");
    for probe in probes {
        let Probe { stream, seq, intended_ns, sent_ns, connected_ns, first_byte_ns, .. } = probe;
        let Probe { done_ns, port, answer, .. } = probe;
        let outcome = serde_json::to_string(&probe.outcome)?;
        let outcome = outcome.trim_matches('"');
        let _ = writeln!(
            text,
            "{stream},{seq},{intended_ns},{sent_ns},{connected_ns},{first_byte_ns},{done_ns},\
{port},{answer},{outcome}"
        );
    }
    Ok(text)
}

fn probe(fields: &[&str]) -> Option<Probe> {
    let [stream, seq, intended, sent, connected, first, done, port, answer, outcome] = fields[..]
    else {
        return None;
    };
    Some(Probe {
        stream: stream.to_owned(),
        seq: seq.parse().ok()?,
        intended_ns: intended.parse().ok()?,
        sent_ns: sent.parse().ok()?,
        connected_ns: connected.parse().ok()?,
        first_byte_ns: first.parse().ok()?,
        done_ns: done.parse().ok()?,
        port: port.parse().ok()?,
        answer: answer.to_owned(),
        outcome: serde_json::from_str(&format!("\"{outcome}\"")).ok()?,
    })
}

fn lines<T>(
    file: &'static str,
    text: &str,
    header: &str,
    read: impl Fn(&[&str]) -> Option<T>,
) -> Result<Vec<T>, RecordError> {
    let wrong = |line, why: &str| RecordError { file, line, why: why.to_owned() };
    let mut all = text.lines().zip(1..);
    if all.next().is_none_or(|(line, _)| line != header) {
        return Err(wrong(1, "another header"));
    }
    all.map(|(text, line)| {
        let fields: Vec<&str> = text.split(',').collect();
        read(&fields).ok_or_else(|| wrong(line, "not a record"))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_survive_their_files() {
        let tape = Tape::default();
        let probe = Probe {
            stream: "route-1".to_owned(),
            seq: 3,
            intended_ns: 5,
            sent_ns: 6,
            connected_ns: 0,
            first_byte_ns: 0,
            done_ns: 9,
            port: 4000,
            answer: "v1-1/0.1.0/77".to_owned(),
            outcome: Outcome::Refused,
        };
        tape.probe(Probe { stream: "control".to_owned(), ..probe.clone() });
        tape.probe(probe);
        tape.change(7, "ready", "v1-1", 2, "a \"word\", and more");
        tape.passage(Passage {
            client: "127.0.1.1:4000".to_owned(),
            accepted_ns: 6,
            epoch: 2,
            backend: String::new(),
            dialed_ns: 0,
            closed_ns: 8,
        });
        tape.with(|all| {
            all.rows.push(Row {
                ns: 1,
                status: "running".to_owned(),
                counters: [3, 1, 0, 0, 3, 4],
                epoch: 2,
                processes: 3,
            });
        });
        let recorded = tape.take();
        let files = recorded.files().unwrap();
        assert_eq!(files.each_ref().map(|(name, _)| *name), FILES);
        let texts = files.each_ref().map(|(_, text)| text.as_str());
        assert_eq!(Recorded::parse(texts).unwrap(), recorded);
        let mut broken = texts;
        let cut = texts[3].replace("refused", "refuse");
        broken[3] = &cut;
        assert_eq!(Recorded::parse(broken).unwrap_err().line, 2);
    }
}
