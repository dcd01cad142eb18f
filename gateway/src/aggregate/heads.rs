//! What a head changes: which cells there are, what their members are classified by, and which
//! brakes are in force (rollouts.md, decisions 6, 15 and 16).

mod forget;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use render::artefact::ContentHash;
use render::rollout::evidence::{self, EvidenceKey, Millis, ReportKey, cohort_digest, halt_digest};
use render::rollout::explain::in_words;
use render::rollout::report::CohortLine;
use render::rollout::verdict::Terms;
use render::snapshot::served::ServedRollout;
use render::snapshot::{CompiledRollout, Snapshot, TierEntry};

use super::cell::Cell;
use super::context::Context;
use super::judge::{Convergence, Facts};
use super::links::Reported;
use super::replicas::{Affected, Owners, REPLICAS_MAX, Replicas};
use super::sights::{Look, look};
use super::store::{CellRow, Kind, Loaded, ProcessRow, Sight, row_key};
use super::vouched::Memo;
use super::{Role, Shared};

/// How long evidence of a change that is not in head is kept: an editor's rename or a torn read
/// must not wipe it.
pub const DORMANT_MS: Millis = 7 * 24 * 3_600_000;
/// Changes that are not in head and still known. Past it, the one that left first is forgotten.
pub const DORMANT_CELLS_MAX: usize = 10_000;
/// Time between two notes in the store that this process lives.
const PROCESS_NOTE_MS: Millis = 60_000;

/// What the judge knows besides the cells' own.
pub(super) struct Judging {
    /// Also those that are not in head.
    cells: BTreeMap<EvidenceKey, Arc<Cell>>,
    /// In the order of the snapshot's Rollouts.
    head: Vec<Arc<Cell>>,
    sights: BTreeMap<Box<str>, Sight>,
    replicas: Replicas,
    owners: Arc<Owners>,
    processes: BTreeMap<u32, ProcessRow>,
    noted_ms: Millis,
    next_number: u32,
    /// There was a head.
    began: bool,
}

impl Judging {
    pub(super) fn new(shared: &Arc<Shared>, loaded: Loaded) -> Self {
        let settings = &shared.settings;
        let now_ms = shared.evidence_since_ms();
        let (expected, forget_ms) = (settings.expect_replicas, settings.forget_ms);
        let mut replicas = match settings.role {
            Role::Alone | Role::Replica { .. } => Replicas::new(now_ms, expected, forget_ms),
            Role::Aggregator => Replicas::of_aggregator(now_ms, expected, forget_ms),
        };
        let mut processes = loaded.processes;
        while processes.len() > REPLICAS_MAX {
            let oldest = processes.iter().min_by_key(|(_, process)| process.heard_ms);
            let Some(oldest) = oldest.map(|(incarnation, _)| *incarnation) else { break };
            processes.remove(&oldest);
            if let Some(store) = &shared.store {
                store.drop_row(row_key(Kind::Process, oldest, ""));
            }
        }
        let newest = processes.values().map(|process| process.heard_ms).max().unwrap_or(0);
        let reported = |process: &ProcessRow| {
            process.name != settings.replica
                && process.heard_ms.saturating_add(2 * PROCESS_NOTE_MS) >= newest
        };
        let peers = processes.values().filter(|process| reported(process)).count();
        for (incarnation, process) in &processes {
            let ProcessRow { name, heard_ms } = process;
            if *incarnation == settings.incarnation {
                continue;
            }
            if shared.tells() && *name != settings.replica {
                let peers = if reported(process) { peers } else { 1 };
                replicas.reported_before(*incarnation, name, *heard_ms, peers);
            } else {
                replicas.predecessor(*incarnation, name, *heard_ms);
            }
        }
        if !shared.tells() {
            replicas.hello(now_ms, settings.incarnation, &settings.replica);
        }
        let owners = Arc::new(replicas.owners());
        let mut judging = Self {
            cells: BTreeMap::new(),
            head: Vec::new(),
            sights: loaded.sights,
            replicas,
            owners,
            processes,
            noted_ms: 0,
            next_number: loaded.cells.keys().max().map_or(0, |newest| newest + 1),
            began: false,
        };
        let mut by_number = BTreeMap::new();
        for (number, (key, row)) in loaded.cells {
            let cell = judging.make_cell(shared, key, number, row);
            by_number.insert(number, cell);
        }
        for stored in loaded.records {
            if let Some(cell) = by_number.get(&stored.cell) {
                cell.restore(now_ms, stored);
            }
        }
        judging.note_process(shared, now_ms);
        judging
    }

