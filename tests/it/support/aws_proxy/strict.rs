//! What IAM refuses, delays and shows late, where the emulator does not; and S3, see `buckets`.
//!
//! | rule | source |
//! |---|---|
//! | a user has two access keys at most | "IAM and AWS STS quotas" |
//! | a user is deleted only when nothing hangs on it | DeleteUser in the IAM API reference |
//! | a new key is unknown for some seconds | "Changes that I make are not always immediately visible", IAM user guide |
//! | IAM's reads lag behind writes | the same |
//! | a user just created is unknown to writes, too, or they are denied | hashicorp/terraform-provider-aws, issues 2449 and 6055 |
//! | a call is signed for the region of its endpoint | "Elements of an AWS API request signature", IAM user guide |
//! | a region that is not enabled knows none of the account's keys | "Enable or disable AWS Regions in your account", Account Management reference guide |
//! | the name of a bucket just deleted is not free at once | "Deleting a general purpose bucket", S3 user guide |

use std::collections::HashMap;
use std::future::Future;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::Response;
use provisioner_conformance::proxy::{Answer, Fault, plain, respond};

use super::AwsCall;
use super::buckets::Buckets;
use super::people::People;
use super::roles::Roles;
use crate::support::account::Account;

/// How strict and how slow AWS is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Strictness {
    /// A new key is unknown for this long.
    pub(crate) key_delay: Duration,
    /// IAM's reads show what was this long ago.
    pub(crate) lag: Duration,
    /// The name of a deleted bucket cannot be taken for this long.
    pub(crate) name_delay: Duration,
    /// A new bucket is unknown for this long.
    pub(crate) bucket_lag: Duration,
    /// IAM's writes do not know a new user for this long.
    pub(crate) user_delay: Duration,
    /// They are denied instead.
    pub(crate) denies_new_users: bool,
    /// CreateBucket refuses tags.
    pub(crate) refuses_tags: bool,
    /// Buckets are listed in pages only.
    pub(crate) pages_buckets: bool,
    /// The account has not enabled the region.
    pub(crate) region_is_disabled: bool,
}

impl Strictness {
    /// Nothing is late, and everything is supported.
    pub(crate) const PROMPT: Self = Self {
        key_delay: Duration::ZERO,
        lag: Duration::ZERO,
        name_delay: Duration::ZERO,
        bucket_lag: Duration::ZERO,
        user_delay: Duration::ZERO,
        denies_new_users: false,
        refuses_tags: false,
        pages_buckets: true,
        region_is_disabled: false,
    };
}

/// What is remembered of the calls that went through.
pub(super) struct Strict {
    strictness: Strictness,
    account: Account,
    keys_made: Mutex<HashMap<String, Instant>>,
    users_made: Mutex<HashMap<String, Instant>>,
    pub(super) buckets: Buckets,
    pub(super) people: People,
    roles: Roles,
    buckets_deleted: Mutex<HashMap<String, Instant>>,
    /// For each user when it was changed, and what it was before.
    changes: Mutex<HashMap<String, Vec<(Instant, User)>>>,
}

/// A user and what hangs on it; all of it is empty if there is no such user.
#[derive(Debug, Clone, Default)]
struct User {
    itself: Option<aws_sdk_iam::types::User>,
    keys: Vec<String>,
    inline_policies: Vec<String>,
    attached_policies: Vec<aws_sdk_iam::types::AttachedPolicy>,
    groups: Vec<aws_sdk_iam::types::Group>,
    /// Whether people can sign in with something.
    signs_in: bool,
}

impl Strict {
    pub(super) fn new(strictness: Strictness) -> Self {
        Self {
            strictness,
            account: Account::owner(),
            keys_made: Mutex::default(),
            users_made: Mutex::default(),
            buckets: Buckets::default(),
            people: People::default(),
            roles: Roles::default(),
            buckets_deleted: Mutex::default(),
            changes: Mutex::default(),
        }
    }

