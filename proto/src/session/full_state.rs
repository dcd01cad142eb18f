//! When an agent is asked to say everything again (serving.md, decision 4).

use super::Seconds;

/// Full state is asked of one agent at most once in this time: agents answer at once, so that
/// asking in every reply would be a loop.
pub const FULL_STATE_SECONDS_MIN: Seconds = 10;
/// An agent that never describes itself is asked ever more seldom, down to once in this time.
pub const FULL_STATE_SECONDS_MAX: Seconds = 60 * 60;

/// Why full state is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FullStateReason {
    /// It has not described itself on this link.
    Unknown,
    /// Messages of it are missing.
    Gap,
    /// A new head mentions an attribute whose value was not kept.
    Attributes,
}

/// What is missing of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    Nothing,
    Unknown,
    Gap,
    Attributes,
}

impl Need {
    pub(super) fn reason(self) -> Option<FullStateReason> {
        match self {
            Self::Nothing => None,
            Self::Unknown => Some(FullStateReason::Unknown),
            Self::Gap => Some(FullStateReason::Gap),
            Self::Attributes => Some(FullStateReason::Attributes),
        }
    }
}

/// How long to wait after the last time, having asked `asks` times since the last description:
/// three times at the least distance, for answers that take their time, then doubling.
pub(super) fn cool_down(asks: u8) -> Seconds {
    let doublings = u32::from(asks.saturating_sub(3)).min(16);
    (FULL_STATE_SECONDS_MIN << doublings).min(FULL_STATE_SECONDS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asking_in_vain_becomes_seldom() {
        let waits: Vec<_> = (1..=12).map(cool_down).collect();
        assert_eq!(waits, [10, 10, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600]);
        assert_eq!(cool_down(u8::MAX), FULL_STATE_SECONDS_MAX);
    }
}
