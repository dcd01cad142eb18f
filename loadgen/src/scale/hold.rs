//! What is done while all collectors are connected: gateways are killed and replaced, heads pushed,
//! links reset, each after the other.

use super::coordinator::{Run, Stop};
use super::options::ScaleError;
use super::outcome::{Event, KILLED};
use super::protocol::ToWorker;
use crate::clock::{Clock, Micros, micros};

impl Run<'_> {
    /// Stays as long as it is asked to, and does what is due. Beginnings count from `from`.
    pub(super) async fn hold(&mut self, from: Micros) -> Result<(), Stop> {
        let options = self.options;
        let leave = from.saturating_add(micros(options.duration));
        let mut kill = options.kill_replica_at.map(|at| from.saturating_add(micros(at)));
        let every = |period: Option<std::time::Duration>, at: Micros| {
            period.map(|period| at.saturating_add(micros(period))).filter(|next| *next < leave)
        };
        let (mut push, mut storm) =
            (every(options.push_every, from), every(options.storm_every, from));
        if options.roll_replicas {
            self.roll().await?;
        }
        loop {
            let now = self.now();
            let is_due = |at: Option<Micros>| at.is_some_and(|at| now >= at);
            if is_due(kill) {
                kill = None;
                self.kill_one().await?;
            } else if is_due(push) {
                push = every(options.push_every, now);
                self.push().await?;
            } else if is_due(storm) {
                storm = every(options.storm_every, now);
                self.storm().await?;
            } else if now >= leave && kill.is_none() {
                return Ok(());
            } else {
                let next = [Some(leave), kill, push, storm].into_iter().flatten().min();
                self.observe(next.unwrap_or(leave), |_| false).await?;
            }
        }
    }

    /// Kills the gateway in the middle, and starts another where that is asked for.
    async fn kill_one(&mut self) -> Result<(), Stop> {
        let target = self.gateways.len() / 2;
        let number = u16::try_from(target).unwrap_or(u16::MAX);
        self.condemn(number).await?;
        let what = format!("replica {target} {KILLED}");
        self.tell_people(&what);
        let head = self.newest_head();
        let began = self.forget_lines();
        if let Some(process) = self.gateways.get_mut(target).and_then(Option::take)
            && let Err(trouble) = process.kill().await
        {
            return Err(Stop::Fault(trouble.to_string()));
        }
        if self.options.restart_killed {
            self.replace(number).await?;
        }
        let settled_after_s = self.settled_again(began, head, &what).await?;
        self.note(began, what, settled_after_s, None);
        Ok(())
    }

    /// Starts a gateway for a target, to which collectors connect from now on.
    async fn replace(&mut self, number: u16) -> Result<(), Stop> {
        let started = self.start_gateway().await;
        let (process, address, _) =
            started.map_err(|error| Stop::Fault(format!("the replacement: {error}")))?;
        self.count_gateway(&process);
        if let Some(slot) = self.gateways.get_mut(usize::from(number)) {
            *slot = Some(process);
        }
        self.tell_all(&ToWorker::Target { target: number, address }).await
    }

    /// Every gateway in turn: a replacement first, then SIGTERM, then its end.
    async fn roll(&mut self) -> Result<(), Stop> {
        for target in 0..self.gateways.len() {
            let number = u16::try_from(target).unwrap_or(u16::MAX);
            let what = format!("replica {target} replaced and drained");
            self.tell_people(&what);
            self.condemn(number).await?;
            let head = self.newest_head();
            let began = self.forget_lines();
            let old = self.gateways.get_mut(target).and_then(Option::take);
            self.replace(number).await?;
            let Some(old) = old else { continue };
            let draining = tokio::spawn(old.drain());
            let forever = Micros::MAX; // a drain has a limit of its own
            self.observe(forever, |_| draining.is_finished()).await?;
            match draining.await {
                Ok(Ok(())) => {}
                Ok(Err(trouble)) => self.problems.push(format!("replica {target}: {trouble}")),
                Err(error) => self.problems.push(format!("replica {target}: {error}")),
            }
            let settled_after_s = self.settled_again(began, head, &what).await?;
            self.note(began, what, settled_after_s, None);
        }
        Ok(())
    }

    /// A new head that changes every artefact.
    async fn push(&mut self) -> Result<(), Stop> {
        let head = self.newest_head().saturating_add(1);
        let fault = |error: ScaleError| Stop::Fault(error.to_string());
        let Some(desk) = &mut self.desk else { return Ok(()) };
        let next = desk.prepare().map_err(fault)?;
        // It is as old as its first file: nobody can have seen it before.
        let (began, unix_us) = (self.forget_lines(), Clock::unix_us());
        let fingerprint = next.publish().map_err(fault)?;
        self.announce(unix_us).await;
        let what = format!("head {head} pushed");
        self.tell_people(&what);
        let settled_after_s = self.settled_again(began, head, &what).await?;
        self.note(began, what, settled_after_s, Some(fingerprint));
        Ok(())
    }

    /// Every link is reset and opened again.
    async fn storm(&mut self) -> Result<(), Stop> {
        let what = "all links reset and opened again".to_owned();
        self.tell_people(&what);
        let head = self.newest_head();
        let began = self.forget_lines();
        self.tell_all(&ToWorker::Storm).await?;
        let settled_after_s = self.settled_again(began, head, &what).await?;
        self.note(began, what, settled_after_s, None);
        Ok(())
    }

    fn note(
        &mut self,
        began: Micros,
        what: String,
        settled_after_s: Option<f64>,
        fingerprint: Option<u64>,
    ) {
        let at_s = self.since_go(began);
        self.events.push(Event {
            at_s,
            what,
            settled_after_s,
            last_offer_after_s: None,
            fingerprint,
        });
    }
}
