//! What a reader of evidence must know about the evidence itself.

use std::sync::Mutex;

/// At most one sentence of each kind.
#[derive(Debug, Default)]
pub(super) struct Notices(Mutex<Sentences>);

#[derive(Debug, Default)]
struct Sentences {
    lost: Option<String>,
    unwritable: Option<String>,
}

impl Notices {
    /// The store was damaged, and evidence begins anew. Holds for the life of the process.
    pub(super) fn set_lost(&self, what: &str) {
        self.with(|sentences| {
            sentences.lost = Some(format!(
                "Evidence from before this process started is lost: {what}. Failures and brakes of \
                 that time are not known."
            ));
        });
    }

    pub(super) fn set_unwritable(&self, why: &str) {
        self.with(|sentences| {
            sentences.unwritable = Some(format!(
                "The store cannot be written ({why}): until it can be, failures and brakes die with \
                 this process."
            ));
        });
    }

    pub(super) fn set_writable(&self) {
        self.with(|sentences| sentences.unwritable = None);
    }

    pub(super) fn sentences(&self) -> Vec<String> {
        self.with(|sentences| {
            [&sentences.lost, &sentences.unwritable].into_iter().flatten().cloned().collect()
        })
    }

    fn with<R>(&self, with: impl FnOnce(&mut Sentences) -> R) -> R {
        with(&mut super::lock(&self.0))
    }
}
