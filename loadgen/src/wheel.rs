//! One timer for all collectors: a coarse wheel that wakes tasks, so that a heartbeat costs a waker
//! in a list and no timer of its own.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::clock::{Clock, Micros, micros};

/// How coarse the wheel is: what a heartbeat may be late by design.
pub(crate) const TICK: Duration = Duration::from_millis(20);

/// Tasks by the tick at which they want to be woken.
#[derive(Debug, Default)]
pub(crate) struct Wheel {
    slots: Mutex<BTreeMap<u64, Vec<Waker>>>,
}

/// What a task keeps: the tick for which a wake-up is already on its way. A later deadline needs
/// no second one: the task looks again when the first comes.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    armed: Option<u64>,
}

impl Wheel {
    /// Ready once `deadline` has passed, and `None` never. Wakes may come early and for nothing.
    pub(crate) fn poll_until(
        &self,
        alarm: &mut Alarm,
        now: Micros,
        deadline: Option<Micros>,
        cx: &Context<'_>,
    ) -> Poll<()> {
        let Some(deadline) = deadline else { return Poll::Pending };
        if now >= deadline {
            return Poll::Ready(());
        }
        let tick = deadline / micros(TICK) + 1;
        let current = now / micros(TICK);
        if alarm.armed.is_none_or(|armed| armed > tick || armed <= current) {
            alarm.armed = Some(tick);
            self.lock().entry(tick).or_default().push(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Wakes everything whose tick has come.
    pub(crate) fn advance(&self, now: Micros) {
        let due = {
            let mut slots = self.lock();
            let later = slots.split_off(&(now / micros(TICK) + 1));
            std::mem::replace(&mut *slots, later)
        };
        due.into_values().flatten().for_each(Waker::wake);
    }

    /// Turns the wheel until the task is aborted.
    pub(crate) async fn turn(&self, clock: Clock) {
        loop {
            tokio::time::sleep(TICK).await;
            self.advance(clock.now());
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, Vec<Waker>>> {
        // A list of wakers is whole after any panic: the worst is a lost wake-up of that task.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    use super::*;

    #[test]
    fn a_task_is_woken_at_its_tick_and_not_before() {
        let (wheel, counter, mut alarm) = (Wheel::default(), Counter::shared(), Alarm::default());
        let waker = Waker::from(Arc::clone(&counter));
        let cx = Context::from_waker(&waker);
        assert!(wheel.poll_until(&mut alarm, 0, Some(100_000), &cx).is_pending());
        wheel.advance(100_000);
        assert_eq!(counter.count(), 0);
        wheel.advance(120_000);
        assert_eq!(counter.count(), 1);
        assert!(wheel.poll_until(&mut alarm, 120_000, Some(100_000), &cx).is_ready());
    }

    #[test]
    fn a_deadline_that_moves_away_adds_no_second_waker() {
        let (wheel, counter, mut alarm) = (Wheel::default(), Counter::shared(), Alarm::default());
        let waker = Waker::from(Arc::clone(&counter));
        let cx = Context::from_waker(&waker);
        for deadline in [100_000, 200_000, 900_000] {
            assert!(wheel.poll_until(&mut alarm, 0, Some(deadline), &cx).is_pending());
        }
        wheel.advance(200_000);
        assert_eq!(counter.count(), 1);
        assert!(wheel.poll_until(&mut alarm, 200_000, Some(900_000), &cx).is_pending());
        wheel.advance(920_000);
        assert_eq!(counter.count(), 2);
    }

    #[test]
    fn a_deadline_that_moves_closer_wakes_at_the_closer_one() {
        let (wheel, counter, mut alarm) = (Wheel::default(), Counter::shared(), Alarm::default());
        let waker = Waker::from(Arc::clone(&counter));
        let cx = Context::from_waker(&waker);
        assert!(wheel.poll_until(&mut alarm, 0, Some(900_000), &cx).is_pending());
        assert!(wheel.poll_until(&mut alarm, 0, Some(50_000), &cx).is_pending());
        wheel.advance(60_000);
        assert_eq!(counter.count(), 1);
    }

    #[derive(Debug, Default)]
    struct Counter(AtomicU32);

    impl Counter {
        fn shared() -> Arc<Self> {
            Arc::new(Self::default())
        }

        fn count(&self) -> u32 {
            self.0.load(Ordering::Relaxed)
        }
    }

    impl Wake for Counter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}
