//! Maintenance windows: when an operation may begin, and the audited way past a closed one.
//!
//! Windows restrict only what they list: an operation that no enabled window of its namespace lists is
//! free at any time. Force passes this check and no other.

use std::collections::BTreeMap;
use std::fmt;

use jiff::tz::TimeZone;
use serde::Serialize;

use super::{AUDIT_MAX, MemoryStore};
use crate::cron::Cron;
use crate::error::Error;
use crate::records::{AuditLog, Context, Outcome};
use crate::time::{Id, SECOND, Utc};

/// Windows kept.
pub const WINDOWS_MAX: usize = 1024;
/// The longest a window may stay open: the test for "open" walks its minutes.
pub const WINDOW_SECONDS_MAX: i64 = 31 * 86_400;
/// How long a window stays open that does not say.
const WINDOW_SECONDS_DEFAULT: i64 = 3600;
/// Who the baseline says passed a closed window, whoever it was.
const FIXED_ACTOR: &str = "operator";

/// What a window can restrict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Guarded {
    /// A rollout.
    Rollout,
    /// A rollback.
    Rollback,
    /// Taking a node out of placement.
    NodeDrain,
    /// Scaling to fewer replicas.
    AutoscalingScaleDown,
    /// Nothing calls for it.
    NonUrgentReplacement,
}

impl Guarded {
    /// All five.
    pub const ALL: [Self; 5] = [
        Self::Rollout,
        Self::Rollback,
        Self::NodeDrain,
        Self::AutoscalingScaleDown,
        Self::NonUrgentReplacement,
    ];

    /// The word in windows and records.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rollout => "rollout",
            Self::Rollback => "rollback",
            Self::NodeDrain => "node_drain",
            Self::AutoscalingScaleDown => "autoscaling_scale_down",
            Self::NonUrgentReplacement => "non_urgent_replacement",
        }
    }
}

impl fmt::Display for Guarded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A window as it is asked for.
#[derive(Debug, Clone)]
pub struct NewWindow {
    /// Unique in its scope.
    pub name: String,
    /// The namespace it restricts; every one when none is named.
    pub namespace: Option<String>,
    /// Five cron fields: the minutes at which it opens.
    pub schedule: String,
    /// IANA zone that the schedule is read in; UTC when empty.
    pub timezone: String,
    /// How long it stays open; an hour when 0.
    pub duration_seconds: i64,
    /// Words of [`Guarded`].
    pub operations: Vec<String>,
    /// A disabled window does not exist.
    pub enabled: bool,
}

/// A window in force.
#[derive(Debug, Clone)]
pub struct MaintenanceWindow {
    /// Made by the store.
    pub id: Id,
    /// As asked for.
    pub given: NewWindow,
    /// What it restricts.
    pub operations: Vec<Guarded>,
    /// When it was made.
    pub created_at: Utc,
    cron: Cron,
    zone: TimeZone,
}

impl MaintenanceWindow {
    /// Whether it is open: some named minute S has S ≤ now < S + duration.
    ///
    /// Walks the instants, not the wall clock, so a local minute that a change of summer time skips
    /// opens nothing, and one that it repeats opens twice.
    pub fn is_open(&self, now: Utc) -> bool {
        const MINUTE: i64 = 60 * SECOND;
        let mut start = now.0.div_euclid(MINUTE) * MINUTE;
        while now.0 - start < self.given.duration_seconds * SECOND {
            if self.cron.matches(self.zone.to_datetime(Utc(start).timestamp())) {
                return true;
            }
            start -= MINUTE;
        }
        false
    }
}

