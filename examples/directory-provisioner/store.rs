//! The store: directories, their marks, and the keys that open them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bucket_provisioner::Provisioner;
use bucket_provisioner::store::{
    AccessRemoval, AppCredentials, BucketRemoval, Call, Capabilities, Checkup, Content, CreateError, Endpoint,
    ExposeSecret as _, Mode, Probe, ProbeCall, Reason, Recalled, Record, Start, StoreError, Topic,
};

use super::keys::{Key, Keys, blocking, create_if_missing, random, remove_if_there};
use super::marks::Marks;
use super::server;

const TAKEN: Reason = Reason::new("BucketTaken", Topic::Claim)
    .meaning("a directory of that name exists, and is not this claim's")
    .remedy("choose another");
const CLAIMED: Reason = Reason::new("BucketClaimed", Topic::Class)
    .meaning("the directory that the class names was created for another claim")
    .remedy("name another one, or delete its mark if this is meant");
const MISSING: Reason = Reason::new("BucketMissing", Topic::Class)
    .meaning("the directory that the class names does not exist")
    .remedy("create it");
const GONE: Reason = Reason::new("BucketGone", Topic::Class)
    .meaning("the directory that was created for the claim does not exist any more")
    .remedy("restore it, or delete the claim and create a new one");
const NOT_PREPARED: Reason = Reason::new("StoreNotPrepared", Topic::Store)
    .meaning("the directory of the store is not there or cannot be used: its volume may not be mounted")
    .remedy("mount it, or create the directory");
const FAILED: Reason =
    Reason::new("StoreFailing", Topic::Store).meaning("the file system refused").remedy("see the message");

/// Directories as buckets.
#[derive(Debug, Clone)]
pub(crate) struct Directories {
    root: PathBuf,
    url: String,
}

/// Its flags.
#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// Keep everything in this directory, which must exist.
    #[arg(long, value_name = "DIR", env = "DIRECTORY_ROOT", default_value = "directory-provisioner")]
    root: PathBuf,
    /// Serve the buckets at this address.
    #[arg(long, value_name = "ADDRESS", env = "DIRECTORY_ADDRESS", default_value = "127.0.0.1:9444")]
    address: String,
    /// URL of the buckets for apps [default: http:// and the address].
    #[arg(long, value_name = "URL", env = "DIRECTORY_URL")]
    url: Option<String>,
}

/// What is in the root.
struct Store {
    buckets: PathBuf,
    marks: Marks,
    keys: Keys,
}

impl Directories {
    /// The store. To serve claims, the server listens first: an app of a bound claim may connect as soon as this process
    /// works.
    pub(crate) async fn start(flags: Flags, start: Start) -> Result<Self, String> {
        let url = flags.url.unwrap_or_else(|| format!("http://{}", flags.address));
        let directories = Self { root: flags.root, url };
        if start.serves {
            let store = directories.open().map_err(|error| error.to_string())?;
            let listener = server::listen(&flags.address);
            let listener = listener.map_err(|error| format!("cannot listen at {}: {error}", flags.address))?;
            tokio::spawn(async move {
                if let Err(error) = server::serve(&store.buckets, store.keys, listener).await {
                    tracing::error!(%error, "cannot serve buckets");
                    std::process::exit(1);
                }
            });
        }
        Ok(directories)
    }

    /// Does something with the files, which can be slow: meanwhile the operator renews its lease, and serves others.
    async fn with_store<T: Send + 'static>(
        &self,
        work: impl FnOnce(Store) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let this = self.clone();
        blocking(move || this.open().and_then(work)).await
    }

    fn open(&self) -> Result<Store, StoreError> {
        let open = || {
            let buckets = self.root.join("buckets");
            create_if_missing(&buckets)?;
            let marks = Marks::in_directory(self.root.join("marks"))?;
            Ok(Store { buckets, marks, keys: Keys::in_directory(self.root.join("keys"))? })
        };
        open().map_err(|error: io::Error| {
            let message = format!("directory {:?} cannot be used: {error}", self.root);
            StoreError::retryable(&NOT_PREPARED, message).for_all_claims().with_source(error)
        })
    }
}

fn failed(error: io::Error) -> StoreError {
    StoreError::retryable(&FAILED, format!("the file system refused: {error}")).with_source(error)
}

impl Store {
    fn directory(&self, record: &Record) -> PathBuf {
        self.buckets.join(&record.plan.bucket)
    }

