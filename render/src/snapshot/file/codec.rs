//! The body of a snapshot file, format 1.
//!
//! Written field by field in the order of [`encode`]: counts and lengths are `u32`, an optional
//! field stands behind a byte 0 or 1, artefacts are stored once and named by their index.
//! At the end stand tagged sections, none so far. A reader skips those it does not know from
//! [`SKIPPABLE`] on, and refuses the rest: what must not be overlooked gets a lower tag.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use bytes::Bytes;

use super::super::served::{Served, ServedRollout, ServedStage, ServedTier};
use super::FileError;
use super::wire::{Reader, Writer};
use crate::artefact::{Artefact, RawHash};
use crate::estate::{Cohort, Halt, Hosts};

const SKIPPABLE: u32 = 1 << 16;

pub(super) fn encode(served: &Served, created_ms: u64) -> Result<Vec<u8>, FileError> {
    let mut body = Writer::default();
    body.u64(created_ms);
    body.out.extend_from_slice(&served.digest());
    body.bytes(served.commit.as_bytes())?;

    let mut stored = Stored::default();
    let unmatched = stored.index(&served.unmatched)?;
    let mut tiers = Writer::default();
    tiers.list(served.tiers.iter(), |out, (id, tier)| {
        out.bytes(id.as_bytes())?;
        out.bytes(tier.environment.as_bytes())?;
        out.bytes(tier.blueprint.as_bytes())?;
        pairs(out, &tier.selector)?;
        out.u32(stored.index(&tier.base)?);
        out.byte(tier.next.is_some().into());
        if let Some(next) = &tier.next {
            out.u32(stored.index(next)?);
        }
        Ok(())
    })?;
    body.list(stored.artefacts.iter(), |out, artefact| out.bytes(artefact))?;
    body.u32(unmatched);
    body.out.append(&mut tiers.out);
    body.list(served.rollouts.values(), write_rollout)?;
    body.count(0)?; // sections
    Ok(body.out)
}

/// Each distinct artefact once.
#[derive(Default)]
struct Stored<'s> {
    index: HashMap<RawHash, u32>,
    artefacts: Vec<&'s Bytes>,
}

impl<'s> Stored<'s> {
    fn index(&mut self, artefact: &'s Artefact) -> Result<u32, FileError> {
        let count = self.artefacts.len();
        let next = u32::try_from(count).map_err(|_| FileError::TooLarge { bytes: count as u64 })?;
        let index = *self.index.entry(artefact.raw_hash()).or_insert(next);
        if index == next {
            self.artefacts.push(artefact.bytes());
        }
        Ok(index)
    }
}

fn pairs(out: &mut Writer, pairs: &BTreeMap<String, String>) -> Result<(), FileError> {
    out.list(pairs.iter(), |out, (name, value)| {
        out.bytes(name.as_bytes())?;
        out.bytes(value.as_bytes())
    })
}

fn texts(out: &mut Writer, texts: &[String]) -> Result<(), FileError> {
    out.list(texts.iter(), |out, text| out.bytes(text.as_bytes()))
}

fn optional(out: &mut Writer, text: Option<&str>) -> Result<(), FileError> {
    out.byte(text.is_some().into());
    text.map_or(Ok(()), |text| out.bytes(text.as_bytes()))
}

fn duration(out: &mut Writer, duration: Duration) {
    out.u64(duration.as_secs());
    out.u32(duration.subsec_nanos());
}

fn write_rollout(out: &mut Writer, rollout: &ServedRollout) -> Result<(), FileError> {
    for text in [&rollout.id, &rollout.tier, &rollout.owner, &rollout.from, &rollout.to] {
        out.bytes(text.as_bytes())?;
    }
    out.u32(rollout.stage);
    out.list(rollout.stages.iter(), |out, stage| {
        out.byte(stage.cohort.hosts.is_some().into());
        if let Some(hosts) = &stage.cohort.hosts {
            out.bytes(hosts.attribute.as_bytes())?;
            texts(out, &hosts.values)?;
        }
        pairs(out, &stage.cohort.matches)?;
        out.u32(stage.cohort.percent);
        duration(out, stage.soak);
        Ok(())
    })?;
    texts(out, &rollout.hash_attributes)?;
    optional(out, rollout.hash_salt.as_deref())?;
    texts(out, &rollout.identity)?;
    out.byte(rollout.hold.into());
    out.u32(rollout.halt.abort_at_percent);
    duration(out, rollout.halt.dark_after);
    out.u32(rollout.halt.min_seen);
    out.u32(rollout.halt.retry_failed);
    out.byte(rollout.stage_started_ms.is_some().into());
    if let Some(started) = rollout.stage_started_ms {
        out.u64(started);
    }
    optional(out, rollout.origin.as_deref())
}

