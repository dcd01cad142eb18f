//! How links end, and what collectors do then.

use std::io::Write;
use std::time::Duration;

use socket2::SockRef;

use super::Stage;
use crate::clock::Micros;
use crate::swarm::{End, Swarm, frames};

impl Swarm {
    /// The link is over, or did not come up.
    pub(in crate::swarm) fn handle_end(&mut self, index: u32, end: End) {
        let Some(link) = self.link(index) else { return };
        match link.stage {
            Stage::Away | Stage::Done => {}
            Stage::Closing => {
                if matches!(end, End::Late) {
                    self.count_error("close: no Close from the server in 5 s".to_owned());
                }
                self.depart(index);
            }
            Stage::Upgrading => {
                let (after, why) = match end {
                    End::Refused(after) => (after, None),
                    End::Close(_) => (None, Some("upgrade: a Close".to_owned())),
                    End::Fin => (None, Some("upgrade: the server closed the socket".to_owned())),
                    End::Error(why) => (None, Some(format!("connect: {why}"))),
                    End::Broken(why) => (None, Some(format!("upgrade: {why}"))),
                    End::Late => (None, Some("upgrade: no answer in 10 s".to_owned())),
                };
                self.handle_failure(index, after, why);
            }
            Stage::Up => self.handle_lost(index, &end),
        }
    }

    fn handle_lost(&mut self, index: u32, end: &End) {
        let now = self.now();
        if let End::Close(_) = end {
            self.out.clear();
            frames::write_close(&mut self.out, 1000, &mut self.rng);
            let at = usize::try_from(index).unwrap_or(usize::MAX);
            if let Some(socket) = self.links.get_mut(at).and_then(|link| link.socket.as_mut()) {
                // The server waits for it, or has gone.
                let _ = socket.write(&self.out);
            }
        }
        let instances = &self.instances;
        let at = usize::try_from(index).unwrap_or(usize::MAX);
        let Some(link) = self.links.get_mut(at) else { return };
        let condemned =
            instances.get(usize::from(link.instance)).is_some_and(|instance| instance.condemned);
        let ends = if condemned {
            &mut self.figures.expected_ends
        } else {
            self.figures.live.links_lost += 1;
            &mut self.figures.other_ends
        };
        match end {
            End::Close(1001) => ends.going_away += 1,
            End::Close(_) => ends.other_close += 1,
            End::Fin => ends.fin += 1,
            _ => ends.reset += 1,
        }
        if let End::Broken(why) = end {
            self.errors.entry(format!("link: {why}")).and_modify(|count| *count += 1).or_insert(1);
        }
        link.lost_at = now;
        let (answered, leaving) = (link.answered, link.leaving);
        self.drop_link(index);
        if self.stopping {
            if leaving {
                self.leaving = self.leaving.saturating_sub(1);
            }
            self.finish(index);
        } else if answered {
            self.wanting.push_back(index); // the first attempt after a break is made at once
        } else {
            self.wait(index, None);
        }
    }

    /// An attempt failed.
    pub(super) fn handle_failure(
        &mut self,
        index: u32,
        after: Option<Micros>,
        why: Option<String>,
    ) {
        if let Some(why) = why {
            self.count_error(why);
        }
        self.figures.live.connect_failures += 1;
        self.give_room(index);
        if let Some(link) = self.link(index) {
            link.attempts = link.attempts.saturating_add(1);
            link.socket = None;
            link.partial = None;
            link.stage = Stage::Away;
        }
        if self.stopping {
            self.finish(index);
        } else {
            self.wait(index, after);
        }
    }

    /// Another attempt, later.
    fn wait(&mut self, index: u32, after: Option<Micros>) {
        let now = self.now();
        let within = self.given.reconnect_within;
        let at = usize::try_from(index).unwrap_or(usize::MAX);
        let Some(link) = self.links.get_mut(at) else { return };
        let mut wait = link.backoff.handle_failure(after, &mut self.rng);
        if let Some(within) = within {
            wait = wait.min(within);
        }
        link.due = now.saturating_add(wait).max(1);
        self.calendar.arm(index, &mut link.armed, link.due);
    }

    /// Closes the socket and forgets all that belongs to the link.
    fn drop_link(&mut self, index: u32) {
        self.give_room(index);
        let at = usize::try_from(index).unwrap_or(usize::MAX);
        let Some(link) = self.links.get_mut(at) else { return };
        if matches!(link.stage, Stage::Up | Stage::Closing) {
            self.figures.connected = self.figures.connected.saturating_sub(1);
            link.collector.handle_disconnected();
        }
        if std::mem::take(&mut link.settled) {
            self.figures.settled = self.figures.settled.saturating_sub(1);
        }
        link.socket = None;
        link.partial = None;
        link.stage = Stage::Away;
        link.due = 0;
    }

    /// Resets every link and opens it again.
    pub(in crate::swarm) fn storm(&mut self) {
        let now = self.now();
        for index in self.indices() {
            let Some(link) = self.link(index).filter(|link| link.stage == Stage::Up) else {
                continue;
            };
            if let Some(socket) = &link.socket {
                // Without it, dropping says FIN, which is gentler than a storm.
                let _ = SockRef::from(socket).set_linger(Some(Duration::ZERO));
            }
            link.lost_at = now;
            self.figures.storm_resets += 1;
            self.drop_link(index);
            self.wanting.push_back(index);
        }
    }

    /// A collector begins to leave.
    pub(in crate::swarm) fn leave(&mut self, index: u32) {
        let Some(link) = self.link(index) else { return };
        if link.stage != Stage::Up {
            return self.finish(index);
        }
        link.leaving = true;
        self.leaving += 1;
        self.out.clear();
        self.drive(index, self.now());
    }

    /// Says goodbye once nothing is owed any more, or has been for too long.
    pub(super) fn try_goodbye(&mut self, index: u32, now: Micros) {
        let reply_timeout = self.given.reply_timeout;
        let Some(link) = self.link(index) else { return };
        let owed = link.collector.owed_since();
        let ready = owed.is_none_or(|since| now >= since.saturating_add(reply_timeout));
        if link.leaving && link.stage == Stage::Up && ready {
            link.collector.handle_stop();
        }
    }

    /// A collector that said goodbye has left.
    fn depart(&mut self, index: u32) {
        self.drop_link(index);
        self.leaving = self.leaving.saturating_sub(1);
        self.finish(index);
    }

    /// A collector that has no link leaves.
    pub(in crate::swarm) fn abandon(&mut self, index: u32) {
        self.drop_link(index);
        self.finish(index);
    }

    fn finish(&mut self, index: u32) {
        if let Some(link) = self.link(index) {
            link.stage = Stage::Done;
        }
    }
}
