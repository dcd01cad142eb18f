//! How the three binaries read their command lines.

use std::ffi::OsString;

/// Lets every long flag be written as `--name` and as `-name` (estate.md, decision 4).
///
/// An argument that starts with one dash and goes on with two or more characters that could be a
/// long flag (`-estate`, `-out=DIR`) gets its second dash; `-o`, `-o=json`, `-`, negative numbers and
/// all that follows a bare `--` are left as they are. The price is that one-letter flags cannot be
/// run together (`-wv`) or carry their value without a space or `=` (`-ojson`).
pub fn long_flags(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut flags_ended = false;
    arguments
        .map(|argument| {
            flags_ended |= argument == "--";
            if flags_ended || !is_long_flag(argument.as_encoded_bytes()) {
                return argument;
            }
            let mut doubled = OsString::from("-");
            doubled.push(argument);
            doubled
        })
        .collect()
}

fn is_long_flag(argument: &[u8]) -> bool {
    let Some(name) = argument.strip_prefix(b"-") else { return false };
    let name = name.split(|byte| *byte == b'=').next().unwrap_or_default();
    name.len() >= 2
        && name[0].is_ascii_alphabetic()
        && name.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(before: &[&str], after: &[&str]) {
        let read = long_flags(before.iter().map(OsString::from));
        assert_eq!(read, after.iter().map(OsString::from).collect::<Vec<_>>());
    }

    #[test]
    fn one_dash_before_a_long_name_is_as_good_as_two() {
        check(
            &["render", "-estate", "dir", "-out=x y", "--commit", "abc"],
            &["render", "--estate", "dir", "--out=x y", "--commit", "abc"],
        );
        check(&["-snapshot-key", "-h", "-help"], &["--snapshot-key", "-h", "--help"]);
    }

    #[test]
    fn what_is_no_long_flag_stays() {
        let same = ["-", "-o", "-o=json", "-5", "-1.5", "a-b", "", "--", "-estate"];
        check(&same, &same);
    }
}