    /// Answers a call as AWS would: refuses it, shows what was, or passes it on with `forward`.
    pub(super) async fn send(
        &self,
        call: &AwsCall,
        forward: impl Future<Output = Result<Answer, Fault>>,
    ) -> Result<Answer, Fault> {
        if call.is_misdirected {
            return Ok(refuse(call, 403, "SignatureDoesNotMatch"));
        }
        let is_young = self.is_young(&self.keys_made, call.signer.as_deref(), self.strictness.key_delay);
        if is_young || self.strictness.region_is_disabled {
            let code = if call.is_iam() { "InvalidClientTokenId" } else { "InvalidAccessKeyId" };
            return Ok(refuse(call, 403, code));
        }
        if let Some(refusal) = self.buckets.answer(call, &self.strictness, &self.account).await {
            return Ok(refusal);
        }
        if let Some(answer) = self.people.answer(call) {
            return Ok(answer);
        }
        if let Some(refusal) = self.roles.refuse(call, self.strictness.key_delay, &self.account).await {
            return Ok(refusal);
        }
        match (&call.user, &call.bucket) {
            (Some(user), _) if call.operation.starts_with("Get") || call.operation.starts_with("List") => {
                match self.as_it_was(user).and_then(|user| shown(call, &user)) {
                    Some(answer) => Ok(answer),
                    None => forward.await,
                }
            }
            (Some(user), _) => self.change_user(call, user, forward).await,
            (None, Some(bucket)) => self.use_bucket(call, bucket, forward).await,
            (None, None) => {
                let answer = forward.await?;
                if answer.status().is_success() {
                    self.roles.done(call);
                }
                Ok(answer)
            }
        }
    }

    fn is_young(&self, since: &Mutex<HashMap<String, Instant>>, name: Option<&str>, age: Duration) -> bool {
        name.is_some_and(|name| since.lock().unwrap().get(name).is_some_and(|since| since.elapsed() < age))
    }

    /// A user before the first of its changes that IAM's reads do not show yet.
    fn as_it_was(&self, user: &str) -> Option<User> {
        let changes = self.changes.lock().unwrap();
        let hidden = changes.get(user)?.iter().find(|(when, _)| when.elapsed() < self.strictness.lag);
        hidden.map(|(_, before)| before.clone())
    }

    async fn change_user(
        &self,
        call: &AwsCall,
        name: &str,
        forward: impl Future<Output = Result<Answer, Fault>>,
    ) -> Result<Answer, Fault> {
        if self.is_young(&self.users_made, Some(name), self.strictness.user_delay) {
            let (status, code) = match call.operation.as_str() {
                "CreateUser" => (409, "EntityAlreadyExists"),
                // Its tags and its boundary are not known, and the conditions of policies ask for them.
                _ if self.strictness.denies_new_users => (403, "AccessDenied"),
                _ => (404, "NoSuchEntity"),
            };
            return Ok(refuse(call, status, code));
        }
        let user = self.look(name).await;
        match call.operation.as_str() {
            "CreateAccessKey" if user.keys.len() >= 2 => return Ok(refuse(call, 409, "LimitExceeded")),
            "DeleteUser" if user.holds_something() => return Ok(refuse(call, 409, "DeleteConflict")),
            _ => {}
        }
        let (parts, body) = forward.await?.into_parts();
        let body = body.collect().await?.to_bytes();
        if parts.status.is_success() {
            let now = Instant::now();
            if call.operation == "CreateUser" {
                self.users_made.lock().unwrap().insert(name.to_owned(), now);
            }
            self.changes.lock().unwrap().entry(name.to_owned()).or_default().push((now, user));
            if let Some(key) = (call.operation == "CreateAccessKey").then(|| element(&body, "AccessKeyId")).flatten() {
                self.keys_made.lock().unwrap().insert(key, now);
            }
        }
        Ok(respond(Response::from_parts(parts, body)))
    }

    async fn use_bucket(
        &self,
        call: &AwsCall,
        bucket: &str,
        forward: impl Future<Output = Result<Answer, Fault>>,
    ) -> Result<Answer, Fault> {
        let is_young = self.is_young(&self.buckets_deleted, Some(bucket), self.strictness.name_delay);
        if call.operation == "CreateBucket" && is_young {
            return Ok(refuse(call, 409, "OperationAborted"));
        }
        let answer = forward.await?;
        if answer.status().is_success() {
            self.buckets.done(call);
        }
        if call.operation == "DeleteBucket" && answer.status().is_success() {
            self.buckets_deleted.lock().unwrap().insert(bucket.to_owned(), Instant::now());
        }
        Ok(answer)
    }

