//! Who may be in its handshake: so many at once. When there is no room left, those that say nothing
//! make room for others, so that a crowd of half-open connections keeps nobody out.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

/// Sockets that may be in their handshake at once; further ones wait in the kernel's queue until one
/// of these is done, or has been silent or slow for long enough to make room.
pub const GREETERS_MAX: usize = 16_384;
/// Silence after which a socket may have to make room.
const MUTE_MAX: Duration = Duration::from_secs(1);
/// Time that a socket which has said something has before it may have to make room.
const SLOW_MAX: Duration = Duration::from_secs(5);
/// Sockets that make room at once, so that looking for them is not what costs.
const BATCH: usize = 256;
/// Time between two looks for sockets that can make room.
const LOOK: Duration = Duration::from_millis(10);

/// All places there are.
#[derive(Debug)]
pub(crate) struct Room {
    permits: Arc<Semaphore>,
    guests: Mutex<Guests>,
}

#[derive(Debug, Default)]
struct Guests {
    slots: Vec<Option<Guest>>,
    free: Vec<usize>,
}

#[derive(Debug)]
struct Guest {
    since: Duration,
    spoke: bool,
    /// `None` until its task runs.
    task: Option<AbortHandle>,
}

/// A socket's place, until its handshake is over.
#[derive(Debug)]
pub(super) struct Place {
    room: Arc<Room>,
    slot: usize,
    _permit: OwnedSemaphorePermit,
}

impl Room {
    pub(super) fn new(places: usize) -> Arc<Self> {
        Arc::new(Self { permits: Arc::new(Semaphore::new(places)), guests: Mutex::default() })
    }

    /// Sockets in their handshake.
    pub(super) fn taken(&self) -> usize {
        let guests = self.guests();
        guests.slots.len() - guests.free.len()
    }

    /// A place, as soon as there is one. `made` is told how many had to make room for it.
    pub(super) async fn enter(
        self: &Arc<Self>,
        now: impl Fn() -> Duration,
        mut made: impl FnMut(usize),
    ) -> Place {
        loop {
            let permit = Arc::clone(&self.permits).acquire_owned();
            // The semaphore is never closed.
            if let Ok(Ok(permit)) = tokio::time::timeout(LOOK, permit).await {
                return self.place(now(), permit);
            }
            made(self.make_room(now()));
        }
    }

    fn place(self: &Arc<Self>, now: Duration, permit: OwnedSemaphorePermit) -> Place {
        let guest = Some(Guest { since: now, spoke: false, task: None });
        let mut guests = self.guests();
        let slot = match guests.free.pop() {
            Some(slot) => {
                guests.slots[slot] = guest;
                slot
            }
            None => {
                guests.slots.push(guest);
                guests.slots.len() - 1
            }
        };
        drop(guests);
        Place { room: Arc::clone(self), slot, _permit: permit }
    }

    /// Which task is at a place, unless it is done already. To be told before the next place is
    /// given.
    pub(super) fn seat(&self, slot: usize, task: AbortHandle) {
        if let Some(guest) = self.guests().slots.get_mut(slot).and_then(Option::as_mut) {
            guest.task = Some(task);
        }
    }

    /// Ends those that have been silent for longest, or else those that are slow. Says how many.
    pub(super) fn make_room(&self, now: Duration) -> usize {
        let guests = self.guests();
        let mut ending = Vec::new();
        for spoke in [false, true] {
            let most = if spoke { SLOW_MAX } else { MUTE_MAX };
            let due =
                |guest: &&Guest| guest.spoke == spoke && now.saturating_sub(guest.since) >= most;
            let all = guests.slots.iter().flatten().filter(due);
            ending.extend(all.filter_map(|guest| Some((guest.since, guest.task.as_ref()?))));
            if !ending.is_empty() {
                break;
            }
        }
        ending.sort_unstable_by_key(|(since, _)| *since);
        ending.truncate(BATCH);
        // Under the lock, so that none of them can leave its place before it is ended.
        ending.iter().for_each(|(_, task)| task.abort());
        ending.len()
    }