/// Reads a body whose check sum fits. It may still say what no estate says, by a fault of its
/// writer or the skill of an attacker; so every rule that serving relies on is checked.
pub(super) fn decode(body: &Bytes) -> Result<(Served, u64), FileError> {
    let mut body = Reader::new(body);
    let created_ms = body.u64()?;
    let digest: [u8; 32] = body.array()?;
    let commit = body.text()?.into();
    let artefacts: Vec<Artefact> = body.list(|body| {
        Artefact::new(body.bytes()?).map_err(|_| FileError::Corrupt("an empty artefact"))
    })?;
    let artefact = |index: u32| {
        let artefact = artefacts.get(index as usize).cloned();
        artefact.ok_or(FileError::Corrupt("an artefact that is not there"))
    };
    let unmatched = artefact(body.u32()?)?;
    let tiers: Vec<(Box<str>, ServedTier)> = body.list(|body| {
        let id = read_id(body)?;
        let tier = ServedTier {
            environment: body.text()?.into(),
            blueprint: body.text()?.into(),
            selector: read_pairs(body)?,
            base: artefact(body.u32()?)?,
            next: body.optional(Reader::u32)?.map(artefact).transpose()?,
        };
        if tier.selector.is_empty() {
            return Err(FileError::Corrupt("a tier without a selector"));
        }
        Ok((id, tier))
    })?;
    let tiers = by_id(tiers)?;
    let rollouts: Vec<(Box<str>, ServedRollout)> = body.list(|body| {
        let rollout = read_rollout(body)?;
        Ok((rollout.id.clone(), rollout))
    })?;
    let rollouts = by_id(rollouts)?;
    fit(&tiers, &rollouts)?;
    let _skipped: Vec<()> = body.list(|body| {
        let tag = body.u32()?;
        body.bytes()?;
        let known = tag >= SKIPPABLE;
        known.then_some(()).ok_or(FileError::Corrupt("a section that this version does not know"))
    })?;
    if !body.is_empty() {
        return Err(FileError::Corrupt("bytes after the last field"));
    }
    let rendered_at = unmatched.commit().map(Into::into);
    let served = Served { commit, rendered_at, tiers, rollouts, unmatched };
    if served.digest() != digest {
        return Err(FileError::Corrupt("it says it was made from something else"));
    }
    Ok((served, created_ms))
}

/// Exactly the Tiers with a candidate are under exactly one Rollout each.
fn fit(
    tiers: &BTreeMap<Box<str>, ServedTier>,
    rollouts: &BTreeMap<Box<str>, ServedRollout>,
) -> Result<(), FileError> {
    let mut staged: Vec<&str> = rollouts.values().map(|rollout| &*rollout.tier).collect();
    staged.sort_unstable();
    let candidates = tiers.iter().filter(|(_, tier)| tier.next.is_some()).map(|(id, _)| &**id);
    let fits = candidates.eq(staged);
    fits.then_some(()).ok_or(FileError::Corrupt("rollouts and candidates do not fit together"))
}

fn by_id<T>(items: Vec<(Box<str>, T)>) -> Result<BTreeMap<Box<str>, T>, FileError> {
    if !items.is_sorted_by(|(before, _), (after, _)| before < after) {
        return Err(FileError::Corrupt("ids out of order"));
    }
    Ok(items.into_iter().collect())
}

fn read_id(body: &mut Reader) -> Result<Box<str>, FileError> {
    let id = body.text()?;
    let whole = id.split_once('/').is_some_and(|(team, name)| !team.is_empty() && !name.is_empty());
    whole.then(|| id.into()).ok_or(FileError::Corrupt("an id without a team"))
}

fn read_pairs(body: &mut Reader) -> Result<BTreeMap<String, String>, FileError> {
    let pairs: Vec<(String, String)> = body.list(|body| Ok((body.text()?, body.text()?)))?;
    if pairs.iter().any(|(name, value)| name.is_empty() || value.is_empty()) {
        return Err(FileError::Corrupt("a pair with an empty side"));
    }
    if !pairs.is_sorted_by(|(before, _), (after, _)| before < after) {
        return Err(FileError::Corrupt("pairs out of order"));
    }
    Ok(pairs.into_iter().collect())
}

fn read_duration(body: &mut Reader) -> Result<Duration, FileError> {
    let (seconds, nanos) = (body.u64()?, body.u32()?);
    if nanos >= 1_000_000_000 {
        return Err(FileError::Corrupt("a second of more than a second"));
    }
    Ok(Duration::new(seconds, nanos))
}

fn read_stage(body: &mut Reader) -> Result<ServedStage, FileError> {
    let hosts = body
        .optional(|body| Ok(Hosts { attribute: body.text()?, values: body.list(Reader::text)? }))?;
    let matches = read_pairs(body)?;
    let percent = body.u32()?;
    if percent > 100 {
        return Err(FileError::Corrupt("more than 100 percent"));
    }
    let soak = read_duration(body)?;
    Ok(ServedStage { cohort: Cohort { hosts, matches, percent }, soak })
}

fn read_rollout(body: &mut Reader) -> Result<ServedRollout, FileError> {
    let rollout = ServedRollout {
        id: read_id(body)?,
        tier: read_id(body)?,
        owner: body.text()?.into(),
        from: body.text()?.into(),
        to: body.text()?.into(),
        stage: body.u32()?,
        stages: body.list(read_stage)?,
        hash_attributes: body.list(Reader::text)?,
        hash_salt: body.optional(Reader::text)?,
        identity: body.list(Reader::text)?,
        hold: body.flag()?,
        halt: Halt {
            abort_at_percent: body.u32()?,
            dark_after: read_duration(body)?,
            min_seen: body.u32()?,
            retry_failed: body.u32()?,
        },
        stage_started_ms: body.optional(Reader::u64)?,
        origin: body.optional(Reader::text)?.map(Into::into),
    };
    if rollout.stage as usize >= rollout.stages.len() {
        return Err(FileError::Corrupt("a stage past the last one"));
    }
    if !(1..=100).contains(&rollout.halt.abort_at_percent) {
        return Err(FileError::Corrupt("an abort threshold outside 1 to 100 percent"));
    }
    Ok(rollout)
}
