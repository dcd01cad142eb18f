//! What a team may place, and why: allow-lists and grants from the root down (estate.md 1.5).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::catalogue::{Catalogue, CatalogueComponent};
use super::lists::{Grant, Policy};
use super::pattern::Pattern;
use crate::estate::Teams;

/// Why a component is in a palette.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin<'p> {
    /// No list on the chain.
    DefaultAllow,
    /// Every list on the chain has it.
    AllowList,
    /// A list dropped it and this grant brought it back.
    Grant(&'p Grant),
}

/// Palettes of all teams, worked out once; the cost grows with teams, not with who asks.
pub struct Palettes<'p> {
    catalogue: &'p Catalogue,
    grants: &'p [Grant],
    by_team: BTreeMap<&'p str, Arc<[Mark]>>,
}

/// The palette of one team.
pub struct Palette<'a, 'p> {
    palettes: &'a Palettes<'p>,
    marks: &'a [Mark],
}

/// Per Catalogue component: dropped, allowed so far, or granted by (index into the grants).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    Dropped,
    Default,
    Listed,
    Granted(u32),
}

impl<'p> Palettes<'p> {
    /// Resolves every team of the tree, each from its parent's result.
    pub fn resolve(teams: &'p Teams, policy: &'p Policy, catalogue: &'p Catalogue) -> Self {
        let mut children: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let mut ready: Vec<(&str, Arc<[Mark]>)> = Vec::new();
        let everything: Arc<[Mark]> = vec![Mark::Default; catalogue.components().len()].into();
        for team in teams.by_id.values() {
            match &team.parent {
                Some(parent) => children.entry(parent).or_default().push(&team.id),
                None => ready.push((&team.id, everything.clone())),
            }
        }
        let mut by_team = BTreeMap::new();
        while let Some((team, inherited)) = ready.pop() {
            let own = own_marks(policy, catalogue, team, inherited);
            for child in children.get(team).into_iter().flatten() {
                ready.push((child, own.clone()));
            }
            by_team.insert(team, own);
        }
        Self { catalogue, grants: &policy.grants, by_team }
    }

    /// The palette of a team; `None` for a team that is not in the tree.
    pub fn of(&self, team: &str) -> Option<Palette<'_, 'p>> {
        self.by_team.get(team).map(|marks| Palette { palettes: self, marks })
    }
}

impl<'p> Palette<'_, 'p> {
    /// Why a type or its alias may be placed; `None` when it may not, or is not in the Catalogue.
    pub fn origin(&self, class: crate::estate::Class, kind: &str) -> Option<Origin<'p>> {
        self.origin_at(self.palettes.catalogue.find(class, kind)?)
    }

    /// What may be placed, in Catalogue order.
    pub fn allowed(&self) -> impl Iterator<Item = (&'p CatalogueComponent, Origin<'p>)> + '_ {
        let components = self.palettes.catalogue.components().iter().enumerate();
        components.filter_map(|(index, component)| Some((component, self.origin_at(index)?)))
    }

    fn origin_at(&self, index: usize) -> Option<Origin<'p>> {
        match self.marks.get(index)? {
            Mark::Dropped => None,
            Mark::Default => Some(Origin::DefaultAllow),
            Mark::Listed => Some(Origin::AllowList),
            Mark::Granted(grant) => self.palettes.grants.get(*grant as usize).map(Origin::Grant),
        }
    }
}

fn own_marks(
    policy: &Policy,
    catalogue: &Catalogue,
    team: &str,
    inherited: Arc<[Mark]>,
) -> Arc<[Mark]> {
    let list = policy.lists.get(team);
    let grants = policy.grants_to(team);
    if list.is_none() && grants.is_empty() {
        return inherited;
    }
    let mark = |(mark, component): (&Mark, &CatalogueComponent)| {
        let kept = match (list, mark) {
            (_, Mark::Dropped) => Mark::Dropped,
            (None, kept) => *kept,
            (Some(list), _) if !selects(&list.allow, component) => Mark::Dropped,
            // A list below a grant keeps what the grant brought in; its origin stays the grant.
            (Some(_), Mark::Granted(grant)) => Mark::Granted(*grant),
            (Some(_), Mark::Default | Mark::Listed) => Mark::Listed,
        };
        if kept != Mark::Dropped {
            return kept;
        }
        let grant = grants.iter().find(|grant| {
            policy.grants.get(**grant as usize).is_some_and(|g| selects(&g.adds, component))
        });
        grant.map_or(Mark::Dropped, |grant| Mark::Granted(*grant))
    };
    inherited.iter().zip(catalogue.components()).map(mark).collect()
}

/// A pattern is tried against the type and against the alias.
pub(super) fn selects(patterns: &[Pattern], component: &CatalogueComponent) -> bool {
    patterns.iter().any(|pattern| {
        pattern.selects(component.class, &component.kind)
            || component
                .deprecated_type
                .as_deref()
                .is_some_and(|alias| pattern.selects(component.class, alias))
    })
}
