//! The status page over the wire: who gets it, under which headers, and how a browser signs in.

use std::fs;

use super::support::estate::Estate;
use super::support::gateway::Gateway;
use super::support::http::{Answer, Request};

const HTML: &str = "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8";
const TOKEN: &str = "0123456789abcdef01234567";

fn serve(estate: &Estate, more: &[&str]) -> Gateway {
    Gateway::serve(&[&["--estate", estate.path().to_str().unwrap()], more].concat())
}

fn browse(gateway: &Gateway, path: &str) -> Answer {
    Request::get(path).header("Accept", HTML).send(gateway.admin)
}

/// The value of a header, which is there once.
#[track_caller]
fn header<'a>(answer: &'a Answer, name: &str) -> &'a str {
    let values: Vec<&str> = answer
        .head
        .lines()
        .filter_map(|line| line.split_once(": "))
        .filter(|(known, _)| known.eq_ignore_ascii_case(name))
        .map(|(_, value)| value)
        .collect();
    assert_eq!(values.len(), 1, "{name} in {}", answer.head);
    values[0]
}

#[test]
fn browsers_get_the_page_and_programs_a_list() {
    let estate = Estate::new();
    let gateway = serve(&estate, &[]);
    let page = browse(&gateway, "/");
    assert_eq!(page.status, 200);
    assert!(page.text().starts_with("<!doctype html>"), "{}", page.text());
    assert!(page.text().contains("shop/batch"), "{}", page.text());
    for (name, value) in [
        ("content-type", "text/html; charset=utf-8"),
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "same-origin"),
        ("cache-control", "private, no-cache"),
        ("cross-origin-resource-policy", "same-origin"),
        ("cross-origin-opener-policy", "same-origin"),
        ("vary", "accept"),
    ] {
        assert_eq!(header(&page, name), value, "{name}");
    }
    let policy = header(&page, "content-security-policy");
    assert!(policy.starts_with("default-src 'none'; "), "{policy}");
    assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
    assert!(gateway.get("/").text().starts_with("Tidegate "), "programs read text");
}

#[test]
fn what_a_browser_has_is_not_sent_again() {
    let estate = Estate::new();
    let gateway = serve(&estate, &[]);
    let page = browse(&gateway, "/");
    let text = page.text();
    let style = text.split('"').find(|part| part.ends_with("/page.css")).unwrap();
    let sheet = gateway.get(style);
    assert_eq!((sheet.status, header(&sheet, "content-type")), (200, "text/css; charset=utf-8"));
    assert_eq!(header(&sheet, "cache-control"), "public, max-age=31536000, immutable");
    let again = Request::get(style).header("If-None-Match", header(&sheet, "etag"));
    assert_eq!(again.send(gateway.admin).status, 304);
    let old = gateway.get("/ui/0123/page.css");
    assert_eq!((old.status, header(&old, "cache-control")), (200, "no-cache"));
    assert_eq!(gateway.get("/ui/0123/../../etc/passwd").status, 404);
    assert_eq!(gateway.get("/ui/0123/other.css").status, 404);

    // Ages in words change for the first minute; one tag follows the other until it holds.
    let mut tag = header(&page, "etag").to_owned();
    super::support::until("a page that is known", || {
        let request = Request::get("/").header("Accept", HTML).header("If-None-Match", &tag);
        let answer = request.send(gateway.admin);
        tag = header(&answer, "etag").to_owned();
        (answer.status == 304).then(|| assert_eq!(answer.body, b""))
    });
}

#[test]
fn a_browser_signs_in_with_the_token_and_out_again() {
    let estate = Estate::new();
    let file = estate.file("admin-tokens");
    fs::write(&file, format!("{TOKEN}\n")).unwrap();
    let gateway = serve(&estate, &["--admin-token-file", file.to_str().unwrap()]);
    let answer = browse(&gateway, "/");
    assert_eq!((answer.status, header(&answer, "location")), (303, "/login"));
    let form = browse(&gateway, "/login");
    assert_eq!(form.status, 200);
    let style = form.text();
    let style = style.split('"').find(|part| part.ends_with("/page.css")).unwrap();
    assert_eq!(gateway.get(style).status, 200, "what dresses the form is for everybody");

    let post = |path: &str, headers: &[(&str, &str)], token: &str| {
        let form = "application/x-www-form-urlencoded";
        let mut request = Request::new("POST", path).header("Content-Type", form);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        request.body(format!("username=admin&token={token}").into_bytes()).send(gateway.admin)
    };
    let from_us = [("Origin", "http://localhost")];
    assert_eq!(post("/login", &[("Origin", "http://evil.example")], TOKEN).status, 403);
    assert_eq!(post("/login", &[("Origin", "null")], TOKEN).status, 403);
    let wrong = post("/login", &from_us, "0123456789abcdef01234568");
    assert_eq!(wrong.status, 403);
    assert!(wrong.text().contains("none of the tokens"), "{}", wrong.text());
    assert!(!wrong.head.contains("set-cookie"), "{}", wrong.head);
    assert_eq!(post("/login", &from_us, &"x".repeat(5_000)).status, 400);

    let right = post("/login", &from_us, &format!("%20{TOKEN}+"));
    assert_eq!((right.status, header(&right, "location")), (303, "/"));
    let cookie = header(&right, "set-cookie");
    let (pair, attributes) = cookie.split_once("; ").unwrap();
    assert_eq!(attributes, "Path=/; Max-Age=28800; HttpOnly; SameSite=Strict");
    assert!(!cookie.contains(TOKEN));
    let ask = |path: &str, headers: &[(&str, &str)]| {
        let mut request = Request::get(path).header("Accept", HTML).header("Cookie", pair);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        request.send(gateway.admin).status
    };
    assert_eq!(ask("/", &[]), 200);
    assert_eq!(ask("/api/v1/head", &[("Sec-Fetch-Site", "same-origin")]), 200);
    let elsewhere = [("Sec-Fetch-Site", "same-site"), ("Sec-Fetch-Mode", "no-cors")];
    assert_eq!(ask("/api/v1/head", &elsewhere), 401, "a page on another port of this host");

    let other = post("/logout", &[("Origin", "http://evil.example"), ("Cookie", pair)], "");
    assert_eq!((other.status, ask("/", &[])), (403, 200), "nobody else signs us out");
    let out = post("/logout", &[from_us[0], ("Cookie", pair)], "");
    assert_eq!((out.status, header(&out, "location")), (303, "/login"));
    assert!(header(&out, "set-cookie").contains("Max-Age=0"));
    assert_eq!(ask("/", &[]), 303, "the session is over, whatever the browser keeps");

    // A page of ours that asks must not make the browser ask its reader for a password.
    let quiet = Request::get("/api/v1/head").header("Sec-Fetch-Mode", "cors").send(gateway.admin);
    assert_eq!((quiet.status, header(&quiet, "www-authenticate")), (401, "Bearer"));

    let tries: Vec<u16> = (0..8).map(|_| post("/login", &from_us, "guess").status).collect();
    assert_eq!(tries.iter().filter(|status| **status == 403).count(), 4, "{tries:?}");
    let held = post("/login", &from_us, TOKEN);
    assert_eq!(held.status, 429);
    assert!((1..=11).contains(&header(&held, "retry-after").parse::<u32>().unwrap()));
    let metrics = Request::get("/metrics").header("Authorization", &format!("Bearer {TOKEN}"));
    assert_eq!(metrics.send(gateway.admin).status, 200, "programs are not held back by it");
}