    fn guests(&self) -> MutexGuard<'_, Guests> {
        self.guests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    pub(super) fn slot(&self) -> usize {
        self.slot
    }

    /// The peer has said something.
    pub(super) fn spoke(&self) {
        if let Some(guest) = self.room.guests().slots.get_mut(self.slot).and_then(Option::as_mut) {
            guest.spoke = true;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut guests = self.room.guests();
        if let Some(guest) = guests.slots.get_mut(self.slot) {
            *guest = None;
            guests.free.push(self.slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    struct Crowd {
        room: Arc<Room>,
        tasks: Vec<tokio::task::JoinHandle<()>>,
    }

    impl Crowd {
        /// Somebody comes in, and says something or not; its handshake never ends.
        async fn come(&mut self, now: u64, speaks: bool) {
            let place = self.room.enter(|| seconds(now), |_| {}).await;
            let slot = place.slot();
            if speaks {
                place.spoke();
            }
            let task = tokio::spawn(async move {
                let _place = place;
                std::future::pending::<()>().await;
            });
            self.room.seat(slot, task.abort_handle());
            self.tasks.push(task);
        }

        /// Who is still there, by the order of their coming, once those that were ended are gone.
        async fn rest(&self, ended: usize) -> Vec<usize> {
            let before = self.tasks.len();
            while self.tasks.iter().filter(|task| task.is_finished()).count() < ended {
                tokio::task::yield_now().await;
            }
            let all = self.tasks.iter().enumerate();
            let rest: Vec<usize> =
                all.filter(|(_, task)| !task.is_finished()).map(|(at, _)| at).collect();
            assert_eq!((rest.len(), self.room.taken()), (before - ended, before - ended));
            rest
        }
    }

    fn crowd(places: usize) -> Crowd {
        Crowd { room: Room::new(places), tasks: Vec::new() }
    }

    #[tokio::test]
    async fn the_mute_make_room_before_the_slow_and_nobody_at_once() {
        let mut crowd = crowd(4);
        crowd.come(0, true).await;
        crowd.come(1, false).await;
        crowd.come(2, false).await;
        assert_eq!(crowd.room.make_room(Duration::from_millis(1_999)), 0, "none is silent for 1 s");
        assert_eq!(crowd.room.make_room(seconds(2)), 1);
        assert_eq!(crowd.rest(1).await, [0, 2]);
        assert_eq!(crowd.room.make_room(seconds(3)), 1);
        assert_eq!(crowd.rest(2).await, [0]);
        assert_eq!(crowd.room.make_room(Duration::from_millis(4_999)), 0);
        assert_eq!(crowd.room.make_room(seconds(5)), 1, "who speaks and never ends has 5 s");
        assert_eq!(crowd.rest(3).await, [0; 0]);
    }

    #[tokio::test]
    async fn a_full_room_lets_a_newcomer_in_for_the_mute() {
        let mut crowd = crowd(2);
        crowd.come(0, false).await;
        crowd.come(0, false).await;
        let made = std::cell::Cell::new(0);
        let place = crowd.room.enter(|| seconds(1), |more| made.set(made.get() + more)).await;
        assert_eq!(made.get(), 2);
        drop(place);
        assert_eq!(crowd.rest(2).await, [0; 0]);
    }

    #[tokio::test]
    async fn a_task_that_ends_before_it_is_seated_leaves_nothing_behind() {
        let room = Room::new(1);
        let place = room.enter(|| seconds(0), |_| {}).await;
        let slot = place.slot();
        let task = tokio::spawn(async move { drop(place) });
        let abort = task.abort_handle();
        task.await.unwrap();
        room.seat(slot, abort);
        assert_eq!((room.taken(), room.make_room(seconds(100))), (0, 0));
        drop(room.enter(|| seconds(100), |_| {}).await);
        assert_eq!(room.guests().slots.len(), 1, "its slot is used again");
    }
}
