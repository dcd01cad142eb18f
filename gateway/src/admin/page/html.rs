//! The only way markup is made: element by element, so that it is well formed, and every text and
//! attribute value is escaped, so that a peer's stays text.

use std::ops::Range;

use render::problem::printable;

/// Names and values of attributes; an empty value is written out as one.
pub(in crate::admin) type Attributes<'a> = &'a [(&'static str, &'a str)];

/// A document while it is written.
#[derive(Debug, Default)]
pub(in crate::admin) struct Html {
    out: String,
}

impl Html {
    /// The first line of every page.
    pub(in crate::admin) fn document() -> Self {
        Self { out: "<!doctype html>\n".to_owned() }
    }

    /// An element with `body` inside.
    pub(in crate::admin) fn el(
        &mut self,
        tag: &'static str,
        attributes: Attributes<'_>,
        body: impl FnOnce(&mut Self),
    ) {
        self.begin(tag, attributes);
        self.out.push('>');
        body(self);
        self.out.push_str("</");
        self.out.push_str(tag);
        self.out.push('>');
    }

    /// An element with a text inside.
    pub(in crate::admin) fn line(
        &mut self,
        tag: &'static str,
        attributes: Attributes<'_>,
        text: &str,
    ) {
        self.el(tag, attributes, |h| h.text(text));
    }

    /// An element that has nothing inside: `meta`, `input`, an SVG shape.
    pub(in crate::admin) fn void(&mut self, tag: &'static str, attributes: Attributes<'_>) {
        self.begin(tag, attributes);
        self.out.push_str("/>");
    }

    /// A text; characters that would hide or turn around what follows are shown as escapes.
    pub(in crate::admin) fn text(&mut self, text: &str) {
        escape(text, &mut self.out);
    }

    /// What `body` writes, and where it stands.
    pub(in crate::admin) fn marked(&mut self, body: impl FnOnce(&mut Self)) -> Range<usize> {
        let from = self.out.len();
        body(self);
        from..self.out.len()
    }

    /// The document.
    pub(in crate::admin) fn finish(self) -> String {
        self.out
    }

    fn begin(&mut self, tag: &'static str, attributes: Attributes<'_>) {
        self.out.push('<');
        self.out.push_str(tag);
        for (name, value) in attributes {
            self.out.push(' ');
            self.out.push_str(name);
            self.out.push_str("=\"");
            escape(value, &mut self.out);
            self.out.push('"');
        }
    }
}

/// Fit for the text of an element and for a quoted attribute.
fn escape(text: &str, out: &mut String) {
    for c in printable(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            _ => out.push(c),
        }
    }
}

/// `url` if it is one that a link may lead to: `http` or `https`, visible ASCII, a host and nobody's
/// name before it.
pub(in crate::admin) fn link_target(url: &str) -> Option<&str> {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"))?;
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let plain = url.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"'<>\\`".contains(&byte));
    let named = !host.is_empty() && !host.starts_with(':') && !host.contains('@');
    (plain && named && url.len() <= URL_BYTES_MAX).then_some(url)
}

/// Longest address that is linked to.
const URL_BYTES_MAX: usize = 2_048;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What a browser makes of escaped text.
    fn unescaped(text: &str) -> String {
        let entities =
            [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&amp;", "&")];
        entities.iter().fold(text.to_owned(), |text, (entity, c)| text.replace(entity, c))
    }

    proptest! {
        #[test]
        fn any_text_stays_text(text in any::<String>(), value in "[<>&\"'a-z=/ ]{0,40}") {
            let mut html = Html::default();
            html.el("p", &[("title", &value)], |h| h.text(&text));
            let html = html.finish();
            let (title, inner) =
                html.strip_prefix("<p title=\"").unwrap().strip_suffix("</p>").unwrap().split_once("\">").unwrap();
            for part in [title, inner] {
                prop_assert!(!part.contains(['<', '>', '"', '\'']), "{}", html);
                prop_assert!(!part.chars().any(char::is_control), "{}", html);
            }
            prop_assert_eq!(unescaped(title), value);
            prop_assert_eq!(unescaped(inner), printable(&text));
        }
    }

    #[test]
    fn only_plain_web_addresses_are_linked_to() {
        for good in ["https://forge.example/pulls/1", "http://10.0.0.1:3000/a?b=c#d"] {
            assert_eq!(link_target(good), Some(good));
        }
        for bad in [
            "javascript:alert(1)",
            "JAVASCRIPT:alert(1)",
            " https://forge.example",
            "data:text/html,x",
            "//forge.example",
            "https://",
            "https://:80/",
            "https:///path",
            "https://forge.example@evil.example/",
            "https://forge.example/\"onmouseover=alert(1)",
            "https://forge.example/\u{202e}",
            "ftp://forge.example",
        ] {
            assert_eq!(link_target(bad), None, "{bad}");
        }
        assert_eq!(link_target(&format!("https://a/{}", "b".repeat(2_048))), None);
    }
}