    /// Creates the directory. The mark comes first, so what has none was not created here.
    fn create(&self, record: &Record) -> Result<(), CreateError<StoreError>> {
        let name = &record.plan.bucket;
        let taken = || {
            let message = format!("directory {name:?} exists and is not this claim's: choose another name");
            Err(CreateError::Refused(StoreError::terminal(&TAKEN, message)))
        };
        let directory = self.directory(record);
        match self.marks.find(name).map_err(failed)? {
            Some(mark) if mark.names(record) => {}
            Some(_) => return taken(),
            None if directory.try_exists().map_err(failed)? => return taken(),
            None => match self.marks.put(record) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return taken(),
                put => {
                    put.map_err(failed)?;
                    // It appeared in the meantime.
                    return match fs::create_dir(&directory) {
                        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                            self.marks.remove(name).map_err(failed)?;
                            taken()
                        }
                        created => Ok(created.map_err(failed)?),
                    };
                }
            },
        }
        Ok(create_if_missing(&directory).map_err(failed)?)
    }

    /// Fails if the directory of a claim is not there, or somebody else's.
    fn check(&self, record: &Record) -> Result<(), StoreError> {
        let name = &record.plan.bucket;
        let mark = self.marks.find(name).map_err(failed)?;
        let is_mine = mark.as_ref().is_some_and(|mark| mark.names(record));
        let is_there = self.directory(record).try_exists().map_err(failed)?;
        let lost = |reason, problem: &str| StoreError::lost(reason, format!("directory {name:?}, {problem}"));
        if let Some(from) = &record.plan.shared_from {
            return match is_mine && is_there {
                true => Ok(()),
                false => Err(lost(
                    &GONE,
                    &format!(
                        "which this claim shares with claim {:?}, no longer exists or has lost its mark",
                        from.name
                    ),
                )),
            };
        }
        match record.plan.mode {
            Mode::Granted if mark.is_some() && !is_mine => {
                let message = format!(
                    "directory {name:?}, which the StorageClass names, was created for another claim: name another one, or delete its mark if this is meant"
                );
                Err(StoreError::terminal(&CLAIMED, message))
            }
            Mode::Granted if !is_there => {
                Err(lost(&MISSING, "which the StorageClass names, does not exist: create it"))
            }
            Mode::Created if !is_mine || !is_there => Err(lost(
                &GONE,
                "which was created for this claim, no longer exists or has lost its mark: restore it, or delete the claim and create a new one",
            )),
            // So that the previous claim, if it still exists somewhere, owns nothing any more.
            Mode::Created if mark.is_some_and(|mark| !mark.is_current(record)) => {
                self.marks.renew(record).map_err(failed)
            }
            Mode::Created | Mode::Granted => Ok(()),
        }
    }

    /// Replaces what an earlier call may have issued, because its secret is lost.
    fn issue(&self, record: &Record) -> Result<AppCredentials, StoreError> {
        self.keys.delete(record.user(), &[]).map_err(failed)?;
        self.new_key(record)
    }

    fn new_key(&self, record: &Record) -> Result<AppCredentials, StoreError> {
        self.keys.issue(record.user(), &record.plan.bucket, record.plan.access.mode).map_err(failed)
    }

    /// Removes what the server keeps about the objects of a bucket: files beside its directory, with the bucket's name in
    /// theirs.
    fn remove_metadata(&self, bucket: &str) -> io::Result<()> {
        let name = base64_simd::URL_SAFE_NO_PAD.encode_to_string(bucket);
        let of_bucket = format!(".bucket-{name}.");
        for file in fs::read_dir(&self.buckets)? {
            let file = file?;
            if file.file_name().to_string_lossy().starts_with(&of_bucket) {
                remove_if_there(&file.path())?;
            }
        }
        Ok(())
    }

    /// Deletes the keys of the claim's user, and those in its Secret. Its users can edit the Secret, so the id alone proves
    /// nothing.
    fn revoke(&self, record: &Record, present: Option<&AppCredentials>) -> Result<AccessRemoval, StoreError> {
        let mut deleted = self.keys.delete(record.user(), &[]).map_err(failed)?;
        if let Some(present) = present {
            let left = self.keys.find(&present.access_key_id).map_err(failed)?;
            let is_own =
                |key: &Key| key.bucket == record.plan.bucket && key.secret == present.secret_access_key.expose_secret();
            if let Some(key) = left.filter(is_own) {
                deleted.extend(self.keys.delete(&key.user, &[]).map_err(failed)?);
            }
        }
        Ok(if deleted.is_empty() { AccessRemoval::NotFound } else { AccessRemoval::Deleted })
    }

    fn delete(&self, record: &Record, content: Content) -> Result<BucketRemoval, StoreError> {
        let bucket = &record.plan.bucket;
        let directory = self.directory(record);
        match self.marks.find(bucket).map_err(failed)? {
            Some(mark) if mark.names(record) => {}
            _ if directory.try_exists().map_err(failed)? => {
                return Ok(BucketRemoval::LeftInPlace(format!(
                    "directory {bucket:?} was left in place, because it has no mark of this claim"
                )));
            }
            _ => return Ok(BucketRemoval::NotFound),
        }
        let was_there = directory.try_exists().map_err(failed)?;
        let deleted = match content {
            _ if !was_there => Ok(()),
            Content::Delete => fs::remove_dir_all(&directory),
            Content::Keep => fs::remove_dir(&directory),
        };
        match deleted {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => return Ok(BucketRemoval::NotEmpty),
            result => result.map_err(failed)?,
        }
        self.remove_metadata(bucket).map_err(failed)?;
        self.marks.remove(bucket).map_err(failed)?;
        Ok(if was_there { BucketRemoval::Deleted } else { BucketRemoval::NotFound })
    }
}

