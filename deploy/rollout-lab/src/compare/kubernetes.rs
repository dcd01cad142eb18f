//! The arithmetic of a Kubernetes Deployment's rolling update.
//!
//! Restated from the Deployment controller's `rolling.go` and `deployment_util.go` and the Deployment
//! page: percentages round surge up and unavailable down, both zero after rounding makes unavailable
//! 1; one kind of scaling in each sync; unhealthy old pods go first. Pods that are terminating are in
//! no count.

use super::{Amount, Question, QuestionError};

/// U and S in pods, and whether U was raised from zero because both had been rounded to it.
///
/// # Errors
/// [`QuestionError::BothZero`] when both are zero as asked.
pub fn fenceposts(
    replicas: i64,
    max_unavailable: Amount,
    max_surge: Amount,
) -> Result<(i64, i64, bool), QuestionError> {
    if max_unavailable.is_zero() && max_surge.is_zero() {
        return Err(QuestionError::BothZero);
    }
    let surge = match max_surge {
        Amount::Tasks(number) => number,
        Amount::Percent(percent) => (replicas * percent + 99) / 100,
    };
    let unavailable = match max_unavailable {
        Amount::Tasks(number) => number,
        Amount::Percent(percent) => replicas * percent / 100,
    };
    let raised = surge == 0 && unavailable == 0;
    Ok((if raised { 1 } else { unavailable }, surge, raised))
}

/// An old and a new ReplicaSet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cluster {
    /// R.
    pub replicas: i64,
    /// U.
    pub max_unavailable: i64,
    /// S.
    pub max_surge: i64,
    /// Pods that the old ReplicaSet is told to have.
    pub old: i64,
    /// Those of them that are available.
    pub old_available: i64,
    /// Pods that the new ReplicaSet is told to have.
    pub new: i64,
    /// Those of them that are available.
    pub new_available: i64,
    /// Pods that were told to end and did not yet.
    pub terminating: i64,
}

impl Cluster {
    /// What a Deployment begins with, `unhealthy` pods of the old ReplicaSet not being available.
    pub fn starting(question: &Question, max_unavailable: i64, max_surge: i64) -> Self {
        Self {
            replicas: question.replicas,
            max_unavailable,
            max_surge,
            old: question.replicas,
            old_available: question.replicas - question.unhealthy_old,
            new: 0,
            new_available: 0,
            terminating: 0,
        }
    }

    /// One sync: scales up, or down, or does nothing. Returns by how much each set grew.
    pub fn sync(&mut self) -> (i64, i64) {
        let up = self.scale_up();
        if up > 0 {
            self.new += up;
            return (up, 0);
        }
        let down = self.scale_down();
        // A ReplicaSet ends the pods that are not ready first.
        let unready = self.old - self.old_available;
        self.old -= down;
        self.old_available -= (down - unready).max(0);
        self.terminating += down;
        (0, -down)
    }

    fn scale_up(&self) -> i64 {
        let total = self.old + self.new;
        let room = self.replicas + self.max_surge - total;
        room.min(self.replicas - self.new).max(0)
    }

    fn scale_down(&self) -> i64 {
        if self.old == 0 {
            return 0;
        }
        let least = self.replicas - self.max_unavailable;
        let new_unavailable = self.new - self.new_available;
        let most = self.old + self.new - least - new_unavailable;
        if most <= 0 {
            return 0;
        }
        let unhealthy = (self.old - self.old_available).min(most);
        let available = self.old_available + self.new_available;
        let healthy = (available - least).max(0).min(self.old - unhealthy);
        unhealthy + healthy
    }

    /// Whether every pod is new and available.
    pub fn is_complete(&self) -> bool {
        self.old == 0 && self.new == self.replicas && self.new_available == self.replicas
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(replicas: i64, unavailable: &str, surge: &str) -> (i64, i64, bool) {
        fenceposts(replicas, unavailable.parse().unwrap(), surge.parse().unwrap()).unwrap()
    }

    #[test]
    fn surge_rounds_up_and_unavailable_down() {
        assert_eq!(resolved(3, "25%", "25%"), (0, 1, false));
        assert_eq!(resolved(4, "25%", "25%"), (1, 1, false));
        assert_eq!(resolved(10, "25%", "25%"), (2, 3, false));
    }

    #[test]
    fn both_rounded_to_zero_makes_unavailable_one() {
        assert_eq!(resolved(3, "1%", "0%"), (1, 0, true));
        assert_eq!(resolved(3, "1%", "0"), (1, 0, true));
        let zero = Amount::Tasks(0);
        assert_eq!(fenceposts(3, zero, Amount::Percent(0)), Err(QuestionError::BothZero));
    }
}
