//! The `Authorization` header.

use super::Denied;

/// The token of `Bearer TOKEN` (RFC 6750; the scheme in any case).
///
/// # Errors
///
/// [`Denied::Malformed`] when it is anything else.
pub fn token(header: &[u8]) -> Result<&[u8], Denied> {
    let token = credential(header, b"bearer").ok_or(Denied::Malformed)?;
    let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(byte);
    if token.is_empty() || token.len() > TOKEN_BYTES_MAX || !token.iter().all(allowed) {
        return Err(Denied::Malformed);
    }
    Ok(token)
}

/// Longest token that is hashed at all.
pub const TOKEN_BYTES_MAX: usize = 1_024;

/// The token of `Bearer TOKEN`, or the password of `Basic` (browsers and Prometheus can send it).
///
/// # Errors
///
/// [`Denied::Malformed`] when it is neither.
pub fn token_or_password(header: &[u8]) -> Result<Vec<u8>, Denied> {
    let Some(encoded) = credential(header, b"basic") else {
        return token(header).map(<[u8]>::to_vec);
    };
    let pair = base64(encoded).ok_or(Denied::Malformed)?;
    let colon = pair.iter().position(|byte| *byte == b':').ok_or(Denied::Malformed)?;
    Ok(pair[colon + 1..].to_vec())
}

fn credential<'h>(header: &'h [u8], scheme: &[u8]) -> Option<&'h [u8]> {
    let header = header.trim_ascii();
    let (word, rest) = header.split_at_checked(scheme.len())?;
    if !word.eq_ignore_ascii_case(scheme) || rest.first() != Some(&b' ') {
        return None;
    }
    Some(rest.trim_ascii())
}

/// Standard alphabet, padding optional; `None` for anything else.
fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let text = text.strip_suffix(b"==").or_else(|| text.strip_suffix(b"=")).unwrap_or(text);
    if text.len() > TOKEN_BYTES_MAX * 2 || text.len() % 4 == 1 {
        return None;
    }
    let mut out = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for chunk in text.chunks(4) {
        let mut bits = 0_u32;
        for byte in chunk {
            bits = bits << 6 | u32::from(sextet(*byte)?);
        }
        bits <<= 6 * (4 - chunk.len());
        out.extend_from_slice(&bits.to_be_bytes()[1..chunk.len()]);
    }
    Some(out)
}

fn sextet(byte: u8) -> Option<u8> {
    Some(match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bearer_takes_any_case_and_nothing_else() {
        assert_eq!(token(b"Bearer abc"), Ok(&b"abc"[..]));
        assert_eq!(token(b"bearer  abc "), Ok(&b"abc"[..]));
        for bad in [&b""[..], b"Bearer", b"Bearer ", b"Bearer a b", b"Bearerabc", b"Basic YTpi"] {
            assert_eq!(token(bad), Err(Denied::Malformed), "{bad:?}");
        }
    }

    #[test]
    fn basic_gives_the_password() {
        assert_eq!(token_or_password(b"Basic YWRtaW46c2VjcmV0"), Ok(b"secret".to_vec()));
        assert_eq!(token_or_password(b"Basic OnNlOmNyZXQ="), Ok(b"se:cret".to_vec()));
        assert_eq!(token_or_password(b"Basic OnM="), Ok(b"s".to_vec()));
        assert_eq!(token_or_password(b"Bearer secret"), Ok(b"secret".to_vec()));
        for bad in [&b"Basic YWRtaW4="[..], b"Basic !!!!", b"Basic A", b"Digest x"] {
            assert_eq!(token_or_password(bad), Err(Denied::Malformed), "{bad:?}");
        }
    }
}
