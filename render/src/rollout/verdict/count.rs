//! How what records mean is counted.

use super::{Counts, Tally};
use crate::rollout::evidence::{Class, Reading, Seat};

impl Counts {
    /// Takes in a record that counts.
    pub fn add(&mut self, class: &Class) {
        self.each(class, |count| *count += 1);
    }

    /// Takes in as many records of one class.
    pub fn add_many(&mut self, class: &Class, records: u64) {
        self.each(class, |count| *count += records);
    }

    /// Takes out a record that was taken in as this.
    pub fn remove(&mut self, class: &Class) {
        self.each(class, |count| {
            debug_assert!(*count > 0, "what is taken out was taken in");
            *count = count.saturating_sub(1);
        });
    }

    /// Adds another row, up to the largest number there is.
    pub fn add_all(&mut self, other: &Self) {
        let Self { seen, taking, to, from, other: others, unknown, failed, dark, unobserved, left } =
            other;
        self.seen = self.seen.saturating_add(*seen);
        self.taking = self.taking.saturating_add(*taking);
        self.to = self.to.saturating_add(*to);
        self.from = self.from.saturating_add(*from);
        self.other = self.other.saturating_add(*others);
        self.unknown = self.unknown.saturating_add(*unknown);
        self.failed = self.failed.saturating_add(*failed);
        self.dark = self.dark.saturating_add(*dark);
        self.unobserved = self.unobserved.saturating_add(*unobserved);
        self.left = self.left.saturating_add(*left);
    }

    fn each(&mut self, class: &Class, mut change: impl FnMut(&mut u64)) {
        change(&mut self.seen);
        change(match class.arm {
            Reading::Taking => &mut self.taking,
            Reading::To => &mut self.to,
            Reading::From => &mut self.from,
            Reading::Other => &mut self.other,
            Reading::Unknown => &mut self.unknown,
        });
        for (holds, count) in [
            (class.failed, &mut self.failed),
            (class.dark, &mut self.dark),
            (class.unobserved, &mut self.unobserved),
            (class.left, &mut self.left),
        ] {
            if holds {
                change(count);
            }
        }
    }
}

impl Tally {
    /// Nothing counted yet, with a row for each of the stages `0..=stage`.
    pub fn new(stage: u32) -> Self {
        let rows = stage as usize + 1;
        Self { stages: vec![Counts::default(); rows], ..Self::default() }
    }

    /// Takes in a record; one that does not count changes nothing.
    pub fn add(&mut self, class: &Class) {
        self.each(class, Counts::add, |count| *count += 1);
    }

    /// Takes in as many records of one class.
    pub fn add_many(&mut self, class: &Class, records: u64) {
        let row = |row: &mut Counts, class: &Class| row.add_many(class, records);
        self.each(class, row, |count| *count += records);
    }

    /// Takes out a record that was taken in as this.
    pub fn remove(&mut self, class: &Class) {
        self.each(class, Counts::remove, |count| {
            debug_assert!(*count > 0, "what is taken out was taken in");
            *count = count.saturating_sub(1);
        });
    }

    /// All served members.
    pub fn members(&self) -> Counts {
        let mut sum = Counts::default();
        self.stages.iter().for_each(|row| sum.add_all(row));
        sum
    }

    fn each(
        &mut self,
        class: &Class,
        change_row: impl Fn(&mut Counts, &Class),
        change: impl Fn(&mut u64),
    ) {
        if !class.counts {
            return;
        }
        match class.seat {
            Seat::Stage(_) if class.foreign => change_row(&mut self.foreign, class),
            Seat::Stage(stage) => {
                if let Some(row) = self.stages.get_mut(usize::from(stage)) {
                    change_row(row, class);
                    change(&mut self.served_in_tier);
                    if class.taken {
                        change(&mut self.taken);
                    }
                    if class.long_dark {
                        change(&mut self.long_dark);
                    }
                }
            }
            Seat::Control => {
                change(&mut self.served_in_tier);
                change(&mut self.control.seen);
                if class.control_dark {
                    change(&mut self.control.dark);
                }
                if class.unobserved {
                    change(&mut self.control.unobserved);
                }
            }
            Seat::Outside => {}
        }
    }
}
