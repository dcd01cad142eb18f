//! The hash of the control plane that ran, so that a document names what it observed.

use sha2::{Digest, Sha256};

/// The sources of store, scheduler, controller and windows, by name.
pub(super) const SOURCES: &[(&str, &str)] = &[
    ("controller.rs", include_str!("../controller.rs")),
    ("cron.rs", include_str!("../cron.rs")),
    ("error.rs", include_str!("../error.rs")),
    ("image.rs", include_str!("../image.rs")),
    ("records.rs", include_str!("../records.rs")),
    ("rules.rs", include_str!("../rules.rs")),
    ("scheduler.rs", include_str!("../scheduler.rs")),
    ("status.rs", include_str!("../status.rs")),
    ("store/deployments.rs", include_str!("../store/deployments.rs")),
    ("store/maintenance.rs", include_str!("../store/maintenance.rs")),
    ("store/mod.rs", include_str!("../store/mod.rs")),
    ("store/nodes.rs", include_str!("../store/nodes.rs")),
    ("store/services.rs", include_str!("../store/services.rs")),
    ("store/tasks.rs", include_str!("../store/tasks.rs")),
    ("time.rs", include_str!("../time.rs")),
];

/// SHA-256 over names and contents, in hexadecimal.
pub fn control_plane_sha256() -> String {
    let mut hash = Sha256::new();
    for (name, content) in SOURCES {
        hash.update((name.len() as u64).to_le_bytes());
        hash.update(name);
        hash.update((content.len() as u64).to_le_bytes());
        hash.update(content);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn every_source_of_the_store_is_hashed() {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut present: Vec<String> = std::fs::read_dir(sources.join("store"))
            .unwrap()
            .map(|entry| format!("store/{}", entry.unwrap().file_name().to_str().unwrap()))
            .collect();
        present.sort();
        let listed: Vec<&str> =
            SOURCES.iter().map(|(name, _)| *name).filter(|name| name.contains('/')).collect();
        assert_eq!(present, listed);
    }
}
