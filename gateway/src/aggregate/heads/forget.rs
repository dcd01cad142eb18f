//! What left head sleeps, and is forgotten in the end.

use std::collections::BTreeSet;
use std::sync::Arc;

use render::rollout::evidence::{EvidenceKey, Millis};
use render::snapshot::Snapshot;

use super::{DORMANT_CELLS_MAX, DORMANT_MS, Judging, write};
use crate::aggregate::Shared;
use crate::aggregate::store::{Kind, row_key};

impl Judging {
    /// What is not in head sleeps.
    pub(super) fn retire(&mut self, shared: &Arc<Shared>, now_ms: Millis, snapshot: &Snapshot) {
        let in_head: BTreeSet<u32> = self.head.iter().map(|cell| cell.number()).collect();
        for cell in self.cells.values().filter(|cell| !in_head.contains(&cell.number())) {
            let mut state = cell.state();
            if state.row.left_ms.is_none() {
                state.row.left_ms = Some(now_ms);
                state.retire();
                cell.set_convergence(None);
                cell.write_row(&state, false);
                drop(state);
                cell.drop_idle();
            }
        }
        let known: BTreeSet<&str> =
            snapshot.rollouts.iter().map(|compiled| &*compiled.rollout.id).collect();
        for (rollout, sight) in &mut self.sights {
            if !known.contains(&**rollout) && sight.left_ms.is_none() {
                sight.left_ms = Some(now_ms);
                write(shared, Kind::Sight, 0, rollout, sight);
            }
        }
        self.forget(shared, now_ms);
    }

    /// What slept long enough is forgotten.
    pub(super) fn forget(&mut self, shared: &Arc<Shared>, now_ms: Millis) {
        let over = |left_ms: Option<Millis>| {
            left_ms.is_some_and(|left_ms| now_ms >= left_ms.saturating_add(DORMANT_MS))
        };
        let mut asleep: Vec<(Millis, EvidenceKey)> = Vec::new();
        self.cells.retain(|key, cell| {
            let mut state = cell.state();
            let brakes = state.row.brakes.len();
            state.row.brakes.retain(|_, brake| !over(brake.left_ms));
            if state.row.brakes.len() != brakes {
                cell.write_row(&state, false);
            }
            let Some(left_ms) = state.row.left_ms else { return true };
            if over(Some(left_ms)) {
                if let Some(store) = &shared.store {
                    store.drop_cell(cell.number());
                }
                return false;
            }
            asleep.push((left_ms, key.clone()));
            true
        });
        if asleep.len() > DORMANT_CELLS_MAX {
            asleep.sort_unstable();
            for (_, key) in asleep.drain(..asleep.len() - DORMANT_CELLS_MAX) {
                let Some(cell) = self.cells.remove(&key) else { continue };
                tracing::warn!(
                    rollout = &*key.rollout,
                    "too many changes left head within a week: its evidence is forgotten"
                );
                if let Some(store) = &shared.store {
                    store.drop_cell(cell.number());
                }
            }
        }
        self.sights.retain(|rollout, sight| {
            let keep = !over(sight.left_ms);
            if let Some(store) = shared.store.as_ref().filter(|_| !keep) {
                store.drop_row(row_key(Kind::Sight, 0, rollout));
            }
            keep
        });
    }
}