impl Provisioner for Directories {
    type Parameters = ();
    type Owner = ();
    type Error = StoreError;

    const CAPABILITIES: Capabilities = Capabilities::NONE.with_rotation().with_access_modes().with_shared_buckets();
    const REASONS: &'static [&'static Reason] = &[&TAKEN, &CLAIMED, &MISSING, &GONE, &NOT_PREPARED, &FAILED];

    /// The server runs while this process works.
    fn endpoint(&self, (): &()) -> Endpoint {
        let at = self.url.parse::<http::Uri>().unwrap_or_default();
        let port = at.port_u16().unwrap_or(if at.scheme_str() == Some("https") { 443 } else { 80 });
        Endpoint::new(at.host().unwrap_or_default(), port).with_region("local").with_url(&self.url)
    }

    /// The id of the root, so that an empty directory where a volume should be mounted is not taken for a store from
    /// which everything was deleted.
    async fn account(&self, _: &Call<'_, Self>) -> Result<Option<String>, StoreError> {
        let root = self.root.clone();
        self.with_store(move |_| root_id(&root).map(Some).map_err(failed)).await
    }

    async fn create_bucket(&self, call: &Call<'_, Self>) -> Result<(), CreateError<StoreError>> {
        let (this, record) = (self.clone(), call.record.clone());
        blocking(move || this.open().map_err(CreateError::Refused)?.create(&record)).await
    }

    async fn grant(&self, call: &Call<'_, Self>) -> Result<AppCredentials, CreateError<StoreError>> {
        let (this, record) = (self.clone(), call.record.clone());
        blocking(move || {
            let store = this.open().map_err(CreateError::Refused)?;
            store.check(&record).map_err(CreateError::Refused)?;
            Ok(store.issue(&record)?)
        })
        .await
    }

    async fn probe(&self, call: &ProbeCall<'_, Self>) -> Result<Probe, StoreError> {
        let id = call.credentials.access_key_id.clone();
        let key = self.with_store(move |store| store.keys.find(&id).map_err(failed)).await?;
        Ok(match key {
            Some(key) if key.bucket == call.record.plan.bucket => Probe::Usable,
            _ => Probe::NotYet("there is no such key".to_owned()),
        })
    }

    async fn rotate(&self, call: &Call<'_, Self>, present: &str) -> Result<Option<AppCredentials>, StoreError> {
        let (record, present) = (call.record.clone(), present.to_owned());
        self.with_store(move |store| {
            store.keys.delete(record.user(), &[&present]).map_err(failed)?;
            store.new_key(&record).map(Some)
        })
        .await
    }

    async fn check(&self, call: &Call<'_, Self>, keys: &[&str]) -> Result<Checkup, StoreError> {
        let record = call.record.clone();
        let keys: Vec<_> = keys.iter().map(|id| (*id).to_owned()).collect();
        self.with_store(move |store| {
            store.check(&record)?;
            let keys_lost = keys.first().is_some_and(|id| matches!(store.keys.find(id), Ok(None)));
            let keys: Vec<_> = keys.iter().map(String::as_str).collect();
            for key in &keys {
                store.keys.set_mode(key, record.plan.access.mode).map_err(failed)?;
            }
            let deleted = store.keys.delete(record.user(), &keys).map_err(failed)?;
            Ok(Checkup::default().with_keys_lost(keys_lost).with_deleted_keys(deleted))
        })
        .await
    }

    async fn recall(&self, call: &Call<'_, Self>) -> Result<Option<Recalled>, StoreError> {
        let bucket = call.bucket().to_owned();
        let mark = self.with_store(move |store| store.marks.find(&bucket).map_err(failed)).await?;
        Ok(mark.map(|mark| Recalled::new(mark.claim()).with_cluster(mark.cluster)))
    }

    async fn revoke(&self, call: &Call<'_, Self>) -> Result<AccessRemoval, StoreError> {
        let (record, present) = (call.record.clone(), call.present.cloned());
        self.with_store(move |store| store.revoke(&record, present.as_ref())).await
    }

    /// What a file system shows is so.
    fn consistency_lag(&self, _: &Record) -> Duration {
        Duration::ZERO
    }

    async fn delete_bucket(&self, call: &Call<'_, Self>, content: Content) -> Result<BucketRemoval, StoreError> {
        let record = call.record.clone();
        self.with_store(move |store| store.delete(&record, content)).await
    }
}

fn root_id(root: &Path) -> io::Result<String> {
    let file = root.join("id");
    if !file.try_exists()? {
        let draft = root.join(random(20));
        fs::write(&draft, random(20))?;
        // Of several that try, one succeeds.
        let linked = fs::hard_link(&draft, &file);
        remove_if_there(&draft)?;
        match linked {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    fs::read_to_string(file)
}