    pub(super) fn head(&self) -> &[Arc<Cell>] {
        &self.head
    }

    pub(super) fn replicas(&self) -> &Replicas {
        &self.replicas
    }

    pub(super) fn handle_head(
        &mut self,
        shared: &Arc<Shared>,
        now_ms: Millis,
        snapshot: &Snapshot,
        commit: &str,
    ) -> Box<[Arc<Cell>]> {
        if !std::mem::replace(&mut self.began, true) && !shared.tells() {
            shared.evidence_since_ms.store(now_ms, Ordering::Relaxed);
            self.replicas.begin(now_ms);
            self.owners = Arc::new(self.replicas.owners());
        }
        let mut head = Vec::with_capacity(snapshot.rollouts.len());
        let mut keys = BTreeMap::new();
        for compiled in &snapshot.rollouts {
            let Some(tier) = snapshot.tiers.get(compiled.tier as usize) else {
                unreachable!("compile() gives each Rollout a Tier of its snapshot");
            };
            let cell = self.cell_of(shared, compiled, tier);
            let facts = self.facts(shared, now_ms, compiled, tier, commit);
            keys.insert(compiled.rollout.id.clone(), facts.report_key);
            self.enter(shared, now_ms, &cell, &compiled.rollout, facts);
            head.push(cell);
        }
        self.head = head;
        let incarnation = shared.settings.incarnation;
        if !shared.links.is_empty() {
            let served = self.head.iter().zip(&snapshot.rollouts).filter_map(|(cell, compiled)| {
                let key = *keys.get(&compiled.rollout.id)?;
                let halt = halt_digest(&compiled.rollout.halt);
                Some(Reported { cell: Arc::clone(cell), key, halt })
            });
            shared.links.set_head(commit, served.collect());
        }
        self.replicas.vouch(now_ms, incarnation, keys, BTreeMap::new());
        self.retire(shared, now_ms, snapshot);
        self.head.iter().cloned().collect()
    }

    /// The cell of a Rollout of the head, made when nothing is known of it.
    fn cell_of(
        &mut self,
        shared: &Arc<Shared>,
        compiled: &CompiledRollout,
        tier: &TierEntry,
    ) -> Arc<Cell> {
        let ServedRollout { id: rollout, origin, .. } = &compiled.rollout;
        let candidate = candidate(tier);
        let key = EvidenceKey { rollout: rollout.clone(), origin: origin.clone(), candidate };
        if let Some(cell) = self.cells.get(&key) {
            return Arc::clone(cell);
        }
        if origin.is_none() {
            // History cannot be told now; it is filed under the origin that was known last.
            if let Some(cell) = self.known_last(&key) {
                return Arc::clone(cell);
            }
        } else {
            // What was learned while history could not be told belongs to it.
            let untold = EvidenceKey { origin: None, ..key.clone() };
            if let Some(cell) = self.cells.remove(&untold) {
                return self.rename(shared, key, &cell);
            }
        }
        let row = CellRow {
            rollout: rollout.clone(),
            origin: origin.clone(),
            candidate: candidate.to_string().into(),
            left_ms: None,
            halt: halt_digest(&compiled.rollout.halt),
            brakes: BTreeMap::new(),
        };
        let number = self.next_number;
        self.next_number += 1;
        self.make_cell(shared, key, number, row)
    }

