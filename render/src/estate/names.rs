//! What an object may be called, and how one object names another (estate.md, decisions 2 and 3).

use super::decode::shown;
use super::model::{Binding, Name, Reference};

/// Why a name is refused, as a clause that follows it; `None` for a good name.
///
/// A name becomes a file name under `rendered/`, a part of an id, and a component of a branch, so
/// whatever would be ambiguous or unsafe in one of the three is refused. The last rules are those
/// of `git check-ref-format` for one component.
pub(crate) fn fault(name: &str) -> Option<&'static str> {
    // A mark of byte order stops a reader of YAML even in a comment.
    let control = |c: char| c.is_control() || matches!(c, '\u{feff}' | '\u{fffe}' | '\u{ffff}');
    let forbidden = |c: char| matches!(c, '~' | '^' | ':' | '?' | '*' | '[' | '\\');
    if name.is_empty() {
        Some("is empty")
    } else if name.starts_with(['_', '.']) {
        Some("starts with `_` or `.`")
    } else if name.ends_with(".supervisor") {
        Some("ends in `.supervisor`, which names a generated file")
    } else if name.contains('/') {
        Some("holds a `/`")
    } else if name.contains('@') {
        Some("holds an `@`")
    } else if name.contains(char::is_whitespace) {
        Some("holds white space")
    } else if name.contains(control) {
        Some("holds a control character")
    } else if name.contains(forbidden) {
        Some("holds one of `~ ^ : ? * [ \\`, which git does not allow in a branch")
    } else if name.contains("..") {
        Some("holds `..`, which git does not allow in a branch")
    } else if name.ends_with('.') || name.ends_with(".lock") {
        Some("ends in `.` or `.lock`, which git does not allow in a branch")
    } else {
        None
    }
}

/// Reads `team/name`.
///
/// # Errors
///
/// A clause that follows the text, such as `"x" has no team`.
pub(crate) fn qualified(text: &str) -> Result<Name, String> {
    let Some((team, name)) = text.split_once('/') else {
        return Err(format!("{} has no team, expected team/name", shown(text)));
    };
    if name.contains('/') {
        return Err(format!("{} has more than one `/`, expected team/name", shown(text)));
    }
    for (part, what) in [(team, "team"), (name, "name")] {
        if let Some(fault) = fault(part) {
            return Err(format!("{}: the {what} part {fault}", shown(text)));
        }
    }
    Ok(Name::new(team, name))
}

/// Reads `team/name@N`, the binding of a Tier or a Rollout.
///
/// # Errors
///
/// As [`qualified`].
pub(crate) fn binding(text: &str) -> Result<Binding, String> {
    let (id, pin) = split_pin(text)?;
    let Some(pin) = pin else {
        return Err(format!("{} is not pinned, expected team/name@N", shown(text)));
    };
    Ok(Binding { blueprint: qualified(id)?, version: version(text, pin)? })
}

/// Reads a lane entry: `name`, `team/name@N`, or `team/name` with `track: head`.
///
/// # Errors
///
/// As [`qualified`].
pub(crate) fn reference(text: &str, track: &str) -> Result<Reference, String> {
    if text.is_empty() {
        return Err("the reference is empty".to_owned());
    }
    if !matches!(track, "" | "head") {
        return Err(format!("{} tracks {}, expected head", shown(text), shown(track)));
    }
    let tracks_head = track == "head";
    let (id, pin) = split_pin(text)?;
    if !id.contains('/') {
        if let Some(fault) = fault(id) {
            return Err(format!("{}: the name part {fault}", shown(text)));
        }
        return match pin {
            Some(_) => Err(format!("{} is local and cannot be pinned", shown(text))),
            None if tracks_head => Err(format!("{} is local and cannot track head", shown(text))),
            None => Ok(Reference::Local(id.to_owned())),
        };
    }
    let name = qualified(id)?;
    match pin {
        Some(_) if tracks_head => Err(format!("{} is both pinned and tracks head", shown(text))),
        Some(pin) => Ok(Reference::Pinned(name, version(text, pin)?)),
        None if tracks_head => Ok(Reference::Head(name)),
        None => Err(format!("{} is neither pinned nor tracks head", shown(text))),
    }
}

