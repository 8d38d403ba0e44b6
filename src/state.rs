//! The state directory: what outlives a daemon and belongs to no workspace (protocol section 7).
//!
//! It lies outside the workspace, so that neither a repository nor a file tool reaches it.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};

/// Longest key file; a key is a short text.
const MAX_KEY_BYTES: u64 = 4096;

/// Why the state directory or a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The directory cannot be made or entered.
    #[error("the state directory `{}` cannot be used; name another with --state-dir, or give the key by BMA_ENVIRONMENT_KEY or --key-file", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Nobody knows where it should be.
    #[error("no home directory is known to keep state in; name one with --state-dir")]
    NoHome,
    /// Another daemon holds it.
    #[error("another executor uses the state directory `{}`; stop it, or name another with --state-dir", .0.display())]
    Locked(PathBuf),
    /// A key cannot be read or made.
    #[error("the key file `{}` cannot be used", path.display())]
    KeyFile {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A key has a form that no header can carry.
    #[error("the key in `{}` must be 16 to 4096 visible ASCII characters", .0.display())]
    KeyForm(PathBuf),
}

/// Returns the default place below `state_home` for a workspace (its resolved path).
pub fn default_dir(state_home: &Path, workspace: &Path) -> PathBuf {
    let digest = Sha256::digest(workspace.as_os_str().as_bytes());
    let name = digest
        .iter()
        .take(8)
        .fold(String::new(), |name, byte| format!("{name}{byte:02x}"));
    state_home.join("bma-executor").join(name)
}

/// Pause between two tries to get a state directory that another executor holds.
const BETWEEN_TRIES: Duration = Duration::from_millis(20);

/// A state directory that this daemon holds; dropping it gives it back.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
    _lock: File,
}

impl StateDir {
    /// Makes the directory where it is missing (mode 0700) and locks it.
    ///
    /// # Errors
    /// [`StateError::Directory`] or [`StateError::Locked`].
    pub fn open(path: &Path) -> Result<Self, StateError> {
        let failed = |source| StateError::Directory {
            path: path.to_owned(),
            source,
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(failed)?;
        let lock = private()
            .write(true)
            .create(true)
            .open(path.join("lock"))
            .map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self {
                path: path.to_owned(),
                _lock: lock,
            }),
            Err(TryLockError::WouldBlock) => Err(StateError::Locked(path.to_owned())),
            Err(TryLockError::Error(source)) => Err(failed(source)),
        }
    }

    /// As [`Self::open`], but waits for an executor that holds it, which may be about to end.
    ///
    /// # Errors
    /// As those of [`Self::open`], once the time is over.
    pub fn open_within(path: &Path, patience: Duration) -> Result<Self, StateError> {
        let until = Instant::now() + patience;
        let mut told = false;
        loop {
            let opened = Self::open(path);
            if !matches!(opened, Err(StateError::Locked(_))) || Instant::now() >= until {
                return opened;
            }
            if !told {
                tracing::info!(
                    ?patience,
                    "another executor uses the state directory; waiting for its end"
                );
                told = true;
            }
            #[expect(
                clippy::disallowed_methods,
                reason = "a daemon does nothing else before it has its state"
            )]
            std::thread::sleep(BETWEEN_TRIES);
        }
    }

    /// Returns where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns where the key is.
    pub fn key_path(&self) -> PathBuf {
        key_path(&self.path)
    }

    /// Returns the key, making a random one on the first start.
    ///
    /// # Errors
    /// [`StateError::KeyFile`] or [`StateError::KeyForm`].
    pub fn key(&self) -> Result<String, StateError> {
        let path = key_path(&self.path);
        match read_key(&path) {
            Err(StateError::KeyFile { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                self.make_key(&path)
                    .map_err(|source| StateError::KeyFile { path, source })
            }
            key => key,
        }
    }

    /// Writes the key beside its place first, so that `call` never reads half of one.
    fn make_key(&self, path: &Path) -> io::Result<String> {
        let key = crate::secret::token().map_err(io::Error::other)?;
        let new = self.path.join("key.new");
        let mut file = private()
            .write(true)
            .create(true)
            .truncate(true)
            .open(&new)?;
        file.write_all(format!("{key}\n").as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new, path)?;
        Ok(key)
    }
}

/// Options for a file that only this user may read.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options
        .mode(0o600)
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
    options
}

/// Returns where the key of a state directory is.
pub fn key_path(state_dir: &Path) -> PathBuf {
    state_dir.join("key")
}

/// Returns the mode of a key file that others than its owner may read or write.
///
/// What cannot be looked at counts as private; reading it will say why.
pub fn wide_mode(path: &Path) -> Option<u32> {
    let mode = std::fs::metadata(path).ok()?.permissions().mode() & 0o7777;
    (mode & 0o077 != 0).then_some(mode)
}

/// Reads a key; white space around it is not part of it.
///
/// # Errors
/// [`StateError::KeyFile`] or [`StateError::KeyForm`].
#[expect(
    clippy::disallowed_methods,
    reason = "this room is the door to the state directory and to key files"
)]
pub fn read_key(path: &Path) -> Result<String, StateError> {
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(MAX_KEY_BYTES + 1).read_to_string(&mut text))
        .map_err(|source| StateError::KeyFile {
            path: path.to_owned(),
            source,
        })?;
    check_key(text.trim()).ok_or_else(|| StateError::KeyForm(path.to_owned()))
}

/// Takes a key where it has a form that a header can carry and nobody guesses at once.
pub fn check_key(key: &str) -> Option<String> {
    let fits = (16..=4096).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic());
    fits.then(|| key.to_owned())
}
