//! `/login` and `/logout`: a browser gives an admin token once and holds a cookie instead.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use axum::Form;
use axum::extract::rejection::FormRejection;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use super::page::html::Html;
use super::page::{assets, sent};
use super::sessions::SESSION_SECONDS;
use super::tokens::hash;
use super::{Admin, Peer};

/// Bytes of the form's answer.
pub const FORM_BYTES_MAX: usize = 4 << 10;

/// What the form sends.
#[derive(Deserialize)]
pub struct Given {
    token: String,
}

/// `GET /login`.
pub async fn form(State(admin): State<Arc<Admin>>) -> Response {
    if !admin.tokens.load().required() {
        return see("/");
    }
    page(StatusCode::OK, None)
}

/// `POST /login`.
pub async fn sign_in(
    State(admin): State<Arc<Admin>>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
    given: Result<Form<Given>, FormRejection>,
) -> Response {
    let peer = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |Extension(Peer(peer))| peer);
    let tokens = admin.tokens.load();
    if !tokens.required() {
        return see("/");
    }
    if let Some(wait) = admin.sessions.must_wait(peer, admin.clock.elapsed()) {
        admin.metrics.auth_failures.count(&["admin", "login_limited"]);
        let seconds = wait.as_secs() + 1;
        let why = format!("Too many wrong tokens from your address; try again in {seconds} s.");
        let mut answer = page(StatusCode::TOO_MANY_REQUESTS, Some(&why));
        answer.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        return answer;
    }
    let Ok(Form(Given { token })) = given else {
        return page(StatusCode::BAD_REQUEST, Some("That was no answer to this form."));
    };
    let token = hash(token.trim().as_bytes());
    if !tokens.contains_hash(&token) {
        admin.metrics.auth_failures.count(&["admin", "login"]);
        admin.sessions.handle_wrong(peer, admin.clock.elapsed());
        let why = "That is none of the tokens in the gateway's --admin-token-file.";
        return page(StatusCode::FORBIDDEN, Some(why));
    }
    match admin.sessions.begin(token, admin.clock.seconds()) {
        Ok(secret) => with_cookie(see("/"), &headers, &secret, SESSION_SECONDS),
        Err(error) => {
            tracing::error!(%error, "no session can begin");
            page(StatusCode::INTERNAL_SERVER_ERROR, Some("No session can begin; see the log."))
        }
    }
}

/// `POST /logout`.
pub async fn sign_out(State(admin): State<Arc<Admin>>, headers: HeaderMap) -> Response {
    if let Some(secret) = secret(&headers) {
        admin.sessions.end(secret);
    }
    with_cookie(see("/login"), &headers, "", 0)
}

/// The secret in the cookie, where there is one.
pub(super) fn secret(headers: &HeaderMap) -> Option<&[u8]> {
    let name = cookie_name(headers);
    headers
        .get_all(header::COOKIE)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b';'))
        .find_map(|pair| pair.trim_ascii().strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}

/// Cookies are for a host, whatever the port: gateways beside each other must not take each other's.
fn cookie_name(headers: &HeaderMap) -> String {
    let host = headers.get(header::HOST).map_or(&b""[..], |host| host.as_bytes());
    let port = host.rsplit(|byte| *byte == b':').next().unwrap_or_default();
    let port = std::str::from_utf8(port).ok().and_then(|port| port.parse::<u16>().ok());
    port.map_or_else(|| "tidegate".to_owned(), |port| format!("tidegate-{port}"))
}

/// Our pages alone send it, scripts cannot read it, and behind a proxy with TLS it stays there.
fn with_cookie(mut answer: Response, headers: &HeaderMap, secret: &str, age: u32) -> Response {
    let over_tls = headers
        .get(header::ORIGIN)
        .is_some_and(|origin| origin.as_bytes().starts_with(b"https://"));
    let secure = if over_tls { "; Secure" } else { "" };
    let name = cookie_name(headers);
    let cookie =
        format!("{name}={secret}; Path=/; Max-Age={age}; HttpOnly; SameSite=Strict{secure}");
    answer
        .headers_mut()
        .extend(HeaderValue::try_from(cookie).map(|cookie| (header::SET_COOKIE, cookie)));
    answer
}