/// Reads a version stamp or pin: decimal, at least 1, no sign, no leading zero.
///
/// # Errors
///
/// As [`qualified`]; `text` is the whole reference.
pub(crate) fn version(text: &str, pin: &str) -> Result<u32, String> {
    let is_canonical = pin.bytes().all(|b| b.is_ascii_digit()) && !pin.starts_with('0');
    match pin.parse() {
        Ok(version) if is_canonical => Ok(version),
        _ => Err(format!(
            "{}: the version {} is not a whole number from 1 to {} without sign or leading zero",
            shown(text),
            shown(pin),
            u32::MAX
        )),
    }
}

fn split_pin(text: &str) -> Result<(&str, Option<&str>), String> {
    match text.split_once('@') {
        Some((_, pin)) if pin.contains('@') => {
            Err(format!("{} has more than one `@`", shown(text)))
        }
        Some((id, pin)) => Ok((id, Some(pin))),
        None => Ok((text, None)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_good_or_say_why_not() {
        for name in
            ["a", "kafka-bridge", "v1.2", "data_flow", "Übergang", "-x", "a.yaml", "lock", "{a}"]
        {
            assert_eq!(fault(name), None, "{name}");
        }
        for name in [
            "",
            "_a",
            ".a",
            "a.supervisor",
            "a/b",
            "a@next",
            "@",
            "a b",
            "a\tb",
            "a\u{a0}b",
            "a\u{7f}",
            "a\u{2028}b",
            "a\u{feff}",
            "a~",
            "a^",
            "a:b",
            "a?",
            "a*",
            "a[",
            "a\\b",
            "a..b",
            "a.",
            "a.lock",
        ] {
            assert!(fault(name).is_some(), "{name:?}");
        }
    }

    #[test]
    fn references_have_three_forms() {
        let ok = |text, track| reference(text, track).unwrap();
        assert_eq!(ok("batch", ""), Reference::Local("batch".into()));
        assert_eq!(ok("a/b@12", ""), Reference::Pinned(Name::new("a", "b"), 12));
        assert_eq!(ok("a/b", "head"), Reference::Head(Name::new("a", "b")));
        for (text, track, error) in [
            ("", "", "the reference is empty"),
            ("a/b@0", "", "the version \"0\""),
            ("a/b@x", "", "the version \"x\""),
            ("a/b@", "", "the version \"\""),
            ("a/b@+3", "", "the version \"+3\""),
            ("a/b@03", "", "the version \"03\""),
            ("a/b@4294967296", "", "the version \"4294967296\""),
            ("@3", "", "the name part is empty"),
            ("a/b/c@1", "", "more than one `/`"),
            ("a/@1", "", "the name part is empty"),
            ("/b@1", "", "the team part is empty"),
            ("p/q@1@2", "", "more than one `@`"),
            ("a/b@1", "tail", "tracks \"tail\", expected head"),
            ("local@1", "", "cannot be pinned"),
            ("local", "head", "cannot track head"),
            ("a/b@1", "head", "both pinned and tracks head"),
            ("a/b", "", "neither pinned nor tracks head"),
        ] {
            let found = reference(text, track).unwrap_err();
            assert!(found.contains(error), "{text:?} {track:?}: {found}");
        }
    }

    #[test]
    fn bindings_are_always_pinned() {
        assert_eq!(binding("a/b@2").unwrap().to_string(), "a/b@2");
        for text in ["", "a/b", "b@1", "a/b@1@1", "a/b/c@1", "a/_b@1"] {
            assert!(binding(text).is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_read_is_written_the_same(text in "[a-c@/0-3._ ]{0,8}") {
            if let Ok(binding) = binding(&text) {
                prop_assert_eq!(binding.to_string(), text);
            }
        }

        #[test]
        fn any_text_is_read_or_refused(text in any::<String>(), track in any::<String>()) {
            let _ = (reference(&text, &track), binding(&text), fault(&text));
        }
    }
}
