//! An environment as the kernel hands it to a program.
//!
//! It is spelled once and lent to every command: spelled for each of them, the usual three dozen variables would take as long as
//! all system calls of a start together.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, NulError, OsStr};
use std::os::unix::ffi::OsStrExt as _;

use super::base_env::{self, Env};

/// Variables, each with its spelling.
#[derive(Debug, Clone, Default)]
pub(super) struct Variables(Vec<Variable>);

#[derive(Debug, Clone)]
struct Variable {
    spelled: CString,
    /// Where the sign stands between name and value.
    sign: usize,
}

impl Variable {
    fn new(name: &OsStr, value: &OsStr) -> Result<Self, NulError> {
        let spelled = CString::new([name.as_bytes(), b"=", value.as_bytes()].concat())?;
        let sign = name.len();
        Ok(Self { spelled, sign })
    }

    fn name(&self) -> &[u8] {
        let spelled = self.spelled.as_bytes();
        spelled.get(..self.sign).unwrap_or_default()
    }

    fn value(&self) -> &[u8] {
        let spelled = self.spelled.as_bytes();
        spelled.get(self.sign + 1..).unwrap_or_default()
    }
}

impl Variables {
    /// Spells an environment. What holds a NUL came from no program, and goes to none.
    pub(super) fn of(env: &Env) -> Self {
        let spelled = env
            .iter()
            .filter_map(|(name, value)| Variable::new(name, value).ok());
        Self(spelled.collect())
    }

    /// Returns the names.
    pub(super) fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(Variable::name)
    }

    /// Returns the environment with others above it.
    ///
    /// # Errors
    /// One of the others holds a NUL.
    pub(super) fn under(
        &self,
        above: &BTreeMap<&OsStr, &OsStr>,
    ) -> Result<Vec<Cow<'_, CStr>>, NulError> {
        let is_spare = base_env::is_spare_locale(|name| self.get(above, name));
        let is_kept = |name: &[u8]| !(is_spare && name == base_env::LOCALE.0.as_bytes());
        let mut all = Vec::with_capacity(self.0.len() + above.len());
        for variable in &self.0 {
            let name = variable.name();
            if is_kept(name) && !above.contains_key(OsStr::from_bytes(name)) {
                all.push(Cow::Borrowed(&*variable.spelled));
            }
        }
        for (name, value) in above.iter().filter(|(name, _)| is_kept(name.as_bytes())) {
            all.push(Cow::Owned(Variable::new(name, value)?.spelled));
        }
        Ok(all)
    }

    fn get<'v>(&'v self, above: &BTreeMap<&OsStr, &'v OsStr>, name: &str) -> Option<&'v OsStr> {
        above.get(OsStr::new(name)).copied().or_else(|| {
            let variable = self.0.iter().find(|one| one.name() == name.as_bytes())?;
            Some(OsStr::from_bytes(variable.value()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn under(base: &[(&str, &str)], above: &[(&str, &str)]) -> Vec<String> {
        let base = base.iter().map(|(name, value)| (name.into(), value.into()));
        let above = above
            .iter()
            .map(|(name, value)| (OsStr::new(name), OsStr::new(value)));
        Variables::of(&base.collect())
            .under(&above.collect())
            .unwrap()
            .iter()
            .map(|one| one.to_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn what_stands_above_takes_the_place_of_what_is_below() {
        let got = under(&[("A", "1"), ("AB", "2=")], &[("A", "x=y"), ("C", "")]);
        assert_eq!(got, ["AB=2=", "A=x=y", "C="]);
    }

    #[test]
    fn the_locale_put_in_for_want_of_another_goes_when_there_is_one() {
        let spare = base_env::LOCALE;
        assert_eq!(under(&[spare], &[("LANG", "de")]), ["LANG=de"]);
        assert_eq!(under(&[spare], &[("LANG", "")]).len(), 2);
        assert_eq!(under(&[spare, ("LANG", "de")], &[("LANG", "")]).len(), 2);
    }

    #[test]
    fn a_nul_in_what_was_asked_for_is_an_error() {
        let above = BTreeMap::from([(OsStr::new("A"), OsStr::new("a\0b"))]);
        Variables::default().under(&above).unwrap_err();
    }
}