    /// The cell of the same change that is in head, or was in it last, whatever its origin.
    fn known_last(&self, key: &EvidenceKey) -> Option<&Arc<Cell>> {
        let from = EvidenceKey { origin: None, candidate: ContentHash([0; 32]), ..key.clone() };
        let same = self.cells.range(from..).take_while(|(known, _)| known.rollout == key.rollout);
        let same = same.filter(|(known, _)| known.candidate == key.candidate);
        same.map(|(_, cell)| cell).max_by_key(|cell| {
            // Taken once: two guards of one lock in one expression would wait for each other.
            let left_ms = cell.state().row.left_ms;
            (left_ms.is_none(), left_ms)
        })
    }

    /// The cell that a replica's evidence of a change goes to (decision 6): a replica may not know
    /// the origin, and neither may this process. One that nothing is known of sleeps until it is in
    /// head.
    pub(super) fn file(
        &mut self,
        shared: &Arc<Shared>,
        now_ms: Millis,
        key: &EvidenceKey,
    ) -> Arc<Cell> {
        let exact = self.cells.get(key);
        let filed = match &key.origin {
            None => self.known_last(key),
            Some(_) => exact.or_else(|| {
                let untold = EvidenceKey { origin: None, ..key.clone() };
                self.cells.get(&untold).filter(|cell| cell.state().facts.is_some())
            }),
        };
        if let Some(cell) = filed {
            return Arc::clone(cell);
        }
        let row = CellRow {
            rollout: key.rollout.clone(),
            origin: key.origin.clone(),
            candidate: key.candidate.to_string().into(),
            left_ms: Some(now_ms),
            halt: 0,
            brakes: BTreeMap::new(),
        };
        let number = self.next_number;
        self.next_number += 1;
        let cell = self.make_cell(shared, key.clone(), number, row);
        cell.write_row(&cell.state(), false);
        self.forget(shared, now_ms);
        cell
    }

    fn make_cell(
        &mut self,
        shared: &Arc<Shared>,
        key: EvidenceKey,
        number: u32,
        row: CellRow,
    ) -> Arc<Cell> {
        let context = Context {
            terms: evidence::Context {
                now_ms: 0,
                stage: 0,
                soak_since_ms: 0,
                soak_ms: 0,
                earlier_until_ms: 0,
                dark_after_ms: Millis::MAX,
                grace_ms: shared.settings.grace_ms,
                evidence_since_ms: shared.evidence_since_ms(),
            },
            owners: Arc::clone(&self.owners),
            seed: shared.seed,
            is_stored: shared.store.is_some(),
            uplinks: shared.links.len(),
            memo: Memo::default(),
        };
        let cell = Arc::new(Cell::new(key.clone(), number, row, context, Arc::clone(shared)));
        if let Some(store) = &shared.store {
            store.register(number, &cell);
        }
        shared.links.register(number, &cell);
        self.cells.insert(key, Arc::clone(&cell));
        cell
    }

    /// Moves what is known to another key. Links that hold the old cell let go of it at the swap.
    fn rename(&mut self, shared: &Arc<Shared>, key: EvidenceKey, old: &Arc<Cell>) -> Arc<Cell> {
        let (mut row, entered_ms) = {
            let state = old.state();
            (state.row.clone(), state.entered_ms)
        };
        row.origin = key.origin.clone();
        let number = self.next_number;
        self.next_number += 1;
        let cell = self.make_cell(shared, key, number, row);
        cell.state().entered_ms = entered_ms;
        old.move_to(shared.evidence_since_ms(), &cell);
        if let Some(store) = &shared.store {
            store.drop_cell(old.number());
        }
        cell
    }

