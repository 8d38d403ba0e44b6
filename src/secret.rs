//! Random names and secrets, and their comparison.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// Returns 256 random bits as text of 43 characters that fits a header, a file and a URL.
///
/// # Errors
/// The kernel gives no random bytes.
pub(crate) fn token() -> Result<String, getrandom::Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// Digests a secret, so that it can be known again without being kept.
pub(crate) fn digest(secret: &str) -> [u8; 32] {
    Sha256::digest(secret).into()
}

/// Returns whether a secret has one of these digests, in a time that does not depend on its content.
pub(crate) fn is_one_of(secret: &str, digests: &[[u8; 32]]) -> bool {
    let own = digest(secret);
    digests
        .iter()
        .fold(subtle::Choice::from(0), |found, one| found | own.ct_eq(one))
        .into()
}

/// Compares two secrets in a time that depends on neither their content nor their lengths.
pub(crate) fn equal(left: &str, right: &str) -> bool {
    // The digests have one length, so that the comparison cannot end early.
    Sha256::digest(left).ct_eq(&Sha256::digest(right)).into()
}
