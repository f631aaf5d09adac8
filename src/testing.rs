//! Fixtures for tests: records, and a store that gives canned answers and records the calls.
//!
//! Long, because the canned answers of S3 and IAM are of use only together.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::Deref;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use bytes::Bytes;
use http_body_util::StreamBody;
use hyper::body::Frame;

use crate::class::environment::Environment;
use crate::client::clients::Clients;
use crate::iam::association::Associations;
use crate::iam::probe;
use crate::{AwsProvisioner, Error, Owner};
use bucket_provisioner::store::{
    self, AccessRemoval, AppCredentials, BucketRemoval, Call, Checkup, ClaimId, Content, CreateError, Endpoint,
    Finding, Inventory, Mode, Owner as _, OwnerSource, Plan, Probe, ProbeCall, Provisioner as _, ReclaimPolicy, Record,
    SecretRef, ServiceAccount,
};

pub(crate) const UID: &str = "f30e0389-0689-48a2-bfaa-74d1bf1fd950";

pub(crate) const CLUSTER: &str = "22222222-0689-48a2-bfaa-74d1bf1fd950";
pub(crate) const ACCOUNT: &str = "123456789012";

/// An ordinary claim, with a generated name in us-west-1.
pub(crate) fn record() -> Record {
    let endpoint = Endpoint::new("s3.us-west-1.amazonaws.com", 443).with_region("us-west-1");
    let plan = Plan::new(format!("photos-{UID}"), Mode::Created, endpoint).with_user(format!("shop-photos-{UID}"));
    Record::new(
        ClaimId { namespace: "shop".into(), name: "photos".into(), uid: UID.into() },
        "fast",
        ReclaimPolicy::Delete,
        plan,
    )
    .with_cluster(CLUSTER)
    .with_account(ACCOUNT)
}

/// The record without the account that it had.
pub(crate) fn without_account(mut record: Record) -> Record {
    record.account = None;
    record
}

/// The record with another plan.
pub(crate) fn planned_as(mut record: Record, plan: Plan) -> Record {
    record.plan = plan;
    record
}

/// A claim whose user chose the name of the bucket.
pub(crate) fn named(region: &str) -> Record {
    let mut record = record();
    record.plan.bucket = "photos".into();
    record.plan.endpoint.region = region.into();
    record
}

/// A claim that was created in 2026, and whose user chose the name of the bucket.
pub(crate) fn named_in_2026() -> Record {
    named("us-west-1").with_claim_created_at(SystemTime::UNIX_EPOCH + Duration::from_secs(1_780_000_000))
}

/// The buckets of the account: one of a chosen name, created then.
pub(crate) fn buckets_created_at(date: &str) -> Answer {
    let bucket = |name: &str| format!("<Bucket><Name>{name}</Name><CreationDate>{date}</CreationDate></Bucket>");
    let buckets = bucket("photos") + &bucket("photos-of-others");
    ok(format!("<ListAllMyBucketsResult><Buckets>{buckets}</Buckets></ListAllMyBucketsResult>"))
}

/// The same claim at another store than AWS.
pub(crate) fn elsewhere(mut record: Record) -> Record {
    record.plan.endpoint.url = Some("https://s3.example".into());
    record
}

/// The same claim with its user in the IAM of another store than AWS.
pub(crate) fn at_foreign_iam(mut record: Record) -> Record {
    record.plan.state.insert("iamEndpoint".into(), "https://iam.example".into());
    record
}

/// A claim on the bucket that its class names.
pub(crate) fn granted() -> Record {
    let mut record = named("us-west-1");
    record.plan.mode = Mode::Granted;
    record
}

/// The role of [`keyless`].
pub(crate) const ROLE: &str = "shop-web-0123456789ab";

/// A claim whose apps have access as a ServiceAccount.
pub(crate) fn keyless() -> Record {
    let mut record = record();
    record.plan.user = Some(ROLE.into());
    record.plan.service_account = Some(ServiceAccount::new("web").with_audience("sts.amazonaws.com"));
    let provider = format!("arn:aws:iam::{ACCOUNT}:oidc-provider/oidc.example.com/id");
    record.plan.state.insert("oidcProvider".into(), provider);
    record.plan.state.insert("policyName".into(), format!("photos-{UID}"));
    record
}

