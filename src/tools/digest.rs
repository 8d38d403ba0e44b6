//! Digests of file contents, as the contract spells them.

use std::fmt::Write;

use sha2::{Digest, Sha256};

/// Returns the SHA-256 digest in lower-case hexadecimal.
pub(super) fn sha256_hex(content: &[u8]) -> String {
    let mut out = String::with_capacity(64);
    for byte in Sha256::digest(content) {
        let _infallible = write!(out, "{byte:02x}");
    }
    out
}