    /// A user as it is now, past the proxy.
    async fn look(&self, name: &str) -> User {
        let iam = &self.account.iam;
        let Ok(found) = iam.get_user().user_name(name).send().await else { return User::default() };
        let inline = iam.list_user_policies().user_name(name).send().await.unwrap();
        let attached = iam.list_attached_user_policies().user_name(name).send().await.unwrap();
        let groups = iam.list_groups_for_user().user_name(name).send().await;
        let devices = iam.list_mfa_devices().user_name(name).send().await;
        User {
            itself: found.user,
            keys: self.account.keys(name).await,
            inline_policies: inline.policy_names,
            attached_policies: attached.attached_policies.unwrap_or_default(),
            groups: groups.map(|found| found.groups).unwrap_or_default(),
            signs_in: self.people.has(name) || devices.is_ok_and(|found| !found.mfa_devices.is_empty()),
        }
    }
}

impl User {
    fn holds_something(&self) -> bool {
        let policies = !(self.inline_policies.is_empty() && self.attached_policies.is_empty());
        policies || self.signs_in || !self.keys.is_empty() || !self.groups.is_empty()
    }
}

/// The answer of a read that is about `user`; `None` if it is about something else.
fn shown(call: &AwsCall, user: &User) -> Option<Answer> {
    let operation = call.operation.as_str();
    if !matches!(operation, "GetUser" | "ListAccessKeys" | "ListUserPolicies" | "ListAttachedUserPolicies") {
        return None;
    }
    let Some(itself) = &user.itself else { return Some(refuse(call, 404, "NoSuchEntity")) };
    let member = |inner: String| format!("<member>{inner}</member>");
    // Names and tags of a test need no escaping.
    let element = |name: &str, value: &str| format!("<{name}>{value}</{name}>");
    let created = element("CreateDate", "2024-01-01T00:00:00Z");
    let name = element("UserName", &itself.user_name);
    let result = match operation {
        "GetUser" => {
            let tags = itself.tags().iter().map(|tag| element("Key", &tag.key) + &element("Value", &tag.value));
            let tags = element("Tags", &tags.map(member).collect::<String>());
            let (path, id, arn) = (&itself.path, &itself.user_id, &itself.arn);
            let user = [name, element("Path", path), element("UserId", id), element("Arn", arn), created, tags];
            element("User", &user.concat())
        }
        "ListAccessKeys" => {
            let key = |id: &String| {
                [&name, &element("AccessKeyId", id), &element("Status", "Active"), &created]
                    .map(|s| s.as_str())
                    .concat()
            };
            element("AccessKeyMetadata", &user.keys.iter().map(key).map(member).collect::<String>())
        }
        "ListUserPolicies" => {
            element("PolicyNames", &user.inline_policies.iter().cloned().map(member).collect::<String>())
        }
        _ => {
            let policy = |policy: &aws_sdk_iam::types::AttachedPolicy| {
                element("PolicyName", policy.policy_name().unwrap_or_default())
                    + &element("PolicyArn", policy.policy_arn().unwrap_or_default())
            };
            element("AttachedPolicies", &user.attached_policies.iter().map(policy).map(member).collect::<String>())
        }
    };
    let result = element(&format!("{operation}Result"), &(result + "<IsTruncated>false</IsTruncated>"));
    Some(plain(200, element(&format!("{operation}Response"), &result)))
}

/// The first element of that name in an answer.
pub(super) fn element(body: &Bytes, name: &str) -> Option<String> {
    let text = std::str::from_utf8(body).ok()?;
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    rest.split_once('<').map(|(value, _)| value.to_owned())
}

/// An error as S3 and IAM write it.
pub(super) fn refuse(call: &AwsCall, status: u16, code: &str) -> Answer {
    let error = format!("<Error><Code>{code}</Code><Message>refused by the test</Message></Error>");
    let text = if call.is_iam() { format!("<ErrorResponse>{error}</ErrorResponse>") } else { error };
    plain(status, text)
}
