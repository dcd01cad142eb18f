//! Series that come and go with a head, and histograms of fixed size.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::labels::Label;
use super::names::Definition;

/// Label values, in the order of the definition, to the series.
type Series<C> = BTreeMap<Box<[Box<str>]>, Arc<C>>;
type Cells<C> = Mutex<Series<C>>;

/// A counter whose label values are only known at run time.
///
/// Take the [`CounterCell`] once (when a snapshot is compiled, when a link begins) and keep it:
/// [`CounterFamily::cell`] locks.
#[derive(Debug)]
pub struct CounterFamily {
    definition: &'static Definition,
    cells: Cells<AtomicU64>,
}

/// A handle on one series; cloning shares it.
#[derive(Clone, Debug)]
pub struct CounterCell(Arc<AtomicU64>);

impl CounterCell {
    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }
}

impl CounterFamily {
    pub(super) fn new(definition: &'static Definition) -> Self {
        Self { definition, cells: Cells::default() }
    }

    /// The series with these label values, in the order of the definition; made when new.
    pub fn cell(&self, labels: &[&str]) -> CounterCell {
        CounterCell(cell(&self.cells, self.definition, labels))
    }

    /// Adds one to a series that is too rare to keep a handle of.
    pub fn count(&self, labels: &[&str]) {
        self.cell(labels).add(1);
    }

    /// Forgets the series that `keep` refuses; handles on them count into the void.
    pub fn retain(&self, keep: impl Fn(&[Box<str>]) -> bool) {
        lock(&self.cells).retain(|labels, _| keep(labels));
    }

    /// What the series with these label values stands at; 0 when there is none.
    pub fn value(&self, labels: &[&str]) -> u64 {
        let key: Box<[Box<str>]> = labels.iter().map(|value| Box::from(*value)).collect();
        lock(&self.cells).get(&key).map_or(0, |cell| cell.load(Ordering::Relaxed))
    }

    pub(super) fn render(&self, out: &mut String) {
        let cells = lock(&self.cells);
        if cells.is_empty() {
            return;
        }
        header(self.definition, out);
        for (labels, cell) in cells.iter() {
            let value = cell.load(Ordering::Relaxed);
            sample(out, self.definition.name, self.definition.labels, labels, &value.to_string());
        }
    }
}

/// A gauge whose label values are only known at run time; a cell at zero is left out when it was
/// made by [`GaugeFamily::tally`].
#[derive(Debug)]
pub struct GaugeFamily {
    definition: &'static Definition,
    cells: Cells<GaugeInner>,
}

/// The bits of an `f64`, and whether a zero is worth a line.
#[derive(Debug, Default)]
struct GaugeInner {
    bits: AtomicU64,
    hide_zero: std::sync::atomic::AtomicBool,
}

/// A handle on one series; cloning shares it.
#[derive(Clone, Debug)]
pub struct GaugeCell(Arc<GaugeInner>);

impl GaugeCell {
    /// Sets it.
    pub fn set(&self, value: f64) {
        self.0.bits.store(value.to_bits(), Ordering::Relaxed);
    }

