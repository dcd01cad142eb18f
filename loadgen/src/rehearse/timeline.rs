//! What happened in a rehearsal, and when.

use std::fmt;

use serde::Serialize;

use crate::clock::Micros;

/// Entries that are kept; a rehearsal has some dozens, and one that flaps for ever has many.
const ENTRIES_MAX: usize = 4_096;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Since the start, in milliseconds.
    pub at_ms: u64,
    /// In a sentence.
    pub what: String,
}

/// All of it, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Timeline {
    entries: Vec<Entry>,
    #[serde(skip)]
    loud: bool,
}

impl Timeline {
    /// Tells each entry on stderr as it comes, if `loud`.
    pub(crate) fn new(loud: bool) -> Self {
        Self { entries: Vec::new(), loud }
    }

    pub(crate) fn push(&mut self, at: Micros, what: String) {
        let entry = Entry { at_ms: at / 1_000, what };
        if self.loud {
            eprintln!("{entry}");
        }
        if self.entries.len() < ENTRIES_MAX {
            self.entries.push(entry);
        }
    }

    /// What it holds.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>4}.{:03} s  {}", self.at_ms / 1_000, self.at_ms % 1_000, self.what)
    }
}

impl fmt::Display for super::Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.about)?;
        for entry in self.timeline.entries() {
            writeln!(f, "{entry}")?;
        }
        writeln!(f, "verdicts  {}", self.verdicts.join(", "))?;
        writeln!(f, "branches  {}", self.branches.join(", "))?;
        if self.bundles_verified == 0 {
            writeln!(f, "bundles   none")?;
        } else {
            let bundles = self.bundles_verified;
            writeln!(f, "bundles   {bundles} verified, and refused with a changed figure")?;
        }
        match &self.deviation {
            None => writeln!(f, "as the scenario says"),
            Some(deviation) => writeln!(f, "NOT as the scenario says: {deviation}"),
        }
    }
}
