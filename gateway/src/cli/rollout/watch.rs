//! Follows Rollouts over a stream of events, through restarts of the gateway.

use std::time::Duration;

use render::rollout::report::RolloutReport;

use super::client::{Client, ClientError, Events};
use super::out;
use super::sse::Event;

/// Wait before the first new attempt; it doubles up to [`BACK_OFF_MAX`].
const BACK_OFF_MIN: Duration = Duration::from_millis(500);
/// Longest wait between two attempts.
const BACK_OFF_MAX: Duration = Duration::from_secs(10);

/// What happened.
#[derive(Debug)]
pub enum Change {
    /// A Rollout as it stands now.
    Report(Box<RolloutReport>),
    /// A Rollout left head.
    Gone(String),
}

/// A stream that is opened again when it breaks.
#[derive(Debug)]
pub struct Watch {
    client: Client,
    path: String,
    events: Option<Events>,
    back_off: Duration,
}

impl Watch {
    /// Opens the stream at `path`.
    ///
    /// # Errors
    /// When that fails: whoever begins with a gateway that is not there wants to know.
    pub async fn open(client: &Client, path: String) -> Result<Self, ClientError> {
        let events = Some(client.events(&path).await?);
        Ok(Self { client: client.clone(), path, events, back_off: BACK_OFF_MIN })
    }

    /// Waits for the next change; a broken stream is opened again, which is told on stderr.
    ///
    /// # Errors
    /// What does not pass by itself.
    pub async fn next(&mut self) -> Result<Change, ClientError> {
        loop {
            let lost = match &mut self.events {
                Some(events) => match events.next().await {
                    Ok(event) => {
                        self.back_off = BACK_OFF_MIN;
                        match change(event).map_err(|why| self.client.not_a_gateway(why))? {
                            Some(change) => return Ok(change),
                            None => continue,
                        }
                    }
                    Err(error) => error,
                },
                None => match self.client.events(&self.path).await {
                    Ok(events) => {
                        out::tell("connected again");
                        self.events = Some(events);
                        continue;
                    }
                    Err(error) => error,
                },
            };
            if !lost.may_pass() {
                return Err(lost);
            }
            self.events = None;
            out::tell(&format!("{lost}; trying again in {:?}", self.back_off));
            tokio::time::sleep(self.back_off).await;
            self.back_off = (self.back_off * 2).min(BACK_OFF_MAX);
        }
    }
}

/// `None` for the farewell of a gateway that drains, after which the stream ends.
fn change(event: Event) -> Result<Option<Change>, String> {
    match event.name.as_str() {
        "report" => serde_json::from_str(&event.data)
            .map(|report| Some(Change::Report(report)))
            .map_err(|error| error.to_string()),
        "gone" => serde_json::from_str(&event.data)
            .map(|id| Some(Change::Gone(id)))
            .map_err(|error| error.to_string()),
        // What a later version may tell as well is not for us.
        _ => Ok(None),
    }
}
