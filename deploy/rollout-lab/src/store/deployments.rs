//! Deployments: guarded status writes, listings, progress.

use super::MemoryStore;
use crate::error::Error;
use crate::records::{Context, Deployment, Progress, Token};
use crate::status::DeploymentStatus;
use crate::time::Id;

impl MemoryStore {
    /// Sets the status of a deployment. Staleness is looked at before legality. Without `expected`
    /// nothing guards the write.
    ///
    /// # Errors
    /// In this order: [`Error::NotFound`], [`Error::Stale`], [`Error::InvalidState`].
    pub fn update_deployment_status(
        &mut self,
        context: &Context,
        id: Id,
        status: DeploymentStatus,
        expected: Option<Token>,
    ) -> Result<(), Error> {
        let held = self.deployment(context, id)?;
        if expected.is_some_and(|shown| self.is_stale(shown, held.token())) {
            return Err(Error::Stale { what: "deployment", id: id.to_string() });
        }
        held.status.step(status)?;
        let now = self.clock.read();
        if let Some(held) = self.deployments.get_mut(&id) {
            held.status = status;
            held.updated_at = now;
            held.revision += 1;
            match status {
                DeploymentStatus::Running | DeploymentStatus::RollingBack => {
                    held.started_at.get_or_insert(now);
                }
                DeploymentStatus::Succeeded
                | DeploymentStatus::Failed
                | DeploymentStatus::RolledBack
                | DeploymentStatus::Paused => {
                    held.completed_at.get_or_insert(now);
                }
                DeploymentStatus::Pending => {}
            }
        }
        Ok(())
    }

    /// Deployments in any of these states, by creation, then id.
    pub fn deployments_by_status(&self, statuses: &[DeploymentStatus]) -> Vec<&Deployment> {
        let mut found: Vec<&Deployment> = self
            .deployments
            .values()
            .filter(|deployment| statuses.contains(&deployment.status))
            .collect();
        found.sort_by_key(|deployment| (deployment.created_at, deployment.id));
        found
    }

    /// The latest deployment of a service.
    ///
    /// # Errors
    /// [`Error::NotFound`] without the service, or without a deployment.
    pub fn service_rollout(&self, context: &Context, service: Id) -> Result<&Deployment, Error> {
        self.service(context, service)?;
        self.latest_deployment(service)
            .ok_or_else(|| Error::not_found("deployment of service", service))
    }

    pub(super) fn latest_deployment(&self, service: Id) -> Option<&Deployment> {
        self.deployments
            .values()
            .filter(|deployment| deployment.service == service)
            .max_by_key(|deployment| (deployment.created_at, deployment.id))
    }

    /// Bookkeeping of the deadline; no write in the sense of the guard.
    pub(crate) fn set_progress(&mut self, id: Id, progress: Progress) {
        if let Some(held) = self.deployments.get_mut(&id) {
            held.progress = progress;
        }
    }
}