/// A claim whose apps have access by EKS Pod Identity.
pub(crate) fn by_pod_identity() -> Record {
    let mut record = record();
    record.plan.user = Some("buckets-of-pods".into());
    record.plan.service_account = Some(ServiceAccount::new("web"));
    let cluster = format!("arn:aws:eks:eu-west-1:{ACCOUNT}:cluster/shop");
    record.plan.state.insert("eksCluster".into(), cluster);
    record.plan.state.insert("podRole".into(), format!("arn:aws:iam::{ACCOUNT}:role/buckets-of-pods"));
    record.plan.state.insert("policyName".into(), format!("photos-{UID}"));
    record
}

/// What the store answers.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    Status {
        status: u16,
        header: Option<(&'static str, &'static str)>,
        body: String,
    },
    /// The connection breaks without an answer.
    Reset,
    /// It breaks in the middle of the answer.
    Cut,
}

/// 200 with a body.
pub(crate) fn ok(body: impl Into<String>) -> Answer {
    Answer::Status { status: 200, header: None, body: body.into() }
}

/// An error as S3 words it ("Error responses", Amazon S3 API reference).
pub(crate) fn s3_error(status: u16, code: &str) -> Answer {
    let body = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>{code}</Code><Message>About {code}</Message>\
         <RequestId>4442587FB7D0A2F9</RequestId></Error>"
    );
    Answer::Status { status, header: None, body }
}

/// An error as IAM words it ("Common errors", IAM API reference).
pub(crate) fn iam_error(status: u16, code: &str) -> Answer {
    let body = format!(
        "<ErrorResponse xmlns=\"https://iam.amazonaws.com/doc/2010-05-08/\"><Error><Type>Sender</Type>\
         <Code>{code}</Code><Message>About {code}</Message></Error><RequestId>4442587FB7D0A2F9</RequestId></ErrorResponse>"
    );
    Answer::Status { status, header: None, body }
}

/// An error as EKS words it ("Common errors", Amazon EKS API reference).
pub(crate) fn eks_error(status: u16, code: &'static str) -> Answer {
    let body = format!("{{\"message\":\"About {code}\"}}");
    Answer::Status { status, header: Some(("x-amzn-errortype", code)), body }
}

/// An answer without a body, as to every HEAD.
pub(crate) fn bare(status: u16) -> Answer {
    Answer::Status { status, header: None, body: String::new() }
}

/// An answer without a body, but with the region of the bucket.
pub(crate) fn in_region(status: u16, region: &'static str) -> Answer {
    Answer::Status { status, header: Some(("x-amz-bucket-region", region)), body: String::new() }
}

pub(crate) fn bucket_tags(tags: &[(&str, &str)]) -> Answer {
    let tags: String =
        tags.iter().map(|(key, value)| format!("<Tag><Key>{key}</Key><Value>{value}</Value></Tag>")).collect();
    ok(format!("<Tagging><TagSet>{tags}</TagSet></Tagging>"))
}

pub(crate) fn user_with_tags(tags: &[(&str, &str)]) -> Answer {
    user_made_at("2026-01-01T00:00:00Z", tags)
}

pub(crate) fn user_made_at(date: &str, tags: &[(&str, &str)]) -> Answer {
    let tags: String =
        tags.iter().map(|(key, value)| format!("<member><Key>{key}</Key><Value>{value}</Value></member>")).collect();
    ok(format!(
        "<GetUserResponse><GetUserResult><User><Path>/</Path><UserName>u</UserName><UserId>AIDA1</UserId>\
         <Arn>arn:aws:iam::123456789012:user/u</Arn><CreateDate>{date}</CreateDate>\
         <Tags>{tags}</Tags></User></GetUserResult></GetUserResponse>"
    ))
}

