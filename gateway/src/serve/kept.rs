//! The attribute values that a link keeps of an agent, so that a new head is decided without asking.

use render::attrs::{Slots, Symbol};

/// Bytes of attribute values kept per agent, lengths included. Host names and instance ids take a
/// hundred; a million agents at the limit take 4 GiB.
pub const KEPT_BYTES_MAX: usize = 4 * 1024;

/// In place of a length: the agent reports no string under that name.
const ABSENT: u16 = u16::MAX;

/// An agent's values for one set of attribute names, packed into one allocation: a length for each
/// name in order, then the values one after the other. Which set it is, its owner remembers.
#[derive(Debug, Default)]
pub(super) struct Kept {
    packed: Box<[u8]>,
}

/// The values that head mentions are too long together to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the attribute values that matter here have {bytes} bytes together, past the limit of {KEPT_BYTES_MAX}"
)]
pub(super) struct TooLong {
    bytes: usize,
}

impl Kept {
    /// Whether these values can be kept.
    pub(super) fn check(slots: &Slots<'_>) -> Result<(), TooLong> {
        let bytes = packed_len(slots);
        if bytes > KEPT_BYTES_MAX { Err(TooLong { bytes }) } else { Ok(()) }
    }

    /// Keeps `slots`, which [`Kept::check`] has seen. Allocates only when they take another number
    /// of bytes than what is kept already.
    pub(super) fn store(&mut self, slots: &Slots<'_>) {
        let bytes = packed_len(slots);
        if bytes != self.packed.len() {
            self.packed = vec![0; bytes].into_boxed_slice();
        }
        let (lengths, mut rest) = self.packed.split_at_mut(2 * slots.values().len());
        for (length, value) in lengths.chunks_exact_mut(2).zip(slots.values()) {
            let value = value.map(str::as_bytes);
            let len = value.map_or(ABSENT, |value| value.len() as u16);
            length.copy_from_slice(&len.to_le_bytes());
            let (place, behind) = rest.split_at_mut(value.map_or(0, <[u8]>::len));
            place.copy_from_slice(value.unwrap_or_default());
            rest = behind;
        }
    }

    /// What is kept, in the order of the set's names: `names` of them.
    pub(super) fn values(&self, names: usize) -> impl Iterator<Item = Option<&str>> {
        let (lengths, mut rest) = self.packed.split_at(self.packed.len().min(2 * names));
        lengths.chunks_exact(2).map(move |length| {
            let len = u16::from_le_bytes([length[0], length[1]]);
            if len == ABSENT {
                return None;
            }
            let (value, behind) = rest.split_at_checked(usize::from(len))?;
            rest = behind;
            str::from_utf8(value).ok()
        })
    }

    /// Fills `slots` of another set of names: `from` says, for each of its symbols, which one of
    /// this set it is, ascending.
    pub(super) fn fill<'k>(&'k self, slots: &mut Slots<'k>, names: usize, from: &[Symbol]) {
        let mut wanted = (0..).zip(from).peekable();
        for (symbol, value) in (0..).zip(self.values(names)) {
            if let Some((to, _)) = wanted.next_if(|(_, from)| **from == symbol) {
                slots.set(to, value);
            }
        }
    }
}

fn packed_len(slots: &Slots<'_>) -> usize {
    slots.values().iter().map(|value| 2 + value.map_or(0, str::len)).sum()
}

const _: () = assert!(KEPT_BYTES_MAX < ABSENT as usize);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use render::attrs::Symbols;

    fn values() -> impl Strategy<Value = Vec<Option<String>>> {
        prop::collection::vec(prop::option::of(".{0,12}"), 0..80)
    }

    fn symbols(count: usize) -> Symbols {
        let names: Vec<String> = (0..count).map(|n| format!("attribute.{n:03}")).collect();
        Symbols::new(names.iter().map(String::as_str))
    }

    fn slots<'v>(symbols: &Symbols, values: &'v [Option<String>]) -> Slots<'v> {
        let mut slots = Slots::new(symbols);
        for (symbol, value) in (0..).zip(values) {
            slots.set(symbol, value.as_deref());
        }
        slots
    }

    proptest! {
        #[test]
        fn what_is_stored_comes_back(first in values(), second in values()) {
            let mut kept = Kept::default();
            for values in [&first, &second] {
                let symbols = symbols(values.len());
                let slots = slots(&symbols, values);
                kept.store(&slots);
                let back: Vec<_> = kept.values(values.len()).collect();
                prop_assert_eq!(&back[..], slots.values());
            }
        }

        #[test]
        fn fewer_names_are_filled_from_more(values in values(), picks in any::<u64>()) {
            let all = symbols(values.len());
            let mut kept = Kept::default();
            kept.store(&slots(&all, &values));
            let from: Vec<Symbol> =
                (0..values.len() as u32).filter(|n| picks >> (n % 64) & 1 == 1).collect();
            let fewer = Symbols::new(from.iter().filter_map(|symbol| all.name(*symbol)));
            let mut filled = Slots::new(&fewer);
            kept.fill(&mut filled, values.len(), &from);
            for (to, from) in (0..).zip(&from) {
                prop_assert_eq!(filled.get(to), values[*from as usize].as_deref());
            }
        }
    }

    #[test]
    fn an_empty_value_is_kept_apart_from_none() {
        let values = [Some(String::new()), None, Some("x".into())];
        let symbols = symbols(3);
        let mut kept = Kept::default();
        kept.store(&slots(&symbols, &values));
        assert_eq!(kept.values(3).collect::<Vec<_>>(), [Some(""), None, Some("x")]);
    }

    #[test]
    fn values_past_the_limit_are_refused() {
        let symbols = symbols(2);
        let fits = [Some("x".repeat(KEPT_BYTES_MAX - 4)), None];
        assert_eq!(Kept::check(&slots(&symbols, &fits)), Ok(()));
        let over = [Some("x".repeat(KEPT_BYTES_MAX - 4)), Some("y".into())];
        assert!(Kept::check(&slots(&symbols, &over)).is_err());
    }
}
