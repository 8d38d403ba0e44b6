//! What a file holds, told by its first bytes.
//!
//! A mark alone does not make a file binary: text may begin with any of them.

use crate::wire::Encoding;

/// What a file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileKind {
    /// Text in UTF-8 or something near it.
    Text,
    /// Text in UTF-16, by its mark.
    Utf16(Encoding),
    /// An image of this media type.
    Image(&'static str),
    /// Anything else, named.
    Binary(&'static str),
}

/// Bytes looked at for a NUL (what `grep` looks at too).
const SNIFFED: usize = 8 * 1024;

const MARKS: [(&[u8], &str); 24] = [
    (b"PK\x03\x04", "a ZIP archive (or a document in one)"),
    (b"PK\x05\x06", "an empty ZIP archive"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ\0", "XZ data"),
    (b"\x28\xb5\x2f\xfd", "Zstandard data"),
    (b"\x04\x22\x4d\x18", "LZ4 data"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (b"Rar!\x1a\x07", "a RAR archive"),
    (b"\x7fELF", "an ELF program or library"),
    (b"MZ", "a Windows program"),
    (b"\xcf\xfa\xed\xfe", "a Mach-O program"),
    (b"\xca\xfe\xba\xbe", "a Java class or a Mach-O program"),
    (b"\0asm", "a WebAssembly module"),
    (b"%PDF-", "a PDF document"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"!<arch>\n", "a static library or package"),
    (b"\xd0\xcf\x11\xe0", "an old Office document"),
    (b"OggS", "Ogg media"),
    (b"fLaC", "FLAC audio"),
    (b"ID3", "MP3 audio"),
    (b"II*\0", "a TIFF image"),
    (b"MM\0*", "a TIFF image"),
    (b"BM", "a BMP image"),
];

/// Tells what a file holds from its first block.
pub(super) fn of(head: &[u8]) -> FileKind {
    if let Some(media_type) = image(head) {
        return FileKind::Image(media_type);
    }
    match head {
        [0xff, 0xfe, 0, 0, ..] | [0, 0, 0xfe, 0xff, ..] => return FileKind::Binary("UTF-32 text"),
        [0xff, 0xfe, ..] => return FileKind::Utf16(Encoding::Utf16Le),
        [0xfe, 0xff, ..] => return FileKind::Utf16(Encoding::Utf16Be),
        _ => {}
    }
    let sniffed = head.get(..SNIFFED).unwrap_or(head);
    let mark = MARKS.iter().find(|(mark, _)| head.starts_with(mark));
    if memchr::memchr(0, sniffed).is_some() {
        return FileKind::Binary(name(head));
    }
    match mark {
        Some((_, name)) if !is_utf8(sniffed) => FileKind::Binary(name),
        _ => FileKind::Text,
    }
}

/// Names the kind of a file that is known to be binary.
pub(super) fn name(head: &[u8]) -> &'static str {
    if head.get(257..262) == Some(b"ustar") {
        return "a tar archive";
    }
    MARKS
        .iter()
        .find(|(mark, _)| head.starts_with(mark))
        .map_or("binary data", |(_, name)| name)
}

fn image(head: &[u8]) -> Option<&'static str> {
    if head.starts_with(b"\x89PNG\r\n\x1a\n") {
        Some("image/png")
    } else if head.starts_with(b"\xff\xd8\xff") {
        Some("image/jpeg")
    } else if head.starts_with(b"GIF87a") || head.starts_with(b"GIF89a") {
        Some("image/gif")
    } else if head.starts_with(b"RIFF") && head.get(8..12) == Some(b"WEBP") {
        Some("image/webp")
    } else {
        None
    }
}

/// Tells whether bytes are UTF-8, but for a character cut at their end.
fn is_utf8(bytes: &[u8]) -> bool {
    match std::str::from_utf8(bytes) {
        Ok(_) => true,
        Err(error) => error.error_len().is_none(),
    }
}
