//! An entry of an allow-list or a grant: `class/type-pattern`.

use std::fmt;

use crate::estate::Class;

/// `class/type-pattern`; `*` stands for any run (also an empty one), `?` for one character.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    class: Class,
    kind: Vec<char>,
    text: String,
}

/// Why an entry is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// No `/` at all.
    #[error("has no class: an entry is class/type-pattern, such as receiver/otlp")]
    NoClass,
    /// The part before `/` is none of the five classes.
    #[error("has an unknown class; the classes are {}", classes())]
    UnknownClass,
    /// Nothing after `/`.
    #[error("has no type after the class")]
    NoType,
    /// `[`, `]`, `\` or a second `/`.
    #[error("holds {0:?}; a type pattern knows * and ? only")]
    Forbidden(char),
}

impl Pattern {
    /// Reads an entry.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let (class, kind) = text.split_once('/').ok_or(PatternError::NoClass)?;
        let class = Class::parse(class).ok_or(PatternError::UnknownClass)?;
        if kind.is_empty() {
            return Err(PatternError::NoType);
        }
        if let Some(forbidden) = kind.chars().find(|c| matches!(c, '[' | ']' | '\\' | '/')) {
            return Err(PatternError::Forbidden(forbidden));
        }
        Ok(Self { class, kind: kind.chars().collect(), text: text.to_owned() })
    }

    /// Whether the pattern selects a component of that class under one of its types.
    pub fn selects(&self, class: Class, kind: &str) -> bool {
        self.class == class && glob(&self.kind, kind)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Greedy matching with one point to fall back to, so the cost is at most |pattern| x |text|.
fn glob(pattern: &[char], text: &str) -> bool {
    let text: Vec<char> = text.chars().collect();
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p + 1, t));
                p += 1;
            }
            Some(c) if *c == '?' || *c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match star {
                Some((after, taken)) => {
                    star = Some((after, taken + 1));
                    p = after;
                    t = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

fn classes() -> String {
    Class::ALL.map(Class::as_str).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, kind: &str, expect: bool) {
        let pattern = Pattern::parse(&format!("receiver/{pattern}")).expect("a good pattern");
        assert_eq!(pattern.selects(Class::Receiver, kind), expect, "{pattern} on {kind}");
        assert!(!pattern.selects(Class::Exporter, kind), "{pattern} selects one class only");
    }

    #[test]
    fn stars_and_question_marks_match_as_documented() {
        check("otlp", "otlp", true);
        check("otlp", "otlp_http", false);
        check("otlp*", "otlp", true);
        check("*", "anything", true);
        check("?tlp", "otlp", true);
        check("?otlp", "otlp", false);
        check("*_http*x", "otlp_http_http_x", true);
        check("a*b*c", "abcab", false);
        check("k?fka", "kéfka", true);
    }

    #[test]
    fn malformed_entries_are_refused() {
        for (text, error) in [
            ("otlp", PatternError::NoClass),
            ("widget/otlp", PatternError::UnknownClass),
            ("receiver/", PatternError::NoType),
            ("receiver/ot[lp]", PatternError::Forbidden('[')),
            ("receiver/a/b", PatternError::Forbidden('/')),
            ("receiver/a\\b", PatternError::Forbidden('\\')),
        ] {
            assert_eq!(Pattern::parse(text), Err(error), "{text}");
        }
    }
}
