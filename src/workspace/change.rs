//! One change of one file at a time.
//!
//! A change resolves its target, takes the target's locks and resolves again: what was seen before a lock was held
//! may be past. A lock that is taken is awaited outside the blocking places.

use super::Workspace;
use super::blocking::Stopped;
use super::error::{PathError, PathErrorKind};
use super::locks::{Held, Key};
use super::target::{MadeDirs, Parents, Target};
use crate::stop::{Stop, StopCause};

/// How often a change starts again where others outside this daemon change the same names.
const ATTEMPTS: usize = 40;

/// What one try of a change came to.
#[derive(Debug)]
pub(crate) enum Attempt<T> {
    /// It is over.
    Done(T),
    /// The target has changed under it: try again with a new one.
    Again,
}

/// Why a change was not made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChangeError {
    /// The path cannot be used.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The stop signal came first.
    #[error("stopped")]
    Stopped(StopCause),
}

impl From<Stopped> for ChangeError {
    fn from(stopped: Stopped) -> Self {
        Self::Stopped(stopped.0)
    }
}

impl Workspace {
    /// Runs `job` as the only change of the file that `path` leads to.
    ///
    /// # Errors
    /// [`ChangeError`] where the path cannot be used or the stop signal came before the job began.
    pub(crate) async fn change_file<T: Send + 'static>(
        &self,
        stop: &Stop,
        path: String,
        parents: Parents,
        job: impl FnMut(&Stop, &Target) -> Attempt<T> + Send + 'static,
    ) -> Result<T, ChangeError> {
        let mut turn = Turn {
            workspace: self.clone(),
            path,
            parents,
            job,
            made: MadeDirs::default(),
            held: Vec::new(),
        };
        loop {
            let (back, came_to) = self
                .run_blocking(stop, move |stop| {
                    let came_to = turn.take(stop);
                    (turn, came_to)
                })
                .await?;
            turn = back;
            match came_to? {
                Step::Done(done) => return Ok(done),
                Step::Busy(key) => {
                    let held = self.0.shared.locks.lock(&key, stop).await?;
                    turn.held.push(held);
                }
            }
        }
    }
}

struct Turn<J> {
    workspace: Workspace,
    path: String,
    parents: Parents,
    job: J,
    // Given up before the locks are.
    made: MadeDirs,
    held: Vec<Held>,
}

enum Step<T> {
    Done(T),
    /// Another change holds this.
    Busy(Key),
}

impl<T, J: FnMut(&Stop, &Target) -> Attempt<T>> Turn<J> {
    fn take(&mut self, stop: &Stop) -> Result<Step<T>, ChangeError> {
        let came_to = self.try_all(stop);
        if !matches!(came_to, Ok(Step::Busy(_))) {
            self.made = MadeDirs::default();
        }
        came_to
    }

    fn try_all(&mut self, stop: &Stop) -> Result<Step<T>, ChangeError> {
        for _ in 0..ATTEMPTS {
            if let Some(cause) = stop.cause() {
                return Err(ChangeError::Stopped(cause));
            }
            let target = self
                .workspace
                .target(&self.path, self.parents, &mut self.made)?;
            match self.lock(&target.keys()?) {
                Locked::Before => match (self.job)(stop, &target) {
                    Attempt::Done(done) => return Ok(Step::Done(done)),
                    Attempt::Again => {}
                },
                Locked::JustNow => {}
                Locked::Busy(key) => return Ok(Step::Busy(key)),
            }
        }
        if let Ok(false) = self.workspace.exists() {
            let root = self.workspace.parse(".")?;
            return Err(self.workspace.spelled(&root).deleted().into());
        }
        let sentence = format!(
            "`{}` keeps being changed by something else; try again",
            self.path
        );
        Err(PathError::new(PathErrorKind::Other, sentence).into())
    }

    /// Takes what is not held of `keys`, in their order, and gives up everything else.
    fn lock(&mut self, keys: &[Key]) -> Locked {
        self.held.retain(|held| keys.contains(held.key()));
        let mut locked = Locked::Before;
        for (index, key) in keys.iter().enumerate() {
            if self.held.iter().any(|held| held.key() == key) {
                continue;
            }
            if index == 0 {
                // A name is never awaited while a file is held: the order keeps two changes from waiting for each other.
                self.held.clear();
            }
            match self.workspace.0.shared.locks.try_lock(key) {
                Some(held) => self.held.push(held),
                None => return Locked::Busy(key.clone()),
            }
            locked = Locked::JustNow;
        }
        locked
    }
}

enum Locked {
    /// All were held before the target was resolved.
    Before,
    /// Some were taken after it.
    JustNow,
    Busy(Key),
}
