//! The S3 server: each key opens one bucket.

use std::io;
use std::path::Path;
use std::sync::Arc;

use bucket_provisioner::store::AccessMode;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::{S3Auth, SecretKey};
use s3s::dto::{CopyObjectInput, CopySource, DeleteObjectsInput, PutObjectInput};
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{S3Request, S3Result, s3_error};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::keys::{Key, Keys, blocking};

/// Whether a key stays in the directory of its bucket. `FileSystem` joins it to the path as it is.
fn stays_inside(key: &str) -> bool {
    let mut parts = key.strip_suffix('/').unwrap_or(key).split('/');
    parts.all(|part| !matches!(part, "" | "." | ".."))
}

/// What apps may do whatever the access mode of their key.
const FOR_ALL: [&str; 2] = ["GetBucketLocation", "HeadBucket"];
const READING: [&str; 4] = ["GetObject", "HeadObject", "ListObjects", "ListObjectsV2"];
/// Not multipart uploads: a stored part does not name its bucket, so it would stay after its bucket was deleted.
const WRITING: [&str; 1] = ["PutObject"];
const READING_AND_WRITING: [&str; 3] = ["CopyObject", "DeleteObject", "DeleteObjects"];

fn allows(mode: AccessMode, operation: &str) -> bool {
    let is_in = |operations: &[&str]| operations.contains(&operation);
    is_in(&FOR_ALL)
        || mode.reads() && is_in(&READING)
        || mode.writes() && is_in(&WRITING)
        || mode == AccessMode::ReadWrite && is_in(&READING_AND_WRITING)
}

/// How many connections there can be. Files and connections share a limit, and the provisioner needs files.
const CONNECTIONS: usize = 200;

#[derive(Debug, Clone)]
struct Guard(Keys);

impl Guard {
    async fn key(&self, id: &str) -> S3Result<Key> {
        let (keys, id) = (self.0.clone(), id.to_owned());
        let found = blocking(move || keys.find(&id)).await.map_err(|error| s3_error!(error, InternalError))?;
        found.ok_or_else(|| s3_error!(InvalidAccessKeyId))
    }

    /// Whether the key of a request opens the bucket that it copies from.
    async fn may_copy<T>(&self, request: &S3Request<T>, from: &CopySource) -> S3Result<()> {
        let key = match &request.credentials {
            Some(credentials) => Some(self.key(&credentials.access_key).await?),
            None => None,
        };
        match (key, from) {
            (Some(opened), CopySource::Bucket { bucket, key, .. })
                if *opened.bucket == **bucket && stays_inside(key) =>
            {
                Ok(())
            }
            _ => Err(s3_error!(AccessDenied)),
        }
    }
}

#[async_trait::async_trait]
impl S3Auth for Guard {
    async fn get_secret_key(&self, id: &str) -> S3Result<SecretKey> {
        Ok(self.key(id).await?.secret.into())
    }
}

#[async_trait::async_trait]
impl S3Access for Guard {
    async fn check(&self, request: &mut S3AccessContext<'_>) -> S3Result<()> {
        let id = request.credentials().map(|credentials| credentials.access_key.clone());
        let key = self.key(&id.ok_or_else(|| s3_error!(AccessDenied))?).await?;
        let opens = request.s3_path().get_bucket_name().is_some_and(|bucket| bucket == key.bucket);
        let inside = request.s3_path().get_object_key().is_none_or(stays_inside);
        if opens && inside && allows(key.mode(), request.s3_op().name()) {
            return Ok(());
        }
        Err(s3_error!(AccessDenied))
    }

    async fn copy_object(&self, request: &mut S3Request<CopyObjectInput>) -> S3Result<()> {
        self.may_copy(request, &request.input.copy_source).await
    }

    async fn delete_objects(&self, request: &mut S3Request<DeleteObjectsInput>) -> S3Result<()> {
        let inside = request.input.delete.objects.iter().all(|object| stays_inside(&object.key));
        if inside { Ok(()) } else { Err(s3_error!(AccessDenied)) }
    }

    async fn put_object(&self, request: &mut S3Request<PutObjectInput>) -> S3Result<()> {
        if stays_inside(&request.input.key) { Ok(()) } else { Err(s3_error!(AccessDenied)) }
    }
}

/// Listens. Who connects from now on is served once [`serve`] runs.
pub(crate) fn listen(address: &str) -> io::Result<TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// Serves the buckets in a directory.
pub(crate) async fn serve(buckets: &Path, keys: Keys, listener: TcpListener) -> io::Result<()> {
    let files = s3s_fs::FileSystem::new(buckets).map_err(|error| io::Error::other(format!("{error:?}")))?;
    let mut service = S3ServiceBuilder::new(files);
    service.set_auth(Guard(keys.clone()));
    service.set_access(Guard(keys));
    let service = service.build();
    tracing::info!(address = %listener.local_addr()?, "serving buckets");
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let place = Arc::clone(&room).acquire_owned().await.map_err(io::Error::other)?;
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(connection(stream, service.clone(), place))),
            // Without files for another connection there is nothing to do but wait.
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(100)).await,
        }
    }
}

async fn connection(stream: TcpStream, service: S3Service, _place: OwnedSemaphorePermit) {
    if let Err(error) = Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(error, "a connection broke");
    }
}
