//! What a team may place: the Catalogue, allow-lists, grants, and the palette they leave
//! (estate.md 1.5 and 1.11).

mod catalogue;
mod json;
mod lists;
mod palette;
mod pattern;

pub use catalogue::{Catalogue, CatalogueComponent, Deprecation, Stability};
pub use lists::{AllowList, Grant, Policy};
pub use palette::{Origin, Palette, Palettes};
pub use pattern::{Pattern, PatternError};

#[cfg(test)]
mod tests;
