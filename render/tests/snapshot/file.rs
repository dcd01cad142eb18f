//! The snapshot file: what is written comes back, and nothing else is taken (estate.md,
//! decision 13).

use std::path::Path;
use std::time::Duration;

use ed25519_dalek::SigningKey;
use ed25519_dalek::pkcs8::EncodePrivateKey;
use ed25519_dalek::pkcs8::spki::EncodePublicKey;
use proptest::prelude::*;
use render::estate::{Cohort, Halt};
use render::snapshot::file::{
    self, FORMAT, FileError, FileMeta, decode, encode, seal, signing_key, verifying_key,
};
use render::snapshot::served::Served;

use crate::util::{any_head, artefact, head, hosts, pairs, percent, rollout, tier};

const CREATED_MS: u64 = 1_767_225_600_000;

/// Signing without optimisation takes 15 ms, so few of the generated files are.
const SIGNED: f64 = 0.1;

fn key() -> SigningKey {
    SigningKey::from_bytes(&[7; 32])
}

/// A head that uses every field of format 1.
fn golden() -> Served {
    let mut staged = tier(&[("k8s.cluster.name", "eu-west-1"), ("service.name", "é日本")], "base");
    staged.next = Some(artefact("0123456", "next"));
    let both =
        Cohort { matches: pairs(&[("region", "eu")]), ..hosts("host.name", &["h1", "h2", ""]) };
    let mut canary =
        rollout("data-flow/canary", "data-flow/bridge", 1, vec![both, percent(25), percent(100)]);
    canary.stages[1].soak = Duration::new(86_400, 500);
    canary.hash_attributes = vec!["region".to_owned(), "host.name".to_owned()];
    canary.hash_salt = Some("2026-q4".to_owned());
    canary.identity = vec!["host.name".to_owned()];
    canary.hold = true;
    canary.halt = Halt {
        abort_at_percent: 20,
        dark_after: Duration::from_millis(1_500),
        min_seen: 3,
        retry_failed: 2,
    };
    canary.stage_started_ms = Some(CREATED_MS - 1);
    canary.origin = Some("89abcdef0123".into());
    let plain = tier(&[("service.name", "plain")], "base");
    head(vec![("data-flow/bridge", staged), ("payments/agents", plain)], vec![canary])
}

#[test]
fn a_file_of_format_1_is_read_for_ever() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/vectors/snapshot-v1.bin");
    if std::env::var_os("BLESS").is_some() && FORMAT == 1 {
        let file = encode(&golden(), CREATED_MS, Some(&key())).unwrap();
        std::fs::write(&path, file).unwrap();
    }
    let bytes = std::fs::read(&path).unwrap();
    let (served, meta) = decode(bytes, Some(&key().verifying_key())).unwrap();
    assert_eq!(served, golden());
    assert_eq!(meta, FileMeta { format: 1, created_ms: CREATED_MS, signed: true });
}

