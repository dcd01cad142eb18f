//! Bearer tokens at the front door.

use std::fs;

use super::support::estate::Estate;
use super::support::gateway::{Gateway, run};
use super::support::http::Answer;
use super::support::{opamp, until};

/// Token and line, as `gateway token new` prints them.
fn new_token(arguments: &[&str]) -> (String, String) {
    let ended = run(&[&["token", "new"], arguments].concat());
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let lines: Vec<&str> = ended.out.lines().map(str::trim).collect();
    (lines[1].to_owned(), lines[3].to_owned())
}

#[test]
fn a_new_token_is_printed_with_its_line() {
    let (token, line) = new_token(&["--name", "blue", "--require", "team=shop"]);
    assert!(token.starts_with("tidegate_") && token.len() == 9 + 64, "{token}");
    assert!(line.starts_with("blue ") && line.ends_with(" team=shop"), "{line}");
    assert!(!line.contains(&token));
    assert_ne!(new_token(&[]).0, token);
    assert_eq!(run(&["token", "new", "--name", "a b"]).code, Some(2));
    assert_eq!(run(&["token", "new", "--require", "team"]).code, Some(2));
}

#[test]
fn nobody_comes_in_without_a_token_and_revoking_takes_no_restart() {
    let estate = Estate::new();
    let file = estate.file("tokens");
    let ((first, first_line), (second, second_line)) =
        (new_token(&["--name", "one"]), new_token(&["--name", "two", "--require", "team=shop"]));
    fs::write(&file, format!("{first_line}\n{second_line}\n")).unwrap();
    let arguments =
        ["--estate", estate.path().to_str().unwrap(), "--token-file", file.to_str().unwrap()];
    let gateway = Gateway::serve(&arguments);
    let poll = |uid, authorization: Option<String>, attributes: &[(&str, &str)]| -> Answer {
        let request = opamp::request(opamp::report(uid, attributes));
        let request = match authorization {
            Some(value) => request.header("Authorization", &value),
            None => request,
        };
        request.send(gateway.listen)
    };
    let web = [("service.name", "web")];
    let bearer = |token: &str| Some(format!("Bearer {token}"));

    assert_eq!(poll(1, None, &web).status, 401);
    assert_eq!(poll(1, bearer("guess"), &web).status, 401);
    assert_eq!(poll(1, Some("Basic eDp5".to_owned()), &web).status, 401);
    assert!(opamp::reply(&poll(2, bearer(&first), &web)).remote_config.is_some());

    let refused = poll(3, bearer(&second), &web);
    assert_eq!(refused.status, 400, "it must report team=shop: {refused:?}");
    assert!(refused.text().contains("requires the attribute team"), "{refused:?}");
    let both = [("service.name", "web"), ("team", "shop")];
    assert!(opamp::reply(&poll(4, bearer(&second), &both)).remote_config.is_some());

    fs::write(&file, "broken\n").unwrap();
    gateway.logged("the old one stays in force");
    assert!(gateway.log().contains("tokens:1: no hash after the name"), "{}", gateway.log());
    assert_eq!(poll(2, bearer(&first), &web).status, 200);

    fs::write(&file, format!("{second_line}\n")).unwrap();
    until("the first token to be refused", || {
        (poll(5, bearer(&first), &web).status == 401).then_some(())
    });
    assert_eq!(poll(4, bearer(&second), &both).status, 200);
    let log = gateway.log();
    assert!(!log.contains(&first) && !log.contains(&second), "{log}");
    let metrics = gateway.metrics();
    assert_eq!(metrics["tidegate_reloads_total{what=\"tokens\",outcome=\"failed\"}"], 1.0);
    assert_eq!(metrics["tidegate_reloads_total{what=\"tokens\",outcome=\"loaded\"}"], 1.0);
    let missing = "tidegate_auth_failures_total{listener=\"opamp\",reason=\"missing\"}";
    assert_eq!(metrics[missing], 1.0);
}
