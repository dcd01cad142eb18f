//! What the page is dressed in: a style sheet, a script, icons. They are part of the binary, and
//! their address names their content, so that a browser may keep them for ever.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};

use super::html::Html;
use crate::tokens::new::hex;

const STYLE: &str = include_str!("../../../ui/page.css");
const SCRIPT: &str = include_str!("../../../ui/page.js");

/// What the browser's tab shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::admin) enum Icon {
    Critical,
    Warning,
    Well,
}

/// A file of the page.
struct Asset {
    name: &'static str,
    media_type: &'static str,
    bytes: &'static str,
}

static ASSETS: [Asset; 5] = [
    Asset { name: "page.css", media_type: "text/css; charset=utf-8", bytes: STYLE },
    Asset { name: "page.js", media_type: "text/javascript; charset=utf-8", bytes: SCRIPT },
    Asset {
        name: "critical.svg",
        media_type: "image/svg+xml",
        bytes: include_str!("../../../ui/critical.svg"),
    },
    Asset {
        name: "warning.svg",
        media_type: "image/svg+xml",
        bytes: include_str!("../../../ui/warning.svg"),
    },
    Asset {
        name: "well.svg",
        media_type: "image/svg+xml",
        bytes: include_str!("../../../ui/well.svg"),
    },
];

/// Hash over all of them.
static BUILD: LazyLock<String> = LazyLock::new(|| {
    let mut hash = Sha256::new();
    for asset in &ASSETS {
        hash.update(asset.bytes.as_bytes());
    }
    hex(&hash.finalize()[..8])
});

static PATHS: LazyLock<[String; 5]> =
    LazyLock::new(|| ASSETS.each_ref().map(|asset| format!("/ui/{}/{}", *BUILD, asset.name)));

/// Names this dress: a page of another one must be loaded again, not changed.
pub(in crate::admin) fn build() -> &'static str {
    &BUILD
}

pub(in crate::admin) fn style_path() -> &'static str {
    &PATHS[0]
}

pub(in crate::admin) fn script_path() -> &'static str {
    &PATHS[1]
}

pub(in crate::admin) fn icon_path(icon: Icon) -> &'static str {
    match icon {
        Icon::Critical => &PATHS[2],
        Icon::Warning => &PATHS[3],
        Icon::Well => &PATHS[4],
    }
}

/// What stands in the head of every page.
pub(in crate::admin) fn head(h: &mut Html, title: &str, icon: &str) {
    h.void("meta", &[("charset", "utf-8")]);
    h.void("meta", &[("name", "viewport"), ("content", "width=device-width, initial-scale=1")]);
    h.void("meta", &[("name", "color-scheme"), ("content", "light dark")]);
    h.line("title", &[], title);
    h.void("link", &[("rel", "icon"), ("id", "icon"), ("type", "image/svg+xml"), ("href", icon)]);
    h.void("link", &[("rel", "stylesheet"), ("href", style_path())]);
}

/// `/ui/{build}/{name}`. The build is not compared: a page that an older binary made finds the
/// newest dress, and one day's lifetime instead of a year's.
pub(in crate::admin) async fn asset(
    Path((build, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    let Some(asset) = ASSETS.iter().find(|asset| asset.name == name) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let tag = format!("\"{}\"", *BUILD);
    let lifetime = if build == *BUILD { "public, max-age=31536000, immutable" } else { "no-cache" };
    let mut answer = if super::knows(&headers, &tag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        ([(header::CONTENT_TYPE, asset.media_type)], asset.bytes).into_response()
    };
    let answered = answer.headers_mut();
    answered.insert(header::CACHE_CONTROL, HeaderValue::from_static(lifetime));
    answered.extend(HeaderValue::try_from(tag).map(|tag| (header::ETAG, tag)));
    answer
}