/// Look there.
pub(super) fn see(path: &'static str) -> Response {
    (StatusCode::SEE_OTHER, [(header::LOCATION, path)]).into_response()
}

fn page(status: StatusCode, why: Option<&str>) -> Response {
    let mut html = Html::document();
    html.el("html", &[("lang", "en")], |h| {
        h.el("head", &[], |h| {
            let icon = assets::icon_path(assets::Icon::Well);
            assets::head(h, "Sign in · Tidegate", icon);
        });
        h.el("body", &[("class", "login")], |h| {
            h.el("main", &[], |h| {
                h.line("p", &[("class", "brand")], "Tidegate");
                h.line("h1", &[], "Sign in");
                if let Some(why) = why {
                    h.line("p", &[("class", "problem"), ("role", "alert"), ("id", "why")], why);
                }
                fields(h, why.is_some());
                h.line(
                    "p",
                    &[("class", "hint")],
                    "A line of the gateway's --admin-token-file. It is exchanged for a cookie that \
                     lasts 8 hours and ends when the gateway does.",
                );
                h.el("p", &[("class", "hint")], |h| {
                    h.text("Signed in already, and sent here by a link from elsewhere? ");
                    h.line("a", &[("href", "/")], "Open the status page");
                    h.text(".");
                });
            });
        });
    });
    let mut answer = sent(html.finish());
    *answer.status_mut() = status;
    answer
}

fn fields(h: &mut Html, is_wrong: bool) {
    h.el("form", &[("method", "post"), ("action", "/login")], |h| {
        // For password managers, which keep a name with each secret.
        let name: &[_] = &[
            ("type", "text"),
            ("name", "username"),
            ("value", "admin"),
            ("autocomplete", "username"),
            ("hidden", ""),
        ];
        h.void("input", name);
        h.line("label", &[("for", "token")], "Admin token");
        let mut token = vec![
            ("type", "password"),
            ("id", "token"),
            ("name", "token"),
            ("autocomplete", "current-password"),
            ("required", ""),
            ("autofocus", ""),
        ];
        if is_wrong {
            token.extend([("aria-invalid", "true"), ("aria-describedby", "why")]);
        }
        h.void("input", &token);
        h.line("button", &[("type", "submit")], "Sign in");
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn the_cookie_is_found_by_the_port_that_was_asked() {
        let found = |host, cookie| {
            let headers = headers(&[("host", host), ("cookie", cookie)]);
            secret(&headers).map(|secret| String::from_utf8_lossy(secret).into_owned())
        };
        let both = "a=b; tidegate-4321=one; tidegate-4322=two;tidegate=three";
        assert_eq!(found("localhost:4321", both).as_deref(), Some("one"));
        assert_eq!(found("[::1]:4322", both).as_deref(), Some("two"));
        assert_eq!(found("tidegate.example", both).as_deref(), Some("three"));
        assert_eq!(found("localhost:4323", both), None);
        assert_eq!(found("localhost:4321", "tidegate-43210=x"), None);
    }

    #[test]
    fn a_cookie_of_a_page_over_tls_stays_there() {
        let cookie = |origin: &'static str| {
            let headers = headers(&[("host", "tidegate.example"), ("origin", origin)]);
            let answer = with_cookie(see("/"), &headers, "s", 9);
            answer.headers()[header::SET_COOKIE].to_str().unwrap().to_owned()
        };
        let plain = "tidegate=s; Path=/; Max-Age=9; HttpOnly; SameSite=Strict";
        assert_eq!(cookie("http://tidegate.example"), plain);
        assert_eq!(cookie("https://tidegate.example"), format!("{plain}; Secure"));
    }
}
