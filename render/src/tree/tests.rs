use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use super::*;

/// A directory with these files, and whatever `more` adds; read as `estate`.
fn read(files: &[&str], more: impl FnOnce(&Path)) -> Result<Vec<String>, String> {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("estate");
    fs::create_dir(&root).unwrap();
    for file in files {
        let place = root.join(file);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(place, file).unwrap();
    }
    more(&root);
    match Tree::read_dir(&root, "estate") {
        Ok(tree) => Ok(tree.files.into_keys().collect()),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn only_the_estates_own_paths_are_read() {
    let files = [
        "CODEOWNERS",
        "README.md",
        "catalogues/c.json",
        "rendered/a/deeper/x",
        "rendered/a/t.yaml",
        "teams.yaml",
        "teams/README.md",
        "teams/a/notes.yaml",
        "teams/a/tiers/.yaml",
        "teams/a/tiers/b.YAML",
        "teams/a/tiers/c.yml",
        "teams/a/tiers/d.yaml.bak",
        "teams/a/tiers/e.yaml/f.yaml",
        "users.yaml",
    ];
    let expected = [
        "CODEOWNERS",
        "rendered/a/deeper/x",
        "rendered/a/t.yaml",
        "teams.yaml",
        "teams/a/tiers/.yaml",
        "teams/a/tiers/b.YAML",
        "teams/a/tiers/c.yml",
    ];
    assert_eq!(read(&files, |_| {}).unwrap(), expected);
    let predicted: Vec<_> = files.into_iter().filter(|path| is_estate_path(path)).collect();
    assert_eq!(predicted, expected);
}

#[test]
fn a_linked_file_is_followed_and_a_linked_team_is_skipped() {
    let paths = read(&["teams/a/tiers/b.yaml", "shared/c.yaml"], |root| {
        symlink("../../../shared/c.yaml", root.join("teams/a/tiers/c.yaml")).unwrap();
        symlink("a", root.join("teams/z")).unwrap();
        symlink("../b.yaml", root.join("teams/a/tiers/ignored.txt")).unwrap();
    });
    assert_eq!(paths.unwrap(), ["teams/a/tiers/b.yaml", "teams/a/tiers/c.yaml"]);
}

#[test]
fn a_mounted_config_map_is_read_through_its_links() {
    let paths = read(&["..2026/tier.yaml"], |root| {
        symlink("..2026", root.join("..data")).unwrap();
        fs::create_dir_all(root.join("teams/a")).unwrap();
        symlink("../../..data", root.join("teams/a/tiers")).unwrap();
    });
    assert_eq!(paths.unwrap(), ["teams/a/tiers/tier.yaml"]);
}

#[test]
fn links_that_lead_out_are_refused() {
    let out = |link: &'static str| {
        read(&["teams/a/tiers/b.yaml", "rendered/a/b.yaml"], move |root| {
            let outside = root.parent().unwrap().join("outside");
            fs::create_dir_all(&outside).unwrap();
            fs::write(outside.join("x.yaml"), "secret").unwrap();
            let is_file = link.ends_with(".yaml");
            let target = if is_file { outside.join("x.yaml") } else { outside };
            symlink(target, root.join(link)).unwrap();
        })
    };
    for link in
        ["teams/a/tiers/x.yaml", "teams/a/rollouts", "teams/x", "rendered/a/x.yaml", "teams.yaml"]
    {
        let help = "symbolic link leads out of the estate; put the file inside, or delete the link";
        assert_eq!(out(link).unwrap_err(), format!("estate/{link}: {help}"));
    }
}

#[test]
fn what_cannot_be_an_estate_is_refused_by_name() {
    let missing = Tree::read_dir(Path::new("/nowhere/at/all"), "../my-estate").unwrap_err();
    assert!(missing.to_string().starts_with("../my-estate: not a directory"), "{missing}");

    let dangling = read(&["teams/a/tiers/b.yaml"], |root| {
        symlink("gone.yaml", root.join("teams/a/tiers/x.yaml")).unwrap();
    });
    assert!(dangling.unwrap_err().starts_with("failed to read estate/teams/a/tiers/x.yaml: "));

    let name = read(&["teams/a/tiers/b.yaml"], |root| {
        let name = std::ffi::OsStr::from_bytes(b"\xff.yaml");
        fs::write(root.join("teams/a/tiers").join(name), "").unwrap();
    });
    assert_eq!(
        name.unwrap_err(),
        "estate/teams/a/tiers/\u{fffd}.yaml: name is not UTF-8; rename the file"
    );

    let socket = read(&["teams/a/tiers/b.yaml"], |root| {
        std::os::unix::net::UnixListener::bind(root.join("teams/a/tiers/s.yaml")).unwrap();
    });
    assert!(socket.unwrap_err().contains("not a regular file"));

    let large = read(&["teams/a/tiers/b.yaml"], |root| {
        let file = File::create(root.join("teams/a/tiers/large.yaml")).unwrap();
        file.set_len(MAX_FILE_BYTES + 1).unwrap();
    });
    assert_eq!(
        large.unwrap_err(),
        "estate/teams/a/tiers/large.yaml: past the limit of 4194304 bytes in a file"
    );

    let deep = format!("rendered/{}x", "d/".repeat(MAX_RENDERED_DEPTH));
    assert!(read(&[&deep], |_| {}).unwrap_err().ends_with("limit of 8 folders below each other"));
}
