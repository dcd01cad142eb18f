//! The operators' listener.

use std::fs;

use super::support::estate::Estate;
use super::support::gateway::Gateway;
use super::support::http::Request;
use super::support::{opamp, until};

fn serve(estate: &Estate, more: &[&str]) -> Gateway {
    Gateway::serve(&[&["--estate", estate.path().to_str().unwrap()], more].concat())
}

#[test]
fn only_known_hosts_are_answered() {
    let estate = Estate::new();
    let gateway = serve(&estate, &["--admin-host", "Tidegate.example,other.example"]);
    let status =
        |host: Option<&str>, path: &str| Request::get(path).host(host).send(gateway.admin).status;
    for host in
        ["localhost", "127.0.0.1:4321", "[::1]:4321", "tidegate.example", "OTHER.example:80"]
    {
        assert_eq!(status(Some(host), "/metrics"), 200, "{host}");
    }
    for host in ["evil.example", "localhost.evil.example"] {
        assert_eq!(status(Some(host), "/metrics"), 421, "{host}");
        assert_eq!(status(Some(host), "/readyz"), 421, "{host}");
    }
    assert_eq!(status(None, "/healthz"), 200, "plain health checks send no host");
    let refused = "tidegate_auth_failures_total{listener=\"admin\",reason=\"host\"}";
    assert_eq!(gateway.metrics()[refused], 4.0);
}

#[test]
fn a_token_opens_everything_and_health_needs_none() {
    let estate = Estate::new();
    let file = estate.file("admin-tokens");
    let token = "0123456789abcdef01234567";
    fs::write(&file, format!("{token}\n")).unwrap();
    let gateway = serve(&estate, &["--admin-token-file", file.to_str().unwrap()]);
    let status = |path: &str, authorization: &str| {
        let request = Request::get(path).header("Authorization", authorization);
        request.send(gateway.admin).status
    };
    for path in ["/", "/metrics", "/api/v1/head", "/api/v1/collectors", "/nothing"] {
        assert_eq!(gateway.get(path).status, 401, "{path}");
    }
    assert!(gateway.get("/").head.contains("www-authenticate: Basic realm=\"tidegate\", Bearer"));
    assert_eq!(gateway.get("/healthz").status, 200);
    assert_eq!(gateway.get("/readyz").status, 200);
    assert_eq!(status("/metrics", &format!("Bearer {token}")), 200);
    // "prometheus" and the token, as a browser or a scraper encodes them.
    let basic = "Basic cHJvbWV0aGV1czowMTIzNDU2Nzg5YWJjZGVmMDEyMzQ1Njc=";
    assert_eq!(status("/metrics", basic), 200);
    assert_eq!(status("/metrics", "Bearer 0123456789abcdef01234568"), 401);

    fs::write(&file, "another-0123456789abcdef\n").unwrap();
    until("the token to be rotated", || {
        (status("/metrics", "Bearer another-0123456789abcdef") == 200).then_some(())
    });
    assert_eq!(status("/metrics", &format!("Bearer {token}")), 401);
}

#[test]
fn other_origins_change_nothing_and_nothing_is_cached() {
    let estate = Estate::new();
    let gateway = serve(&estate, &[]);
    let post = |origin| {
        Request::new("POST", "/api/v1/head").header("Origin", origin).send(gateway.admin).status
    };
    assert_eq!(post("http://evil.example"), 403);
    assert_eq!(post("http://localhost"), 405, "nothing can be changed yet");
    let head = gateway.get("/api/v1/head").head;
    assert!(head.contains("cache-control: no-store"), "{head}");
    assert_eq!(gateway.get("/nothing").status, 404);
}