/// A user without tags, at a path.
pub(crate) fn user_at(path: &str) -> Answer {
    ok(format!(
        "<GetUserResponse><GetUserResult><User><Path>{path}</Path><UserName>u</UserName><UserId>AIDA1</UserId>\
         <Arn>arn:aws:iam::{ACCOUNT}:user{path}u</Arn><CreateDate>2026-01-01T00:00:00Z</CreateDate></User>\
         </GetUserResult></GetUserResponse>"
    ))
}

/// All tags of the bucket of this record.
pub(crate) fn bucket_tags_of(record: &Record) -> Answer {
    let tags = crate::s3::tags::of_record("aws-s3.io/bucket", record);
    bucket_tags(&tags.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect::<Vec<_>>())
}

pub(crate) const OURS: &[(&str, &str)] = &[("objectbucket.io/claim-uid", UID)];
pub(crate) const OTHERS: &[(&str, &str)] = &[
    ("objectbucket.io/claim-uid", "another"),
    ("objectbucket.io/claim-namespace", "shop"),
    ("objectbucket.io/claim-name", "other"),
];
pub(crate) const FOREIGN: &[(&str, &str)] = &[("cost-center", "42")];

pub(crate) fn access_key() -> Answer {
    ok("<CreateAccessKeyResponse><CreateAccessKeyResult><AccessKey><UserName>u</UserName>\
        <AccessKeyId>AKIANEW</AccessKeyId><Status>Active</Status><SecretAccessKey>hunter2</SecretAccessKey>\
        </AccessKey></CreateAccessKeyResult></CreateAccessKeyResponse>")
}

pub(crate) fn access_keys(ids: &[&str]) -> Answer {
    let keys: String = ids
        .iter()
        .map(|id| format!("<member><UserName>u</UserName><AccessKeyId>{id}</AccessKeyId></member>"))
        .collect();
    ok(format!(
        "<ListAccessKeysResponse><ListAccessKeysResult><AccessKeyMetadata>{keys}</AccessKeyMetadata>\
         <IsTruncated>false</IsTruncated></ListAccessKeysResult></ListAccessKeysResponse>"
    ))
}

/// A provisioner in front of a store with canned answers.
pub(crate) struct Stage {
    pub(crate) provisioner: AwsProvisioner,
    pub(crate) owner: Owner,
    store: CannedStore,
}

impl Stage {
    /// Answers each operation with the first of its remaining answers.
    pub(crate) fn answering(answers: impl IntoIterator<Item = (&'static str, Answer)>) -> Self {
        Self::in_environment(Environment::default(), answers)
    }

    /// The same for an operator with these variables and flags.
    pub(crate) fn in_environment(
        environment: Environment,
        answers: impl IntoIterator<Item = (&'static str, Answer)>,
    ) -> Self {
        let answers = Arc::new(Mutex::new(answers.into_iter().collect()));
        let store = CannedStore { answers, ..CannedStore::default() };
        let clients = Clients::new(SharedHttpClient::new(store.clone()).into());
        let mut provisioner = AwsProvisioner::with(Ok(environment), clients);
        provisioner.associations = Associations::of_first_operator();
        let data = [("AWS_ACCESS_KEY_ID", "AKIAOWNER"), ("AWS_SECRET_ACCESS_KEY", "0wn3r")]
            .map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec()))
            .into();
        let reference = SecretRef { namespace: "ops".into(), name: "keys".into() };
        let owner = Owner::parse(&OwnerSource::Secret { reference, data }).unwrap();
        Self { provisioner, owner, store }
    }

    /// From now on each call takes this long. With paused time, what passes is the calls in a row.
    pub(crate) fn delays(&self, each: Duration) {
        *self.store.delay.lock().unwrap() = each;
    }

    fn call<'a>(&'a self, record: &'a Record) -> Call<'a, AwsProvisioner> {
        Call::new(record, &(), &self.owner)
    }

    pub(crate) async fn provision(&self, record: &Record) -> Result<AppCredentials, Refusal> {
        Ok(store::provision(&self.provisioner, &self.call(record)).await?)
    }

