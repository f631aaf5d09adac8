//! A provisioner for a store that speaks HTTP. docs/writing-a-provisioner.md builds it step by step; server.rs is the store.

mod client;

use std::fmt;
use std::process::ExitCode;

use bucket_provisioner::schemars::JsonSchema;
use bucket_provisioner::store::{
    AccessRemoval, AppCredentials, BucketRemoval, Call, Checkup, Content, CreateError, Endpoint, ExposeSecret as _,
    Mode, Plan, Reason, Record, Request, SecretString, Start, StoreError, Topic,
};
use bucket_provisioner::{NoFlags, Operator, Provisioner};
use reqwest::{RequestBuilder, Url};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Value, json};

use crate::client::{Answer, FAILING, NO_ANSWER, ServerUrl, TOKEN_REFUSED};

/// The parameters of a StorageClass.
#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "bucket_provisioner::schemars")]
struct Parameters {
    /// URL of the store, such as `https://store.example.com`.
    server: ServerUrl,
}

/// The keys of the Secret that the class names.
#[derive(Deserialize)]
struct Owner {
    #[serde(rename = "TOKEN")]
    token: SecretString,
}

const TAKEN: Reason = Reason::new("NameTaken", Topic::Claim)
    .meaning("a bucket or a user of that name exists, and was not created for this claim")
    .remedy("choose another name");
const MISSING: Reason = Reason::new("BucketMissing", Topic::Class)
    .meaning("the claim's bucket does not exist")
    .remedy("restore it; if the class names it, create it");

/// What is created for a claim.
enum Resource<'a> {
    Bucket(&'a str),
    User(&'a str),
}

impl Resource<'_> {
    fn url(&self, server: &ServerUrl) -> Url {
        match self {
            Self::Bucket(name) => server.join(&["buckets", name]),
            Self::User(name) => server.join(&["users", name]),
        }
    }
}

impl fmt::Display for Resource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bucket(name) => write!(f, "bucket {name:?}"),
            Self::User(name) => write!(f, "user {name:?}"),
        }
    }
}

/// The mark of a resource: the uid of the claim for which it was created, if any.
#[derive(Deserialize)]
struct Mark {
    claim: Option<String>,
}

impl Mark {
    fn names(&self, record: &Record) -> bool {
        self.claim.as_deref().is_some_and(|uid| record.names_uid(uid))
    }
}

#[derive(Deserialize)]
struct Account {
    account: String,
}

#[derive(Deserialize)]
struct Password {
    password: SecretString,
}

struct HttpProvisioner {
    http: reqwest::Client,
}

impl HttpProvisioner {
    async fn start(_: NoFlags, _: Start) -> Result<Self, String> {
        let http = client::client().map_err(|error| format!("the HTTP client cannot be made: {error:?}"))?;
        Ok(Self { http })
    }

    /// Sends a request with the owner's token.
    async fn send<T: DeserializeOwned>(
        &self,
        call: &Call<'_, Self>,
        request: RequestBuilder,
    ) -> Result<Answer<T>, CreateError<StoreError>> {
        client::send(&call.parameters.server, request.bearer_auth(call.owner.token.expose_secret())).await
    }

    async fn find(&self, call: &Call<'_, Self>, resource: &Resource<'_>) -> Result<Option<Mark>, StoreError> {
        let request = self.http.get(resource.url(&call.parameters.server));
        self.send(call, request).await?.found()
    }

    /// Creates a resource in the same call that marks it, or finds the one that an earlier call has created.
    async fn create(
        &self,
        call: &Call<'_, Self>,
        resource: &Resource<'_>,
        content: Value,
    ) -> Result<(), CreateError<StoreError>> {
        let request = self.http.put(resource.url(&call.parameters.server)).json(&content);
        if let Answer::Success(IgnoredAny) = self.send(call, request).await? {
            return Ok(());
        }
        match self.find(call, resource).await? {
            Some(mark) if mark.names(call.record) => Ok(()),
            Some(_) => {
                let message = format!("{resource} exists, and was not created for this claim; choose another name");
                Err(CreateError::Refused(StoreError::terminal(&TAKEN, message)))
            }
            None => Err(StoreError::retryable(&FAILING, format!("{resource} could not be created; retrying")).into()),
        }
    }

    /// Checks that the claim may use the bucket.
    async fn check_bucket(&self, call: &Call<'_, Self>) -> Result<(), StoreError> {
        let bucket = Resource::Bucket(call.bucket());
        match (call.record.plan.mode, self.find(call, &bucket).await?) {
            (_, Some(mark)) if mark.names(call.record) => Ok(()),
            (Mode::Granted, Some(Mark { claim: None })) => Ok(()),
            (_, Some(_)) => {
                let message = format!("{bucket} was not created for this claim; choose another name");
                Err(StoreError::lost(&TAKEN, message))
            }
            (_, None) => Err(StoreError::lost(&MISSING, format!("{bucket} does not exist; restore or create it"))),
        }
    }
}

