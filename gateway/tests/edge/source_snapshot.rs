//! `--snapshot`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use ed25519_dalek::SigningKey;
use ed25519_dalek::pkcs8::EncodePublicKey;
use ed25519_dalek::pkcs8::spki::der::pem::LineEnding;
use render::snapshot::{file, served};
use render::tree::Tree;

use super::support::estate::{Estate, artefact};
use super::support::gateway::{Gateway, run};
use super::support::{opamp, until};

fn write(estate: &Estate, to: &Path, created_ms: u64, key: Option<&SigningKey>) {
    let tree = Tree::read_dir(estate.path(), "estate").unwrap();
    let served = served::from_tree(&tree, None).unwrap();
    file::write(to, &file::encode(&served, created_ms, key).unwrap()).unwrap();
}

#[test]
fn a_snapshot_is_served_and_a_bad_one_is_not() {
    let (estate, dir) = (Estate::new(), tempfile::tempdir().unwrap());
    let file = dir.path().join("head.snapshot");
    write(&estate, &file, 2_000, None);
    let name = file.to_str().unwrap();
    let gateway = Gateway::serve(&["--snapshot", name, "--fetch-interval", "50ms"]);
    let served = |text: &str| {
        let offered = opamp::offered(gateway.listen, 1, "web");
        offered.contains(&format!("text: {text}\n")).then_some(())
    };
    served("first").unwrap();

    let good = fs::read(&file).unwrap();
    fs::write(&file, &good[..good.len() - 9]).unwrap();
    let failure = gateway.fails("invalid");
    assert!(failure["detail"].as_str().unwrap().contains("cut short"), "{failure}");
    served("first").unwrap();
    assert_eq!(gateway.get("/readyz").status, 200);

    fs::set_permissions(&file, fs::Permissions::from_mode(0o664)).unwrap();
    gateway.fails("writable");

    fs::write(estate.file("rendered/shop/web.yaml"), artefact("web", "older")).unwrap();
    write(&estate, &file, 1_000, None);
    until("the older snapshot", || served("older"));
    gateway.heals();
    assert_eq!(gateway.metrics()["tidegate_head_older_total"], 1.0);
    gateway.logged("the new head is older than the one before");
}

#[test]
fn a_writable_snapshot_is_refused_at_the_start() {
    let (estate, dir) = (Estate::new(), tempfile::tempdir().unwrap());
    let file = dir.path().join("head.snapshot");
    write(&estate, &file, 1, None);
    for mode in [0o620, 0o602] {
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        let ended = run(&["serve", "--snapshot", file.to_str().unwrap()]);
        assert_eq!(ended.code, Some(1));
        assert!(ended.err.contains("chmod go-w"), "{}", ended.err);
        assert!(ended.err.contains("head.snapshot"), "{}", ended.err);
    }
}

#[test]
fn a_signature_is_asked_for_where_a_key_is_given() {
    let (estate, dir) = (Estate::new(), tempfile::tempdir().unwrap());
    let file = dir.path().join("head.snapshot");
    let public = dir.path().join("public.pem");
    let (ours, theirs) = (SigningKey::from_bytes(&[1; 32]), SigningKey::from_bytes(&[2; 32]));
    let pem = ours.verifying_key().to_public_key_pem(LineEnding::LF).unwrap();
    fs::write(&public, pem).unwrap();
    let arguments =
        ["--snapshot", file.to_str().unwrap(), "--snapshot-key", public.to_str().unwrap()];
    let refused = |key: Option<&SigningKey>| {
        write(&estate, &file, 1, key);
        let ended = run(&[&["serve"], &arguments[..]].concat());
        assert_eq!(ended.code, Some(1), "{}", ended.err);
        ended.err
    };
    assert!(refused(None).contains("not signed"));
    assert!(refused(Some(&theirs)).contains("does not fit the given key"));
    write(&estate, &file, 1, Some(&ours));
    let gateway = Gateway::serve(&arguments);
    assert!(opamp::offered(gateway.listen, 1, "web").contains("text: first"));

    let ended = run(&["serve", "--snapshot", "x", "--snapshot-key", file.to_str().unwrap()]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.err.contains("--snapshot-key"), "{}", ended.err);
}