proptest! {
    #[test]
    fn what_is_written_comes_back(
        served in any_head(),
        created_ms: u64,
        signed in prop::bool::weighted(SIGNED),
    ) {
        let key = signed.then(key);
        let file = encode(&served, created_ms, key.as_ref()).unwrap();
        prop_assert_eq!(&file, &encode(&served, created_ms, key.as_ref()).unwrap());
        let (back, meta) = decode(file, None).unwrap();
        prop_assert_eq!(back.digest(), served.digest());
        prop_assert_eq!(back, served);
        prop_assert_eq!(meta, FileMeta { format: FORMAT, created_ms, signed });
    }

    #[test]
    fn no_other_bytes_are_taken(
        at: prop::sample::Index,
        to: u8,
        signed in prop::bool::weighted(SIGNED),
    ) {
        let file = encode(&golden(), CREATED_MS, signed.then(key).as_ref()).unwrap();
        let at = at.index(file.len());
        let mut changed = file.clone();
        changed[at] = to;
        // Of a signature nothing is checked without a key.
        let verifying = key().verifying_key();
        let outcome = decode(changed.clone(), signed.then_some(&verifying));
        prop_assert_eq!(outcome.is_ok(), changed == file, "byte {} of {}", at, file.len());
        let cut = decode(file[..at].to_vec(), None);
        let expected = file.len() as u64;
        let text = format!("{cut:?}");
        prop_assert!(
            match cut {
                Err(FileError::NotASnapshot) => at == 0,
                Err(FileError::Truncated { bytes, expected: whole }) =>
                    bytes == at as u64 && (whole == expected || at < 56),
                _ => false,
            },
            "cut at {}: {}", at, text
        );
    }

    /// Past the check sum, whatever it says.
    #[test]
    fn a_body_by_chance_is_refused_or_read_and_never_more(
        mut edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let file = encode(&golden(), CREATED_MS, None).unwrap();
        let mut body = file[56..].to_vec();
        for (at, to) in edits.drain(..) {
            let at = at.index(body.len());
            body[at] = to;
        }
        if let Some(cut) = cut {
            body.truncate(cut.index(body.len() + 1));
        }
        match decode(seal(&body, None).unwrap(), None) {
            Ok((served, meta)) => {
                // Whatever was read is written as it was: nothing went unseen.
                prop_assert_eq!(encode(&served, meta.created_ms, None).unwrap()[56..].to_vec(), body);
            }
            Err(error) => prop_assert!(matches!(error, FileError::Corrupt(_)), "{}", error),
        }
    }

    #[test]
    fn noise_is_refused(noise in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert_eq!(decode(noise.clone(), None), Err(FileError::NotASnapshot));
        let sealed = seal(&noise, None).unwrap();
        prop_assert!(matches!(decode(sealed, None), Err(FileError::Corrupt(_))));
    }
}

fn with(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut file = encode(&golden(), CREATED_MS, None).unwrap();
    file[at..at + bytes.len()].copy_from_slice(bytes);
    file
}

#[test]
fn each_refusal_says_what_is_wrong() {
    let text = |bytes: Vec<u8>| decode(bytes, None).unwrap_err().to_string();
    let start = "not a snapshot file: write one with `render snapshot --estate DIR --out FILE`";
    assert_eq!(text(b"owner: somebody\n".to_vec()), start);
    assert_eq!(text(Vec::new()), start);
    let newer = "format 2 is newer than the 1 that this version reads: upgrade it first";
    assert_eq!(text(with(8, &[2])), newer);
    assert_eq!(text(with(8, &[2])[..12].to_vec()), newer);
    assert_eq!(text(with(8, &[0])), "corrupted: format 0");
    assert_eq!(text(with(12, &[2])), "corrupted: unknown flags");
    let whole = encode(&golden(), CREATED_MS, None).unwrap();
    assert_eq!(
        text(whole[..100].to_vec()),
        format!("cut short: 100 of {} bytes are there", whole.len())
    );
    assert_eq!(text([&whole[..], b"x"].concat()), "corrupted: bytes after its end");
    assert_eq!(text(with(100, b"?")), "corrupted: the check sum does not fit");
    let claimed = u64::MAX;
    assert_eq!(
        text(with(16, &claimed.to_le_bytes())),
        format!("{claimed} bytes are more than the 536870912 of a snapshot file")
    );
}

#[test]
fn what_claims_more_than_is_there_costs_nothing() {
    // A list of four thousand million artefacts in a body of 60 bytes.
    let mut body = vec![0; 44];
    body.extend_from_slice(&u32::MAX.to_le_bytes());
    body.extend_from_slice(&[0; 12]);
    let refused = decode(seal(&body, None).unwrap(), None);
    assert_eq!(refused, Err(FileError::Corrupt("a field reaches past the end")));
}

