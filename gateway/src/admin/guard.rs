//! Who may ask: the `Host` they believe to talk to, the token they hold, the page they come from.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::Admin;
use super::login::{secret, see};
use super::page::wants_page;
use crate::tokens::{Denied, bearer};

/// Lets a request through, or says why not.
pub async fn guard(State(admin): State<Arc<Admin>>, request: Request, next: Next) -> Response {
    let (path, headers) = (request.uri().path(), request.headers());
    let health = path == "/healthz" || path == "/readyz";
    // What a browser needs to sign in, and out of a session that ended.
    let open = health || path == "/login" || path == "/logout" || path.starts_with("/ui/");
    let refusal = check_host(headers, &admin.hosts, health)
        .and_then(|()| check_origin(request.method(), headers))
        .and_then(|()| if open { Ok(()) } else { check_token(&admin, headers) });
    match refusal {
        Ok(()) => next.run(request).await,
        Err(Refusal::Token(_)) if path == "/" && wants_page(headers) => see("/login"),
        Err(refusal) => refusal.answer(&admin, headers),
    }
}

/// Why a request is not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Refusal {
    /// A name that this listener was not told to answer to: a web page that had its own name
    /// resolve to our address would send it.
    Host(String),
    /// A page of another origin wants to change something.
    Origin,
    /// No token, or none of ours.
    Token(Denied),
}

impl Refusal {
    fn answer(self, admin: &Admin, headers: &HeaderMap) -> Response {
        let reason = match &self {
            Self::Host(_) => "host",
            Self::Origin => "origin",
            Self::Token(denied) => denied.reason(),
        };
        admin.metrics.auth_failures.count(&["admin", reason]);
        match self {
            Self::Host(host) => {
                let text = format!(
                    "This listener does not answer to the name {host:?}; add --admin-host if it \
                     should.\n"
                );
                (StatusCode::MISDIRECTED_REQUEST, text).into_response()
            }
            Self::Origin => {
                (StatusCode::FORBIDDEN, "Requests from other origins change nothing here.\n")
                    .into_response()
            }
            Self::Token(denied) => {
                // A browser would ask for a password in the midst of a page of ours.
                let scheme = if asks_for_a_page(headers) { "Bearer" } else { BASIC_OR_BEARER };
                let challenge = [(header::WWW_AUTHENTICATE, scheme)];
                let text = format!(
                    "{denied} (as Bearer, or as the password of Basic; see --admin-token-file)\n"
                );
                (StatusCode::UNAUTHORIZED, challenge, text).into_response()
            }
        }
    }
}

const BASIC_OR_BEARER: &str = "Basic realm=\"tidegate\", Bearer";

/// Whether a page of a browser asks, not its reader or a program.
fn asks_for_a_page(headers: &HeaderMap) -> bool {
    headers.get("sec-fetch-mode").is_some_and(|mode| mode != "navigate")
}

/// An IP address is always right: no name was resolved, so none was rebound.
fn check_host(headers: &HeaderMap, hosts: &[String], open: bool) -> Result<(), Refusal> {
    let mut values = headers.get_all(header::HOST).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        // Health checks of HTTP/1.0 send none.
        let none = open && !headers.contains_key(header::HOST);
        return if none { Ok(()) } else { Err(Refusal::Host(String::new())) };
    };
    let value = String::from_utf8_lossy(value.as_bytes());
    let name = without_port(&value).trim_end_matches('.').to_ascii_lowercase();
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().is_ok();
    if address || name == "localhost" || hosts.contains(&name) {
        return Ok(());
    }
    Err(Refusal::Host(name.chars().take(100).collect()))
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

/// State is only changed for pages of our own, and for programs, which send no `Origin`.
fn check_origin(method: &Method, headers: &HeaderMap) -> Result<(), Refusal> {
    if [Method::GET, Method::HEAD, Method::OPTIONS].contains(method) {
        return Ok(());
    }
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let host = headers.get(header::HOST).map_or(&b""[..], |host| host.as_bytes());
    let authority = [&b"http://"[..], b"https://"]
        .iter()
        .find_map(|scheme| origin.as_bytes().strip_prefix(*scheme));
    match authority {
        Some(authority) if authority.eq_ignore_ascii_case(host) => Ok(()),
        _ => Err(Refusal::Origin),
    }
}

fn check_token(admin: &Admin, headers: &HeaderMap) -> Result<(), Refusal> {
    let tokens = admin.tokens.load();
    if !tokens.required() {
        return Ok(());
    }
    let Some(header) = headers.get(header::AUTHORIZATION) else {
        let known = secret(headers)
            .filter(|_| comes_from_us(headers))
            .is_some_and(|secret| admin.sessions.holds(secret, &tokens, admin.clock.seconds()));
        return if known { Ok(()) } else { Err(Refusal::Token(Denied::Missing)) };
    };
    let token = bearer::token_or_password(header.as_bytes()).map_err(Refusal::Token)?;
    if tokens.contains(&token) { Ok(()) } else { Err(Refusal::Token(Denied::Unknown)) }
}

/// Whether a cookie may count. Browsers send it along for every page of the same site, which is any
/// port of the host; such a page may be a link to us, and nothing else.
fn comes_from_us(headers: &HeaderMap) -> bool {
    let is = |name, value: &str| headers.get(name).is_some_and(|header| header == value);
    let elsewhere = is("sec-fetch-site", "same-site") || is("sec-fetch-site", "cross-site");
    !elsewhere || is("sec-fetch-mode", "navigate")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn only_addresses_localhost_and_listed_names_are_hosts() {
        let hosts = ["tidegate.example".to_owned()];
        let check = |host| check_host(&headers(&[("host", host)]), &hosts, false).is_ok();
        for good in [
            "127.0.0.1:4321",
            "[::1]:4321",
            "10.1.2.3",
            "localhost:4321",
            "LOCALHOST.",
            "Tidegate.example:80",
        ] {
            assert!(check(good), "{good}");
        }
        for bad in ["evil.example", "evil.example:4321", "127.0.0.1.evil.example", ""] {
            assert!(!check(bad), "{bad}");
        }
        assert!(check_host(&HeaderMap::new(), &hosts, true).is_ok());
        assert!(check_host(&HeaderMap::new(), &hosts, false).is_err());
    }

    #[test]
    fn other_origins_change_nothing() {
        let check = |method: Method, origin| {
            let headers = headers(&[("host", "localhost:4321"), ("origin", origin)]);
            check_origin(&method, &headers).is_ok()
        };
        assert!(check(Method::POST, "http://localhost:4321"));
        assert!(!check(Method::POST, "http://localhost:9999"));
        assert!(!check(Method::POST, "http://evil.example"));
        assert!(!check(Method::DELETE, "null"));
        assert!(check(Method::GET, "http://evil.example"));
        assert!(check_origin(&Method::POST, &headers(&[("host", "localhost")])).is_ok());
    }

    #[test]
    fn a_cookie_counts_for_our_own_pages_and_for_links() {
        let counts = |site, mode| {
            comes_from_us(&headers(&[("sec-fetch-site", site), ("sec-fetch-mode", mode)]))
        };
        assert!(counts("same-origin", "cors"));
        assert!(counts("none", "navigate"));
        assert!(counts("same-site", "navigate"));
        assert!(!counts("same-site", "no-cors"));
        assert!(!counts("same-site", "cors"));
        assert!(!counts("cross-site", "no-cors"));
        assert!(comes_from_us(&HeaderMap::new()), "old browsers do not say");
    }
}