    fn facts(
        &mut self,
        shared: &Arc<Shared>,
        now_ms: Millis,
        compiled: &CompiledRollout,
        tier: &TierEntry,
        commit: &str,
    ) -> Facts {
        let rollout = &compiled.rollout;
        let candidate = candidate(tier);
        let active = rollout.stages.get(rollout.stage as usize);
        let soak_ms = active.map_or(0, |stage| millis(stage.soak));
        let dark_after_ms = millis(rollout.halt.dark_after);
        let hex = candidate.to_string();
        let before = self.sights.get(&rollout.id);
        let (sight, began) = look(
            before,
            now_ms,
            &Look {
                origin: rollout.origin.as_deref(),
                stage: rollout.stage,
                candidate: &hex,
                history_ms: rollout.stage_started_ms,
                soak_ms,
                dark_after_ms,
            },
        );
        if before != Some(&sight) {
            write(shared, Kind::Sight, 0, &rollout.id, &sight);
            self.sights.insert(rollout.id.clone(), sight);
        }
        let cohorts = rollout.stages.iter().map(|stage| CohortLine {
            cohort: in_words(&stage.cohort),
            soak_ms: millis(stage.soak),
        });
        Facts {
            tier: rollout.tier.clone(),
            owner: rollout.owner.clone(),
            from: rollout.from.clone(),
            to: rollout.to.clone(),
            head: commit.into(),
            base: tier.base.content.to_string().into(),
            cohorts: cohorts.collect(),
            terms: Terms {
                stage: rollout.stage,
                stages: u32::try_from(rollout.stages.len()).unwrap_or(u32::MAX),
                soak_ms,
                abort_at_percent: rollout.halt.abort_at_percent,
                dark_after_ms,
                min_seen: rollout.halt.min_seen,
                hold: rollout.hold,
                same_content: candidate == tier.base.content,
                expect_replicas: shared.settings.expect_replicas,
                grace_ms: shared.settings.grace_ms,
            },
            began,
            report_key: ReportKey {
                candidate,
                stage: rollout.stage,
                cohorts: cohort_digest(rollout),
            },
            replicas: 0,
            awaited: 0,
        }
    }

    /// A cell is in head as of now.
    fn enter(
        &self,
        shared: &Arc<Shared>,
        now_ms: Millis,
        cell: &Arc<Cell>,
        rollout: &ServedRollout,
        facts: Facts,
    ) {
        let Facts { terms, began, .. } = &facts;
        let context = Context {
            terms: evidence::Context {
                now_ms: 0,
                stage: terms.stage,
                soak_since_ms: began.soak_since_ms,
                soak_ms: terms.soak_ms,
                earlier_until_ms: began.earlier_until_ms,
                dark_after_ms: terms.dark_after_ms,
                grace_ms: terms.grace_ms,
                evidence_since_ms: shared.evidence_since_ms(),
            },
            owners: Arc::clone(&self.owners),
            seed: shared.seed,
            is_stored: shared.store.is_some(),
            uplinks: shared.links.len(),
            memo: Memo::default(),
        };
        let mut state = cell.state();
        let halt = halt_digest(&rollout.halt);
        let before = state.row.clone();
        if state.row.halt != halt {
            if let Some(brake) = state.row.brakes.get_mut(&before.halt) {
                brake.left_ms = Some(now_ms);
            }
            // Thresholds are new: nobody new gets the candidate before a verdict under them.
            state.row.halt = halt;
            state.awaits_verdict = true;
        }
        if let Some(brake) = state.row.brakes.get_mut(&halt) {
            brake.left_ms = None;
        }
        state.row.left_ms = None;
        if state.row != before || state.facts.is_none() {
            cell.write_row(&state, false);
        }
        let series = &shared.metrics.rollout_convergence;
        let to = series.cell(&[&rollout.id, "to"]);
        let from = series.cell(&[&rollout.id, "from"]);
        cell.set_convergence(Some(Convergence { to, from }));
        state.facts = Some(facts);
        state.entered_ms.get_or_insert(now_ms);
        cell.refresh_brake(&state);
        drop(state);
        cell.set_context(now_ms, context);
    }

    /// What time alone changes besides the members of cells.
    pub(super) fn handle_timeout(&mut self, shared: &Arc<Shared>, now_ms: Millis) {
        // This process speaks for itself as long as it runs.
        self.replicas.heard(now_ms, shared.settings.incarnation);
        if self.replicas.handle_timeout(now_ms) {
            self.set_owners(now_ms);
        }
        if now_ms >= self.noted_ms.saturating_add(PROCESS_NOTE_MS) {
            self.note_process(shared, now_ms);
            self.forget(shared, now_ms);
        }
    }