#[test]
fn a_section_that_may_be_skipped_is_skipped() {
    let file = encode(&golden(), CREATED_MS, None).unwrap();
    let with_section = |tag: u32| {
        let mut body = file[56..file.len() - 4].to_vec();
        body.extend_from_slice(&1_u32.to_le_bytes());
        body.extend_from_slice(&tag.to_le_bytes());
        body.extend_from_slice(&3_u32.to_le_bytes());
        body.extend_from_slice(b"new");
        decode(seal(&body, None).unwrap(), None)
    };
    assert_eq!(with_section(1 << 16).unwrap().0, golden());
    assert_eq!(
        with_section(7),
        Err(FileError::Corrupt("a section that this version does not know"))
    );
}

#[test]
fn with_a_key_only_what_it_signed_is_taken() {
    let verifying = key().verifying_key();
    let signed = encode(&golden(), CREATED_MS, Some(&key())).unwrap();
    let unsigned = encode(&golden(), CREATED_MS, None).unwrap();
    let foreign = encode(&golden(), CREATED_MS, Some(&SigningKey::from_bytes(&[8; 32]))).unwrap();
    assert!(decode(signed.clone(), Some(&verifying)).unwrap().1.signed);
    assert!(decode(signed.clone(), None).unwrap().1.signed);
    assert_eq!(decode(unsigned, Some(&verifying)), Err(FileError::Unsigned));
    assert_eq!(decode(foreign, Some(&verifying)), Err(FileError::BadSignature));
    // Taking the signature off and the flag with it does not help.
    let mut stripped = signed[..signed.len() - 64].to_vec();
    stripped[12] = 0;
    assert_eq!(decode(stripped, Some(&verifying)), Err(FileError::Unsigned));
}

#[test]
fn keys_are_read_from_pem() {
    let private = key().to_pkcs8_pem(Default::default()).unwrap();
    let public = key().verifying_key().to_public_key_pem(Default::default()).unwrap();
    assert_eq!(signing_key(&format!("\n{}\n", private.as_str())).unwrap(), key());
    assert_eq!(verifying_key(&public).unwrap(), key().verifying_key());
    // As `openssl genpkey -algorithm ed25519` writes it.
    let openssl = "-----BEGIN PRIVATE KEY-----\n\
                   MC4CAQAwBQYDK2VwBCIEIAcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcH\n\
                   -----END PRIVATE KEY-----\n";
    assert_eq!(signing_key(openssl).unwrap(), key());
    let error = signing_key(&public).unwrap_err().to_string();
    assert!(error.starts_with("not an Ed25519 private key in PEM (`openssl genpkey"), "{error}");
    assert!(verifying_key(&private).is_err());
    assert!(verifying_key("").is_err());
}

#[test]
fn a_file_is_replaced_whole_and_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("head.snapshot");
    let first = encode(&head(vec![], vec![]), CREATED_MS, None).unwrap();
    let second = encode(&golden(), CREATED_MS + 1, None).unwrap();
    file::write(&path, &first).unwrap();
    let (_, old) = file::read(&path, None).unwrap();
    file::write(&path, &second).unwrap();
    let (served, new) = file::read(&path, None).unwrap();
    assert_eq!(served, golden());
    assert!(old.older_than(&new));
    assert!(!new.older_than(&old) && !new.older_than(&new));
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "nothing is left beside it");
    assert!(file::write(&folder.path().join("no/such/folder"), &second).is_err());
}

#[cfg(unix)]
#[test]
fn a_file_that_others_may_write_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("head.snapshot");
    file::write(&path, &encode(&golden(), CREATED_MS, None).unwrap()).unwrap();
    for mode in [0o664, 0o646] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(file::read(&path, None), Err(FileError::WritableByOthers { mode }));
    }
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o444)).unwrap();
    assert!(file::read(&path, None).is_ok());
    let missing = file::read(&folder.path().join("none"), None).unwrap_err();
    assert!(matches!(missing, FileError::Io(_)), "{missing}");
}
