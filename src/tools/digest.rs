//! Digests of file contents, as the contract spells them.

use std::fmt::Write;

use sha2::{Digest as _, Sha256};

/// A digest of what comes piece by piece.
#[derive(Debug)]
pub(super) struct Digest(Sha256);

impl Digest {
    /// Begins one.
    pub(super) fn new() -> Self {
        Self(Sha256::new())
    }

    /// Adds a piece.
    pub(super) fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    /// Returns the SHA-256 digest in lower-case hexadecimal.
    pub(super) fn hex(self) -> String {
        let mut out = String::with_capacity(64);
        for byte in self.0.finalize() {
            let _infallible = write!(out, "{byte:02x}");
        }
        out
    }
}

/// Returns the SHA-256 digest in lower-case hexadecimal.
pub(super) fn sha256_hex(content: &[u8]) -> String {
    let mut digest = Digest::new();
    digest.update(content);
    digest.hex()
}