impl MemoryStore {
    /// Adds a window.
    ///
    /// # Errors
    /// [`Error::InvalidState`] for anything malformed, [`Error::Duplicate`] for a name that its scope
    /// has.
    pub fn create_window(&mut self, context: &Context, given: NewWindow) -> Result<Id, Error> {
        context.check()?;
        if given.name.trim().is_empty() {
            return Err(Error::invalid("maintenance window without a name"));
        }
        let cron = Cron::parse(&given.schedule)?;
        let zone = match given.timezone.as_str() {
            "" | "UTC" => TimeZone::UTC,
            name => {
                TimeZone::get(name).map_err(|_| Error::invalid(format!("no time zone {name:?}")))?
            }
        };
        let mut given = given;
        if given.duration_seconds == 0 {
            given.duration_seconds = WINDOW_SECONDS_DEFAULT;
        }
        if !(1..=WINDOW_SECONDS_MAX).contains(&given.duration_seconds) {
            return Err(Error::invalid("a window stays open for more than 0 s, at most 31 days"));
        }
        let operations = given
            .operations
            .iter()
            .map(|word| {
                Guarded::ALL
                    .into_iter()
                    .find(|operation| operation.as_str() == word)
                    .ok_or_else(|| Error::invalid(format!("no operation {word:?}")))
            })
            .collect::<Result<Vec<_>, _>>()?;
        if operations.is_empty() {
            return Err(Error::invalid("a window needs at least one operation"));
        }
        let same = |held: &MaintenanceWindow| {
            held.given.name == given.name && held.given.namespace == given.namespace
        };
        if self.windows.values().any(same) {
            return Err(Error::Duplicate { what: "maintenance window", name: given.name });
        }
        if self.windows.len() >= WINDOWS_MAX {
            return Err(Error::Quota(format!("{WINDOWS_MAX} maintenance windows")));
        }
        let created_at = self.clock.read();
        let id = self.ids.next();
        self.windows
            .insert(id, MaintenanceWindow { id, given, operations, created_at, cron, zone });
        Ok(id)
    }

    /// Runs an operation that windows may restrict.
    ///
    /// The baseline writes the record of a bypass before the operation is tried, so there can be one
    /// for an operation that is then refused. Strict completes it with what came of it.
    pub(super) fn guarded<T>(
        &mut self,
        context: &Context,
        operation: Guarded,
        namespace: &str,
        run: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let record = self.pass_window(context, operation, namespace)?;
        let result = run(self);
        if let Some(at) = record
            && self.rules.audit_principal
            && let Some(record) = self.audit.get_mut(at)
        {
            record.outcome = if result.is_ok() { Outcome::Applied } else { Outcome::Rejected };
        }
        result
    }

    /// Whether the operation may begin now; the place of its bypass record if it needed one.
    fn pass_window(
        &mut self,
        context: &Context,
        operation: Guarded,
        namespace: &str,
    ) -> Result<Option<usize>, Error> {
        let now = self.clock.peek();
        let mut relevant = self
            .windows
            .values()
            .filter(|window| window.given.enabled && window.operations.contains(&operation))
            .filter(|window| window.given.namespace.as_deref().is_none_or(|own| own == namespace))
            .peekable();
        if relevant.peek().is_none() || relevant.any(|window| window.is_open(now)) {
            return Ok(None);
        }
        if !context.force {
            return Err(Error::OutsideWindow(operation.to_string()));
        }
        let strict = self.rules.audit_principal;
        if strict
            && [&context.actor, &context.reason, &context.operation_id]
                .iter()
                .any(|text| text.trim().is_empty())
        {
            return Err(Error::invalid("a forced operation names its actor, reason and id"));
        }
        let same = |held: &AuditLog| {
            held.operation_id == context.operation_id && held.target_id == operation.as_str()
        };
        if strict && let Some(at) = self.audit.iter().position(same) {
            return Ok(Some(at));
        }
        if self.audit.len() >= AUDIT_MAX {
            return Err(Error::Quota(format!("{AUDIT_MAX} audit records")));
        }
        let mut metadata = redacted(&context.metadata);
        metadata.insert("force".to_owned(), "true".to_owned());
        if strict {
            metadata.insert("reason".to_owned(), context.reason.clone());
        }
        let at = self.clock.read();
        let id = self.ids.next();
        let actor = if strict { context.actor.clone() } else { FIXED_ACTOR.to_owned() };
        self.audit.push(AuditLog {
            id,
            namespace: namespace.to_owned(),
            actor_type: "user",
            actor_id: actor,
            action: "maintenance.bypass",
            target_type: "operation",
            target_id: operation.to_string(),
            operation_id: context.operation_id.clone(),
            outcome: if strict { Outcome::Attempted } else { Outcome::Success },
            metadata,
            at,
        });
        Ok(Some(self.audit.len() - 1))
    }
}

/// Values of keys that look like secrets never reach a record.
fn redacted(metadata: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    metadata
        .iter()
        .map(|(key, value)| {
            let low = key.to_ascii_lowercase();
            let secret = ["password", "secret", "token", "key", "authorization"]
                .iter()
                .any(|word| low.contains(word));
            (key.clone(), if secret { "[redacted]".to_owned() } else { value.clone() })
        })
        .collect()
}
