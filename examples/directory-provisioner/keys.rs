//! Access keys: one file each, named by its id.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use bucket_provisioner::store::{AccessMode, AppCredentials};
use rand::RngExt as _;
use serde::{Deserialize, Serialize};

/// Waits for work with files in a thread of its own.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        // It panicked; nothing cancels it.
        Err(gone) => std::panic::resume_unwind(gone.into_panic()),
    }
}

/// What a key opens.
#[derive(Serialize, Deserialize)]
pub(crate) struct Key {
    pub(crate) user: String,
    pub(crate) bucket: String,
    /// Not in the files of earlier versions.
    #[serde(default)]
    pub(crate) mode: String,
    pub(crate) secret: String,
}

impl Key {
    /// What it may do in its bucket.
    pub(crate) fn mode(&self) -> AccessMode {
        self.mode.parse().unwrap_or_default()
    }
}

/// The keys of all users.
#[derive(Debug, Clone)]
pub(crate) struct Keys(PathBuf);

impl Keys {
    pub(crate) fn in_directory(directory: PathBuf) -> io::Result<Self> {
        create_if_missing(&directory)?;
        Ok(Self(directory))
    }

    /// A key by its id, which anybody can have sent.
    pub(crate) fn find(&self, id: &str) -> io::Result<Option<Key>> {
        if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Ok(None);
        }
        match fs::read(self.0.join(id)) {
            Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            // Not "no such key": it may work again in a moment.
            Err(error) => Err(error),
        }
    }

    /// Issues a key to a user.
    pub(crate) fn issue(&self, user: &str, bucket: &str, mode: AccessMode) -> io::Result<AppCredentials> {
        let (id, secret) = (random(20), random(40));
        let (user, bucket, mode) = (user.to_owned(), bucket.to_owned(), mode.to_string());
        self.write(&id, &Key { user, bucket, mode, secret: secret.clone() })?;
        Ok(AppCredentials::new(id, secret.into()))
    }

    /// Lets a key do more or less.
    pub(crate) fn set_mode(&self, id: &str, mode: AccessMode) -> io::Result<()> {
        match self.find(id)? {
            Some(key) if key.mode() != mode => self.write(id, &Key { mode: mode.to_string(), ..key }),
            _ => Ok(()),
        }
    }

    fn write(&self, id: &str, key: &Key) -> io::Result<()> {
        // Complete under another name first, because a crash can leave half a file. Ids have no period.
        let draft = self.0.join(format!("{}.draft", random(20)));
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        file.write_all(&serde_json::to_vec(key)?)?;
        file.sync_all()?;
        fs::rename(draft, self.0.join(id))
    }

    /// Ids of the keys of a user.
    pub(crate) fn of_user(&self, user: &str) -> io::Result<Vec<String>> {
        let mut ids = Vec::new();
        for file in fs::read_dir(&self.0)? {
            let id = file?.file_name().to_string_lossy().into_owned();
            if self.find(&id)?.is_some_and(|key| key.user == user) {
                ids.push(id);
            }
        }
        Ok(ids)
    }

    /// Deletes all keys of a user but those to keep; returns the ids of the deleted ones.
    pub(crate) fn delete(&self, user: &str, keep: &[&str]) -> io::Result<Vec<String>> {
        let mut deleted = self.of_user(user)?;
        deleted.retain(|id| !keep.contains(&id.as_str()));
        for id in &deleted {
            remove_if_there(&self.0.join(id))?;
        }
        Ok(deleted)
    }
}

/// Creates a directory, but not the one that it is in.
pub(crate) fn create_if_missing(directory: &Path) -> io::Result<()> {
    match fs::create_dir(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Removes a file; whether it was there.
pub(crate) fn remove_if_there(file: &Path) -> io::Result<bool> {
    match fs::remove_file(file) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

pub(crate) fn random(length: usize) -> String {
    rand::rng().sample_iter(rand::distr::Alphanumeric).take(length).map(char::from).collect()
}