impl Provisioner for HttpProvisioner {
    type Parameters = Parameters;
    type Owner = Owner;
    type Error = StoreError;

    const REASONS: &'static [&'static Reason] = &[&TAKEN, &MISSING, &NO_ANSWER, &FAILING, &TOKEN_REFUSED];

    fn endpoint(&self, parameters: &Parameters) -> Endpoint {
        parameters.server.endpoint.clone()
    }

    /// Apps of this store need its URL, beside host and port.
    fn plan(&self, request: &Request<'_, Parameters>) -> Result<Plan, StoreError> {
        let plan = request.plan(self.endpoint(request.parameters));
        Ok(plan.with_output("STORE_URL", request.parameters.server.to_string()))
    }

    /// Also proves that the store accepts the token. It costs one call for each verb; a store that limits calls keeps the
    /// answer for as long as server and token are the same.
    async fn account(&self, call: &Call<'_, Self>) -> Result<Option<String>, StoreError> {
        let request = self.http.get(call.parameters.server.join(&["account"]));
        let answer = self.send(call, request).await?;
        Ok(answer.found()?.map(|Account { account }| account))
    }

    async fn create_bucket(&self, call: &Call<'_, Self>) -> Result<(), CreateError<StoreError>> {
        let content = json!({ "claim": call.record.claim.uid });
        self.create(call, &Resource::Bucket(call.bucket()), content).await
    }

    async fn grant(&self, call: &Call<'_, Self>) -> Result<AppCredentials, CreateError<StoreError>> {
        if !call.creates_bucket() {
            // It only reads, so nothing has changed if it fails.
            self.check_bucket(call).await.map_err(CreateError::Refused)?;
        }
        let user = Resource::User(call.user());
        self.create(call, &user, json!({ "claim": call.record.claim.uid, "bucket": call.bucket() })).await?;
        // The user has one password. That of an earlier call is lost, and replaced.
        let request = self.http.post(call.parameters.server.join(&["users", call.user(), "password"]));
        // A refusal is not one of the whole verb: the user exists by now.
        let answer = self.send(call, request).await.map_err(CreateError::into_inner)?;
        match answer.found()? {
            Some(Password { password }) => Ok(AppCredentials::new(call.user(), password)),
            None => Err(StoreError::retryable(&FAILING, format!("{user} was deleted meanwhile; retrying")).into()),
        }
    }

    /// The user's name is the key id, so without the user the claim's credentials cannot work.
    async fn revoke(&self, call: &Call<'_, Self>) -> Result<AccessRemoval, StoreError> {
        let user = Resource::User(call.user());
        match self.find(call, &user).await? {
            None => return Ok(AccessRemoval::NotFound),
            Some(mark) if mark.names(call.record) => {}
            Some(_) => return Ok(AccessRemoval::LeftInPlace(left_in_place(&user))),
        }
        let request = self.http.delete(user.url(&call.parameters.server));
        let answer = self.send(call, request).await?;
        Ok(answer.found()?.map_or(AccessRemoval::NotFound, |IgnoredAny| AccessRemoval::Deleted))
    }

    async fn delete_bucket(&self, call: &Call<'_, Self>, content: Content) -> Result<BucketRemoval, StoreError> {
        let bucket = Resource::Bucket(call.bucket());
        match self.find(call, &bucket).await? {
            None => return Ok(BucketRemoval::NotFound),
            Some(mark) if mark.names(call.record) => {}
            Some(_) => return Ok(BucketRemoval::LeftInPlace(left_in_place(&bucket))),
        }
        let content = match content {
            Content::Delete => "delete",
            Content::Keep => "keep",
        };
        let mut url = bucket.url(&call.parameters.server);
        url.query_pairs_mut().append_pair("content", content);
        Ok(match self.send(call, self.http.delete(url)).await? {
            Answer::Success(IgnoredAny) => BucketRemoval::Deleted,
            Answer::NotFound => BucketRemoval::NotFound,
            Answer::Conflict => BucketRemoval::NotEmpty,
        })
    }

    /// Finds what a bound claim has lost.
    async fn check(&self, call: &Call<'_, Self>, _: &[&str]) -> Result<Checkup, StoreError> {
        self.check_bucket(call).await?;
        let user = self.find(call, &Resource::User(call.user())).await?;
        Ok(Checkup::default().with_keys_lost(!user.is_some_and(|mark| mark.names(call.record))))
    }
}

fn left_in_place(resource: &Resource<'_>) -> String {
    format!("{resource} was left in place, because it was not created for this claim")
}

fn main() -> ExitCode {
    Operator::new("example.com/http")
        .about("Provisions buckets of a store that speaks HTTP.")
        .version(env!("CARGO_PKG_VERSION"))
        .run(HttpProvisioner::start)
}