    pub(crate) async fn grant(&self, record: &Record) -> Result<AppCredentials, Refusal> {
        Ok(self.provisioner.grant(&self.call(record)).await?)
    }

    pub(crate) async fn probe(&self, record: &Record, credentials: &AppCredentials) -> Result<Probe, Error> {
        self.provisioner.probe(&ProbeCall::new(record, &(), credentials)).await
    }

    pub(crate) async fn probe_as_owner(&self, record: &Record) -> Result<Probe, Error> {
        let none = AppCredentials::without_keys();
        self.provisioner.probe(&ProbeCall::new(record, &(), &none).with_owner(Some(&self.owner))).await
    }

    pub(crate) async fn probe_with_token(
        &self,
        record: &Record,
        credentials: &AppCredentials,
        token: &str,
    ) -> Result<Probe, Error> {
        let token = token.to_owned().into();
        let call = ProbeCall::new(record, &(), credentials).with_token(Some(&token));
        self.provisioner.probe(&call).await
    }

    pub(crate) async fn check(&self, record: &Record, keys: &[&str]) -> Result<Checkup, Error> {
        self.provisioner.check(&self.call(record), keys).await
    }

    pub(crate) async fn inventory(&self, record: &Record) -> Inventory {
        self.provisioner.inventory(&self.call(record), None).await.unwrap().unwrap()
    }

    pub(crate) async fn account(&self, record: &Record) -> Result<Option<String>, Error> {
        self.provisioner.account(&self.call(record)).await
    }

    pub(crate) async fn examine(&self, record: &Record, issuer: Option<&str>) -> Vec<Finding> {
        self.provisioner.examine(&self.call(record).with_issuer(issuer)).await
    }

    pub(crate) async fn revoke(&self, record: &Record, present: Option<&AppCredentials>) -> Result<Removed, Error> {
        let access = self.provisioner.revoke(&self.call(record).with_present(present)).await?;
        Ok((access, BucketRemoval::Kept))
    }

    pub(crate) async fn delete(
        &self,
        record: &Record,
        present: Option<&AppCredentials>,
        content: Content,
    ) -> Result<Removed, Error> {
        let call = self.call(record).with_present(present);
        let removal = store::delete(&self.provisioner, &call, content).await?;
        Ok((removal.access, removal.bucket))
    }

    /// The called operations, in order.
    pub(crate) fn calls(&self) -> Vec<String> {
        self.store.calls.lock().unwrap().iter().map(|(operation, _)| operation.clone()).collect()
    }

    /// The body of the first call of an operation, or its query.
    pub(crate) fn sent(&self, operation: &str) -> String {
        let calls = self.store.calls.lock().unwrap();
        calls.iter().find(|(called, _)| called == operation).map(|(_, body)| body.clone()).unwrap()
    }

    /// The ownership of objects that each CreateBucket names.
    pub(crate) fn ownerships(&self) -> Vec<Option<String>> {
        self.header("CreateBucket", "x-amz-object-ownership")
    }

    /// What the calls of an operation had in a header.
    pub(crate) fn header(&self, operation: &str, header: &str) -> Vec<Option<String>> {
        let headers = self.store.headers.lock().unwrap();
        let of_operation = headers.iter().filter(|(of, _)| of == operation);
        of_operation.map(|(_, headers)| headers.get(header).cloned()).collect()
    }

    /// The bodies of all calls of an operation, or their queries, in order.
    pub(crate) fn all_sent(&self, operation: &str) -> Vec<String> {
        let calls = self.store.calls.lock().unwrap();
        calls.iter().filter(|(called, _)| called == operation).map(|(_, body)| body.clone()).collect()
    }

    /// The host to which the first call of an operation was sent, and the region for which it was signed.
    pub(crate) fn addressed(&self, operation: &str) -> (String, String) {
        let addressed = self.store.addressed.lock().unwrap();
        let (_, host, region, _) = addressed.iter().find(|(called, ..)| called == operation).unwrap();
        (host.clone(), region.clone())
    }