#[test]
fn head_and_tiers_are_told() {
    let estate = Estate::new();
    let gateway = serve(&estate, &[]);
    let head = gateway.json("/api/v1/head");
    assert_eq!(head["commit"], super::support::estate::RENDERED_AT);
    assert_eq!((&head["tiers"], &head["generation"]), (&2.into(), &1.into()));
    assert_eq!(head["source_status"]["kind"], "estate");

    opamp::offered(gateway.listen, 1, "web");
    opamp::offered(gateway.listen, 2, "nobody");
    let tiers = gateway.json("/api/v1/tiers?limit=1");
    assert_eq!(tiers["items"][0]["id"], "shop/batch");
    assert_eq!(tiers["items"][0]["collectors"], 0);
    assert_eq!(tiers["next"], "shop/batch");
    assert_eq!(tiers["unmatched_collectors"], 1);
    let rest = gateway.json("/api/v1/tiers?limit=1&cursor=shop/batch");
    assert_eq!(rest["items"][0]["id"], "shop/web");
    assert_eq!(rest["items"][0]["selector"]["service.name"], "web");
    assert_eq!(rest["items"][0]["collectors"], 1);
    assert!(rest.get("next").is_none(), "{rest}");
    let metrics = gateway.metrics();
    assert_eq!(metrics["tidegate_unmatched_collectors"], 1.0);
    let web = "tidegate_collectors{tier=\"shop/web\",arm=\"none\",status=\"pending\"}";
    assert_eq!(metrics[web], 1.0, "{metrics:?}");
    assert_eq!(gateway.json("/api/v1/rollouts")["items"], serde_json::json!([]));
}

#[test]
fn collectors_are_told_page_by_page_and_their_secrets_never() {
    let estate = Estate::new();
    let gateway = serve(&estate, &[]);
    for uid in 1..=5 {
        let attributes = [("service.name", "web"), ("api.key", "hunter2")];
        opamp::request(opamp::report(uid, &attributes)).send(gateway.listen);
    }
    let mut seen = std::collections::BTreeSet::new();
    let mut path = "/api/v1/collectors?limit=2".to_owned();
    loop {
        let page = gateway.get(&path).text();
        assert!(!page.contains("hunter2"), "{page}");
        let page: serde_json::Value = serde_json::from_str(&page).unwrap();
        let items = page["items"].as_array().unwrap();
        assert!(items.len() <= 2);
        for item in items {
            assert_eq!((&item["tier"], &item["transport"]), (&"shop/web".into(), &"http".into()));
            assert_eq!(item["attributes"], serde_json::json!({"service.name": "web"}));
            assert!(seen.insert(item["uid"].to_string()), "{item} twice");
        }
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/api/v1/collectors?limit=2&cursor={next}");
    }
    assert_eq!(seen.len(), 5);
    for bad in ["limit=0", "limit=x", "cursor=x", "nonsense=1", "limit=-1"] {
        let answer = gateway.get(&format!("/api/v1/collectors?{bad}"));
        assert_eq!(answer.status, 400, "{bad}");
        assert!(answer.text().contains("\"error\":"), "{answer:?}");
    }
}

#[test]
fn rollouts_are_told_with_their_stages() {
    let demo = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/estates/demo");
    let gateway = Gateway::serve(&["--estate", demo]);
    let rollouts = gateway.json("/api/v1/rollouts");
    let canary = &rollouts["items"][0];
    assert_eq!(canary["id"], "data-flow/bridge-canary");
    assert_eq!((&canary["stage"], &canary["hold"]), (&1.into(), &false.into()));
    let stages = serde_json::json!([
        {"hosts": {"attribute": "host.name", "values": 2}, "soak_seconds": 7_200},
        {"percent": 25, "soak_seconds": 86_400},
        {"percent": 100, "soak_seconds": 86_400},
    ]);
    assert_eq!(canary["stages"], stages);
    let metrics = gateway.metrics();
    let rollout = "rollout=\"data-flow/bridge-canary\"";
    let value = |name: &str| metrics[&format!("tidegate_rollout_{name}{{{rollout}}}")];
    assert_eq!((value("stage"), value("stages")), (1.0, 3.0));
    assert_eq!(value("soak_required_seconds"), 86_400.0);
    let info = format!(
        "tidegate_rollout_info{{{rollout},tier=\"data-flow/kafka-bridge\",\
         from=\"data-flow/bridge-standard@2\",to=\"data-flow/bridge-next@1\"}}"
    );
    assert_eq!(metrics[&info], 1.0);
}
