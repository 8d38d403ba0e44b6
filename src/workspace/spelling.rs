//! Names of any bytes as text, and back (protocol section 5.3).
//!
//! A name that is UTF-8 without control characters stands for itself. Any other, and one that begins with a
//! double quote, is shown inside double quotes with `\n`, `\t`, `\r`, `\"`, `\\` and `\xHH`.

use std::borrow::Cow;

use bstr::ByteSlice;

/// Why a text in double quotes is not an escaped name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` begins with a double quote but is not a name in the escaped form: write \\n, \\t, \\r, \\\", \\\\ or \\xHH inside, and close the quote"
)]
pub(crate) struct BadEscape(String);

/// Returns a name as text that [`parse`] takes back.
pub(crate) fn show(name: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(name) {
        Ok(text) if !text.starts_with('"') && !text.chars().any(char::is_control) => text.into(),
        _ => escape(name).into(),
    }
}

fn escape(name: &[u8]) -> String {
    let mut out = String::with_capacity(name.len() + 8);
    out.push('"');
    for chunk in name.utf8_chunks() {
        for char in chunk.valid().chars() {
            match char {
                '\n' => out.push_str("\\n"),
                '\t' => out.push_str("\\t"),
                '\r' => out.push_str("\\r"),
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                control if control.is_control() => {
                    push_hex(&mut out, control.encode_utf8(&mut [0; 4]).as_bytes());
                }
                plain => out.push(plain),
            }
        }
        push_hex(&mut out, chunk.invalid());
    }
    out.push('"');
    out
}

fn push_hex(out: &mut String, bytes: &[u8]) {
    const DIGITS: [char; 16] = [
        '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f',
    ];
    for byte in bytes {
        out.push_str("\\x");
        out.extend(DIGITS.get(usize::from(byte >> 4)));
        out.extend(DIGITS.get(usize::from(byte & 15)));
    }
}

/// Returns the bytes that a text names: itself, or what stands in the escaped form.
///
/// # Errors
/// [`BadEscape`] where the text begins with a double quote and is not in the escaped form.
pub(crate) fn parse(text: &str) -> Result<Cow<'_, [u8]>, BadEscape> {
    let Some(rest) = text.strip_prefix('"') else {
        return Ok(text.as_bytes().into());
    };
    let bad = || BadEscape(text.to_owned());
    let inner = rest.strip_suffix('"').ok_or_else(bad)?;
    let mut out = Vec::with_capacity(inner.len());
    let mut bytes = inner.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'\\' => match bytes.next().ok_or_else(bad)? {
                b'n' => b'\n',
                b't' => b'\t',
                b'r' => b'\r',
                quoted @ (b'"' | b'\\') => quoted,
                b'x' => {
                    let digits = [bytes.next().ok_or_else(bad)?, bytes.next().ok_or_else(bad)?];
                    let digits = digits.to_str().ok().ok_or_else(bad)?;
                    u8::from_str_radix(digits, 16).ok().ok_or_else(bad)?
                }
                _ => return Err(bad()),
            },
            b'"' => return Err(bad()),
            plain => plain,
        });
    }
    Ok(out.into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_name_survives_being_shown_and_parsed(name in proptest::collection::vec(any::<u8>(), 1..40)) {
            let shown = show(&name);
            prop_assert!(!shown.chars().any(char::is_control));
            prop_assert_eq!(parse(&shown).unwrap().into_owned(), name);
        }
    }

    #[test]
    fn plain_names_stand_for_themselves_and_odd_ones_are_escaped() {
        for (name, shown) in [
            (&b"caf\xc3\xa9 x"[..], "café x"),
            (b"a\\b", "a\\b"),
            (b"a\nb", r#""a\nb""#),
            (b"\"q", r#""\"q""#),
            (b"n\xff\\", r#""n\xff\\""#),
        ] {
            assert_eq!(show(name), shown);
        }
        for bad in [r#"""#, r#""a"#, r#""\q""#, r#""\x1""#, r#""a"b""#] {
            assert!(parse(bad).is_err(), "{bad} was taken");
        }
    }
}
