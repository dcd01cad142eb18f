//! Capability bits and flags of both sides.

use std::ops::BitOr;

/// What an agent says it can do: `AgentToServer.capabilities`. Bits that we do not know are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AgentCapabilities(pub u64);

impl AgentCapabilities {
    /// Reports status. Every agent must set it.
    pub const REPORTS_STATUS: Self = Self(0x1);
    /// Takes remote configuration. Without it nothing may be offered.
    pub const ACCEPTS_REMOTE_CONFIG: Self = Self(0x2);
    /// Reports the configuration that it runs.
    pub const REPORTS_EFFECTIVE_CONFIG: Self = Self(0x4);
    /// Takes packages.
    pub const ACCEPTS_PACKAGES: Self = Self(0x8);
    /// Reports the state of its packages.
    pub const REPORTS_PACKAGE_STATUSES: Self = Self(0x10);
    /// Can send its own traces somewhere.
    pub const REPORTS_OWN_TRACES: Self = Self(0x20);
    /// Can send its own metrics somewhere.
    pub const REPORTS_OWN_METRICS: Self = Self(0x40);
    /// Can send its own logs somewhere.
    pub const REPORTS_OWN_LOGS: Self = Self(0x80);
    /// Takes settings for the OpAMP connection.
    pub const ACCEPTS_OPAMP_CONNECTION_SETTINGS: Self = Self(0x100);
    /// Takes settings for other connections.
    pub const ACCEPTS_OTHER_CONNECTION_SETTINGS: Self = Self(0x200);
    /// Can be told to restart.
    pub const ACCEPTS_RESTART_COMMAND: Self = Self(0x400);
    /// Reports health.
    pub const REPORTS_HEALTH: Self = Self(0x800);
    /// Reports which remote configuration it was given and what became of it.
    pub const REPORTS_REMOTE_CONFIG: Self = Self(0x1000);
    /// Sends heartbeats.
    pub const REPORTS_HEARTBEAT: Self = Self(0x2000);
    /// Reports the components it was built with.
    pub const REPORTS_AVAILABLE_COMPONENTS: Self = Self(0x4000);
    /// Reports what became of connection settings.
    pub const REPORTS_CONNECTION_SETTINGS_STATUS: Self = Self(0x8000);

    /// Whether all bits of `other` are set here.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for AgentCapabilities {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// What we say in every reply: AcceptsStatus (0x1), OffersRemoteConfig (0x2) and
/// AcceptsEffectiveConfig (0x4).
pub const SERVER_CAPABILITIES: u64 = 0x7;

/// `AgentToServer.flags`: the uid of the message is temporary, the agent asks for another one.
pub const AGENT_REQUESTS_INSTANCE_UID: u64 = 0x1;

/// `ServerToAgent.flags`: the agent is to send everything, also what has not changed.
pub const SERVER_REPORT_FULL_STATE: u64 = 0x1;

/// `ServerToAgent.flags`: the agent is to list the components it was built with.
pub const SERVER_REPORT_AVAILABLE_COMPONENTS: u64 = 0x2;

#[cfg(test)]
mod tests {
    use super::AgentCapabilities as Agent;

    #[test]
    fn contains_asks_for_every_bit() {
        let both = Agent::ACCEPTS_REMOTE_CONFIG | Agent::REPORTS_REMOTE_CONFIG;
        assert!(both.contains(Agent::ACCEPTS_REMOTE_CONFIG));
        assert!(both.contains(both));
        assert!(!Agent::ACCEPTS_REMOTE_CONFIG.contains(both));
        assert!(Agent(u64::MAX).contains(both));
        assert!(!Agent(0).contains(Agent::REPORTS_STATUS));
    }
}