    pub(super) fn replica_hello(
        &mut self,
        shared: &Arc<Shared>,
        now_ms: Millis,
        incarnation: u32,
        name: &str,
    ) {
        self.replicas.hello(now_ms, incarnation, name);
        if shared.evidence_starts(now_ms) {
            let since_ms = shared.evidence_since_ms();
            for cell in self.cells.values() {
                let mut context = (*cell.context()).clone();
                context.terms.evidence_since_ms = since_ms;
                cell.set_context(now_ms, context);
            }
        }
        let process = ProcessRow { name: name.into(), heard_ms: now_ms };
        write(shared, Kind::Process, incarnation, "", &process);
        self.processes.insert(incarnation, process);
        self.set_owners(now_ms);
    }

    pub(super) fn replica_vouch(
        &mut self,
        now_ms: Millis,
        incarnation: u32,
        keys: BTreeMap<Box<str>, ReportKey>,
        awaited: BTreeMap<Box<str>, u64>,
    ) {
        self.replicas.vouch(now_ms, incarnation, keys, awaited);
    }

    /// A replica is connected, and its full state is to come. When it was last heard.
    pub(super) fn replica_connects(
        &mut self,
        now_ms: Millis,
        incarnation: u32,
        name: &str,
    ) -> Millis {
        let heard_ms = self.replicas.connects(now_ms, incarnation, name);
        self.set_owners(now_ms);
        heard_ms
    }

    /// A replica lives.
    pub(super) fn replica_heard(&mut self, now_ms: Millis, incarnation: u32) {
        self.replicas.heard(now_ms, incarnation);
    }

    /// Every change that anything is known of.
    pub(super) fn cells(&self) -> impl Iterator<Item = &Arc<Cell>> {
        self.cells.values()
    }

    pub(super) fn replica_bye(
        &mut self,
        shared: &Arc<Shared>,
        now_ms: Millis,
        incarnation: u32,
        said: bool,
    ) {
        if incarnation != shared.settings.incarnation {
            self.replicas.bye(now_ms, incarnation, said);
            self.set_owners(now_ms);
        }
    }

    fn set_owners(&mut self, now_ms: Millis) {
        let owners = self.replicas.owners();
        let affected = owners.affects(&self.owners);
        if affected == Affected::Of(Vec::new()) {
            return;
        }
        self.owners = Arc::new(owners);
        for cell in &self.head {
            let context = Context { owners: Arc::clone(&self.owners), ..(*cell.context()).clone() };
            cell.set_context_of(now_ms, context, &affected);
        }
    }

    /// Notes that this process lives, and forgets those that ended long ago.
    fn note_process(&mut self, shared: &Arc<Shared>, now_ms: Millis) {
        let Some(store) = &shared.store else { return };
        self.noted_ms = now_ms;
        let process = ProcessRow { name: shared.settings.replica.clone(), heard_ms: now_ms };
        let incarnation = shared.settings.incarnation;
        write(shared, Kind::Process, incarnation, "", &process);
        self.processes.insert(incarnation, process);
        for (incarnation, process) in &mut self.processes {
            // Whoever reports is told apart from whoever had ended before by when it was heard.
            if let Some(heard_ms) = self.replicas.reporting_heard(*incarnation)
                && *incarnation != shared.settings.incarnation
            {
                process.heard_ms = heard_ms;
                write(shared, Kind::Process, *incarnation, "", process);
            }
        }
        self.processes.retain(|incarnation, process| {
            let keep = now_ms < process.heard_ms.saturating_add(DORMANT_MS);
            if !keep {
                store.drop_row(row_key(Kind::Process, *incarnation, ""));
            }
            keep
        });
    }
}

/// The content that a Rollout stages; the base's where that is no candidate.
fn candidate(tier: &TierEntry) -> ContentHash {
    tier.candidate.as_ref().map_or(tier.base.content, |candidate| candidate.offer.content)
}

fn millis(span: std::time::Duration) -> Millis {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn write(shared: &Shared, kind: Kind, number: u32, rollout: &str, row: &impl serde::Serialize) {
    let Some(store) = &shared.store else { return };
    match serde_json::to_vec(row) {
        Ok(value) => store.put_row(row_key(kind, number, rollout), value, false),
        Err(error) => tracing::error!(%error, "a row of the store cannot be encoded"),
    }
}