    /// Adds `delta`, which may be negative.
    pub fn add(&self, delta: f64) {
        let mut seen = self.0.bits.load(Ordering::Relaxed);
        loop {
            let next = (f64::from_bits(seen) + delta).to_bits();
            let swap =
                self.0.bits.compare_exchange_weak(seen, next, Ordering::Relaxed, Ordering::Relaxed);
            match swap {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// What it stands at.
    pub fn get(&self) -> f64 {
        f64::from_bits(self.0.bits.load(Ordering::Relaxed))
    }
}

impl GaugeFamily {
    pub(super) fn new(definition: &'static Definition) -> Self {
        Self { definition, cells: Cells::default() }
    }

    /// The series with these label values, shown even at zero.
    pub fn cell(&self, labels: &[&str]) -> GaugeCell {
        GaugeCell(cell(&self.cells, self.definition, labels))
    }

    /// The series with these label values, shown only while it is not zero: a population's cell.
    pub fn tally(&self, labels: &[&str]) -> GaugeCell {
        let handle = self.cell(labels);
        handle.0.hide_zero.store(true, Ordering::Relaxed);
        handle
    }

    /// Replaces every series: what a head change does.
    pub fn replace<'l>(&self, series: impl IntoIterator<Item = (&'l [&'l str], f64)>) {
        let fresh = Cells::default();
        for (labels, value) in series {
            GaugeCell(cell(&fresh, self.definition, labels)).set(value);
        }
        let fresh = fresh.into_inner().unwrap_or_else(PoisonError::into_inner);
        *lock(&self.cells) = fresh;
    }

    /// Forgets the series that `keep` refuses; handles on them count into the void.
    pub fn retain(&self, keep: impl Fn(&[Box<str>]) -> bool) {
        lock(&self.cells).retain(|labels, _| keep(labels));
    }

    pub(super) fn render(&self, out: &mut String) {
        let cells = lock(&self.cells);
        let mut shown = cells
            .iter()
            .map(|(labels, cell)| (labels, GaugeCell(Arc::clone(cell)).get(), cell))
            .filter(|(_, value, cell)| *value != 0.0 || !cell.hide_zero.load(Ordering::Relaxed))
            .peekable();
        if shown.peek().is_none() {
            return;
        }
        header(self.definition, out);
        for (labels, value, _) in shown {
            sample(out, self.definition.name, self.definition.labels, labels, &value.to_string());
        }
    }
}

/// Cumulative buckets over fixed bounds: one relaxed add per observation, no memory that grows.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [f64],
    /// One per bound, and one past the last.
    buckets: Box<[AtomicU64]>,
    sum_nanos: AtomicU64,
}

impl Histogram {
    pub(super) fn new(bounds: &'static [f64]) -> Self {
        let buckets = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, buckets, sum_nanos: AtomicU64::new(0) }
    }

    /// Counts one observation.
    pub fn record(&self, took: std::time::Duration) {
        let seconds = took.as_secs_f64();
        let bucket = self.bounds.iter().position(|bound| seconds <= *bound);
        self.buckets[bucket.unwrap_or(self.bounds.len())].fetch_add(1, Ordering::Relaxed);
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.sum_nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    pub(super) fn render(&self, definition: &Definition, out: &mut String) {
        header(definition, out);
        self.series(definition.name, &[], &[], out);
    }

    fn series(&self, name: &str, names: &[&str], values: &[Box<str>], out: &mut String) {
        let bucket_names: Vec<&str> = names.iter().copied().chain(["le"]).collect();
        let bucket_name = format!("{name}_bucket");
        let mut total = 0;
        for (index, bucket) in self.buckets.iter().enumerate() {
            total += bucket.load(Ordering::Relaxed);
            let le = self.bounds.get(index).map_or_else(|| "+Inf".to_owned(), f64::to_string);
            let labels: Vec<Box<str>> = values.iter().cloned().chain([le.into()]).collect();
            sample(out, &bucket_name, &bucket_names, &labels, &total.to_string());
        }
        let sum = std::time::Duration::from_nanos(self.sum_nanos.load(Ordering::Relaxed));
        sample(out, &format!("{name}_sum"), names, values, &sum.as_secs_f64().to_string());
        sample(out, &format!("{name}_count"), names, values, &total.to_string());
    }
}

/// A [`Histogram`] per value of a closed label.
#[derive(Debug)]
pub struct HistogramFamily<L> {
    definition: &'static Definition,
    histograms: Box<[Histogram]>,
    label: PhantomData<fn(L)>,
}

impl<L: Label> HistogramFamily<L> {
    pub(super) fn new(definition: &'static Definition, bounds: &'static [f64]) -> Self {
        let histograms = L::all().iter().map(|_| Histogram::new(bounds)).collect();
        Self { definition, histograms, label: PhantomData }
    }

    /// The histogram of `value`.
    pub fn get(&self, value: L) -> &Histogram {
        &self.histograms[value.index()]
    }

    pub(super) fn render(&self, out: &mut String) {
        header(self.definition, out);
        for value in L::all() {
            let labels = [Box::from(value.label())];
            self.get(*value).series(self.definition.name, self.definition.labels, &labels, out);
        }
    }
}

/// A metric without labels that is read when it is asked for.
pub(super) fn write_single(definition: &Definition, value: f64, out: &mut String) {
    header(definition, out);
    sample(out, definition.name, definition.labels, &[], &value.to_string());
}

/// [`Histogram`]s whose label values are only known at run time.
#[derive(Debug)]
pub struct HistogramSeries {
    definition: &'static Definition,
    bounds: &'static [f64],
    cells: Cells<Histogram>,
}

impl HistogramSeries {
    pub(super) fn new(definition: &'static Definition, bounds: &'static [f64]) -> Self {
        Self { definition, bounds, cells: Cells::default() }
    }

    /// The histogram with these label values, in the order of the definition; made when new. Keep
    /// it: this locks.
    pub fn cell(&self, labels: &[&str]) -> Arc<Histogram> {
        debug_assert_eq!(labels.len(), self.definition.labels.len(), "{}", self.definition.name);
        let key = labels.iter().map(|value| Box::from(*value)).collect();
        let mut cells = lock(&self.cells);
        Arc::clone(cells.entry(key).or_insert_with(|| Arc::new(Histogram::new(self.bounds))))
    }

    /// Forgets the series that `keep` refuses; handles on them count into the void.
    pub fn retain(&self, keep: impl Fn(&[Box<str>]) -> bool) {
        lock(&self.cells).retain(|labels, _| keep(labels));
    }

    pub(super) fn render(&self, out: &mut String) {
        let cells = lock(&self.cells);
        if cells.is_empty() {
            return;
        }
        header(self.definition, out);
        for (labels, histogram) in cells.iter() {
            histogram.series(self.definition.name, self.definition.labels, labels, out);
        }
    }
}

fn cell<C: Default>(cells: &Cells<C>, definition: &Definition, labels: &[&str]) -> Arc<C> {
    debug_assert_eq!(labels.len(), definition.labels.len(), "{}", definition.name);
    let key = labels.iter().map(|value| Box::from(*value)).collect();
    Arc::clone(lock(cells).entry(key).or_default())
}

/// A panic elsewhere leaves these maps whole: each change is one insert or removal.
fn lock<C>(cells: &Cells<C>) -> MutexGuard<'_, Series<C>> {
    cells.lock().unwrap_or_else(PoisonError::into_inner)
}

fn header(definition: &Definition, out: &mut String) {
    let Definition { name, kind, help, .. } = definition;
    // Writing into a String cannot fail.
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {}", kind.word());
}

fn sample(out: &mut String, name: &str, names: &[&str], values: &[Box<str>], value: &str) {
    out.push_str(name);
    for (index, (label, text)) in names.iter().zip(values).enumerate() {
        out.push(if index == 0 { '{' } else { ',' });
        out.push_str(label);
        out.push_str("=\"");
        for c in text.chars() {
            match c {
                '\\' => out.push_str("\\\\"),
                '"' => out.push_str("\\\""),
                '\n' => out.push_str("\\n"),
                _ => out.push(c),
            }
        }
        out.push('"');
    }
    if !names.is_empty() {
        out.push('}');
    }
    out.push(' ');
    out.push_str(value);
    out.push('\n');
}
