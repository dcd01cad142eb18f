//! Who has to be looked at when: a number in a list per tick, four bytes for each collector.

use std::collections::BTreeMap;

use crate::clock::{Micros, micros};
use crate::wheel::TICK;

/// Numbers of collectors by tick.
#[derive(Debug, Default)]
pub(super) struct Calendar {
    slots: BTreeMap<u32, Vec<u32>>,
}

/// The tick for which a collector has an entry that is no later than its deadline; 0 is none.
pub(super) type Armed = u32;

impl Calendar {
    /// Sees to it that `index` comes up no later than a tick after `deadline`. An earlier entry
    /// does: the collector is looked at then and entered again.
    pub(super) fn arm(&mut self, index: u32, armed: &mut Armed, deadline: Micros) {
        let tick = tick(deadline).saturating_add(1);
        if *armed == 0 || *armed > tick {
            *armed = tick;
            self.slots.entry(tick).or_default().push(index);
        }
    }

    /// Takes out everything that has come up; the caller clears what each is armed for, unless that
    /// is later than `now`: then the entry is a stale one.
    pub(super) fn take_due(&mut self, now: Micros) -> Vec<Vec<u32>> {
        let mut due = Vec::new();
        while let Some(first) = self.slots.first_entry()
            && *first.key() <= tick(now)
        {
            due.push(first.remove());
        }
        due
    }

    /// When the first entry comes up.
    pub(super) fn next_due(&self) -> Option<Micros> {
        let (first, _) = self.slots.first_key_value()?;
        Some(Micros::from(*first).saturating_mul(micros(TICK)))
    }

    /// The tick that a time belongs to.
    pub(super) fn tick_of(now: Micros) -> u32 {
        tick(now)
    }
}

/// 2³² ticks of 20 ms are more than two years.
fn tick(at: Micros) -> u32 {
    u32::try_from(at / micros(TICK)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_comes_up_at_its_tick_and_not_before() {
        let (mut calendar, mut armed) = (Calendar::default(), 0);
        calendar.arm(3, &mut armed, 100_000);
        assert_eq!(calendar.next_due(), Some(120_000));
        assert!(calendar.take_due(119_999).is_empty());
        assert_eq!(calendar.take_due(120_000), [[3]]);
        assert_eq!(calendar.next_due(), None);
    }

    #[test]
    fn a_later_deadline_needs_no_second_entry_and_a_closer_one_does() {
        let (mut calendar, mut armed) = (Calendar::default(), 0);
        calendar.arm(1, &mut armed, 500_000);
        calendar.arm(1, &mut armed, 900_000);
        calendar.arm(1, &mut armed, 100_000);
        assert_eq!(calendar.take_due(2_000_000), [[1], [1]]);
    }
}
