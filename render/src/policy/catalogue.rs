//! The Catalogue: which components a collector distribution has, and how stable they are
//! (estate.md 1.11).

mod read;

use std::collections::BTreeMap;

use self::read::Reader;
use crate::estate::Class;
use crate::problem::Refusal;

/// How far a component has come for one signal. The ladder is `development` < `alpha` < `beta` <
/// `stable`; the other two are off it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stability {
    /// Rung 1.
    Development,
    /// Rung 2.
    Alpha,
    /// Rung 3.
    Beta,
    /// Rung 4.
    Stable,
    /// Off the ladder.
    Deprecated,
    /// Off the ladder.
    Unmaintained,
}

impl Stability {
    const ALL: [Self; 6] = [
        Self::Development,
        Self::Alpha,
        Self::Beta,
        Self::Stable,
        Self::Deprecated,
        Self::Unmaintained,
    ];

    /// As in the Catalogue.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Development => "development",
            Self::Alpha => "alpha",
            Self::Beta => "beta",
            Self::Stable => "stable",
            Self::Deprecated => "deprecated",
            Self::Unmaintained => "unmaintained",
        }
    }

    /// 1 to 4, or `None` off the ladder.
    pub fn rung(self) -> Option<u8> {
        match self {
            Self::Development => Some(1),
            Self::Alpha => Some(2),
            Self::Beta => Some(3),
            Self::Stable => Some(4),
            Self::Deprecated | Self::Unmaintained => None,
        }
    }
}

/// The notice that a deprecated signal must carry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deprecation {
    /// When, as written; may be empty.
    pub date: String,
    /// What to do.
    pub migration: String,
}

/// One component of the distribution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogueComponent {
    /// Its class.
    pub class: Class,
    /// Its type, the part of an id before `/`.
    pub kind: String,
    /// The name it used to have, which still works.
    pub deprecated_type: Option<String>,
    /// Go module.
    pub module: String,
    /// For people; may be empty.
    pub display_name: String,
    /// For people; may be empty.
    pub description: String,
    /// Signal (`traces`, `traces_to_metrics`, `extension`, …) to level.
    pub stability: BTreeMap<String, Stability>,
    /// Signal to notice.
    pub deprecation: BTreeMap<String, Deprecation>,
}

/// All components of one distribution, sorted by class and type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Catalogue {
    /// Where it was imported from.
    pub repository: String,
    /// Such as `v0.158.0`.
    pub reference: String,
    /// Its commit, if known.
    pub commit: Option<String>,
    components: Vec<CatalogueComponent>,
    by_type: BTreeMap<Class, BTreeMap<String, usize>>,
}

impl Catalogue {
    /// Reads a Catalogue; `file` is what error texts call it.
    ///
    /// Strict, with every fault collected, but as lenient as the reference in two ways: keys match
    /// without regard to case, and of a repeated key the last one wins.
    pub fn parse(bytes: &[u8], file: &str) -> Result<Self, Refusal> {
        Reader::read(bytes, file)
            .map_err(|problems| Refusal { header: "invalid catalogue:".to_owned(), problems })
    }

    /// Sorted by class (by its name) and type.
    pub fn components(&self) -> &[CatalogueComponent] {
        &self.components
    }

    /// Index into [`Self::components`] of a type or, failing that, of its alias.
    pub fn find(&self, class: Class, kind: &str) -> Option<usize> {
        self.by_type.get(&class)?.get(kind).copied()
    }

    /// The component of a type or of its alias.
    pub fn get(&self, class: Class, kind: &str) -> Option<&CatalogueComponent> {
        self.components.get(self.find(class, kind)?)
    }
}