    /// For each call, the operation and the access key id that signed it.
    pub(crate) fn signers(&self) -> Vec<(String, String)> {
        let addressed = self.store.addressed.lock().unwrap();
        addressed.iter().map(|(operation, .., key_id)| (operation.clone(), key_id.clone())).collect()
    }

    /// For each call about a bucket, the operation and the account that it named as the owner.
    pub(crate) fn expected_owners(&self) -> ExpectedOwners {
        self.store.owners.lock().unwrap().clone()
    }
}

/// The outcome of deleting user and bucket.
pub(crate) type Removed = (AccessRemoval, BucketRemoval);

/// Why nothing was created.
#[derive(Debug)]
pub(crate) struct Refusal {
    error: Error,
    /// Whether the store has certainly not changed.
    pub(crate) changed_nothing: bool,
}

impl From<CreateError<Error>> for Refusal {
    fn from(error: CreateError<Error>) -> Self {
        let changed_nothing = matches!(error, CreateError::Refused(_));
        Self { error: error.into_inner(), changed_nothing }
    }
}

impl Deref for Refusal {
    type Target = Error;

    fn deref(&self) -> &Error {
        &self.error
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

/// For each call the operation, the host, the region of the signature, and the access key id.
type Addressed = (String, String, String, String);

/// An operation, and the headers of a call.
type Headers = (String, BTreeMap<String, String>);

type ExpectedOwners = Vec<(String, Option<String>)>;

#[derive(Debug, Clone, Default)]
struct CannedStore {
    answers: Arc<Mutex<Vec<(&'static str, Answer)>>>,
    calls: Arc<Mutex<Vec<(String, String)>>>,
    owners: Arc<Mutex<ExpectedOwners>>,
    addressed: Arc<Mutex<Vec<Addressed>>>,
    delay: Arc<Mutex<Duration>>,
    /// By operation, of each call.
    headers: Arc<Mutex<Vec<Headers>>>,
}

impl HttpConnector for CannedStore {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let body = String::from_utf8_lossy(request.body().bytes().unwrap_or_default()).into_owned();
        let operation = operation(&request, &body);
        let host = request.uri().split('/').nth(2).unwrap_or_default().to_owned();
        let mut credential = request.headers().get("authorization").unwrap_or_default().split('/');
        let key_id = credential.next().and_then(|text| text.rsplit('=').next()).unwrap_or_default().to_owned();
        let region = credential.nth(1).unwrap_or_default().to_owned();
        self.addressed.lock().unwrap().push((operation.clone(), host, region, key_id));
        let mut answers = self.answers.lock().unwrap();
        let answer = answers.iter().position(|(asked, _)| *asked == operation).map(|at| answers.remove(at).1);
        if !body.starts_with("Action=") {
            let headers = ["x-amz-expected-bucket-owner", "x-amz-account-id"];
            let owner = headers.iter().find_map(|header| request.headers().get(header)).map(str::to_owned);
            self.owners.lock().unwrap().push((operation.clone(), owner));
        }
        let sent = if body.is_empty() {
            request.uri().split_once('?').map_or("", |(_, query)| query).to_owned()
        } else {
            body
        };
        let headers = request.headers().iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        self.headers.lock().unwrap().push((operation.clone(), headers.collect()));
        self.calls.lock().unwrap().push((operation, sent));
        let answered = match answer {
            Some(Answer::Status { status, header, body }) => {
                let mut response = HttpResponse::new(status.try_into().unwrap(), SdkBody::from(body));
                if let Some((name, value)) = header {
                    response.headers_mut().insert(name, value);
                }
                Ok(response)
            }
            Some(Answer::Reset) => Err(ConnectorError::io("connection reset".into())),
            Some(Answer::Cut) => {
                let parts = [Ok(Frame::data(Bytes::from_static(b"<"))), Err(io::Error::other("connection reset"))];
                let body = StreamBody::new(futures::stream::iter(parts));
                Ok(HttpResponse::new(200.try_into().unwrap(), SdkBody::from_body_1_x(body)))
            }
            None => Ok(HttpResponse::new(418.try_into().unwrap(), SdkBody::empty())),
        };
        let delay = *self.delay.lock().unwrap();
        if delay.is_zero() {
            return HttpConnectorFuture::ready(answered);
        }
        HttpConnectorFuture::new(async move {
            tokio::time::sleep(delay).await;
            answered
        })
    }
}

impl HttpClient for CannedStore {
    fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

/// What of a bucket has an address of its own.
const SUB_RESOURCES: [(&str, &str); 10] = [
    ("versioning", "BucketVersioning"),
    ("encryption", "BucketEncryption"),
    ("lifecycle", "BucketLifecycleConfiguration"),
    ("ownershipControls", "BucketOwnershipControls"),
    ("publicAccessBlock", "PublicAccessBlock"),
    ("logging", "BucketLogging"),
    ("policy", "BucketPolicy"),
    ("object-lock", "ObjectLockConfiguration"),
    ("cors", "BucketCors"),
    ("notification", "BucketNotificationConfiguration"),
];

/// The name of the operation that a request asks for.
fn operation(request: &HttpRequest, body: &str) -> String {
    if let Some(action) = body.strip_prefix("Action=") {
        return action.split('&').next().unwrap_or_default().to_owned();
    }
    let (path, query) = request.uri().split_once('?').unwrap_or((request.uri(), ""));
    if let Some((_, of_cluster)) = path.split_once("amazonaws.com/clusters/") {
        return of_eks(request.method(), of_cluster).to_owned();
    }
    let asks = |name: &str| query.split('&').any(|part| part.split('=').next() == Some(name));
    if let Some((_, sub_resource)) = SUB_RESOURCES.iter().find(|(name, _)| asks(name)) {
        let verb = match request.method() {
            "GET" => "Get",
            "DELETE" => "Delete",
            _ => "Put",
        };
        return format!("{verb}{sub_resource}");
    }
    let name = match request.method() {
        "POST" if path.contains("/v20180820/tags/") => "TagResource",
        "PUT" if asks("tagging") => "PutBucketTagging",
        "PUT" if asks("partNumber") => "UploadPart",
        "PUT" => "CreateBucket",
        "POST" if asks("uploads") => "CreateMultipartUpload",
        "POST" => "DeleteObjects",
        "DELETE" if asks("uploadId") => "AbortMultipartUpload",
        "DELETE" if asks("versionId") => "DeleteObject",
        "DELETE" => "DeleteBucket",
        "HEAD" => "HeadBucket",
        _ if asks("retention") => "GetObjectRetention",
        _ if asks("legal-hold") => "GetObjectLegalHold",
        _ if asks("location") => "GetBucketLocation",
        _ if path.ends_with("/accesspoint") => "ListAccessPoints",
        _ if asks("tagging") => "GetBucketTagging",
        _ if asks("versions") => "ListObjectVersions",
        _ if asks("uploads") => "ListMultipartUploads",
        _ if asks("prefix") && path.ends_with("amazonaws.com/") && !path.contains("photos") => "ListBuckets",
        _ if query.contains("x-id=ListBuckets") => "ListBuckets",
        _ if path.contains(probe::NO_SUCH_KEY) => "GetObject",
        _ => "ListObjectsV2",
    };
    name.to_owned()
}

/// The operation of EKS, by the rest of the path.
fn of_eks(method: &str, of_cluster: &str) -> &'static str {
    let parts: Vec<_> = of_cluster.split('/').collect();
    match (method, parts.as_slice()) {
        ("GET", [_, "pod-identity-associations"]) => "ListPodIdentityAssociations",
        (_, [_, "pod-identity-associations"]) => "CreatePodIdentityAssociation",
        ("GET", [_, "pod-identity-associations", _]) => "DescribePodIdentityAssociation",
        ("DELETE", [_, "pod-identity-associations", _]) => "DeletePodIdentityAssociation",
        (_, [_, "pod-identity-associations", _]) => "UpdatePodIdentityAssociation",
        (_, [_, "addons", _]) => "DescribeAddon",
        _ => "DescribeCluster",
    }
}
