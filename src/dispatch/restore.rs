//! The sessions and calls of a daemon that is gone, taken up from its journal (protocol section 7).

use super::Hub;
use crate::journal::Recovered;

impl Hub {
    /// Takes up what a journal held.
    pub(super) fn restore(&self, _recovered: Recovered) -> Result<(), getrandom::Error> {
        Ok(())
    }
}
