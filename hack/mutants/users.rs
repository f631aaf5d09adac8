//! Users and their keys.

use bucket_provisioner::store::{AppCredentials, Call, CreateError, ExposeSecret as _, StoreError};
use http::{Method, StatusCode};

use super::client::{As, Key, Myself, Problem, User};
use super::mutant::Mutant;
use super::reasons::USER_TAKEN;
use super::store::Lockers;

impl Lockers {
    /// The user that the present credentials belong to, if they work.
    pub(crate) async fn present_user(&self, call: &Call<'_, Self>) -> Result<Option<String>, StoreError> {
        let Some(present) = call.present else { return Ok(None) };
        let app = As::App(&present.access_key_id, &present.secret_access_key);
        match self.http.find::<Myself>(app, &call.parameters.server, "/myself").await {
            Ok(found) => Ok(found.map(|it| it.user)),
            Err(problem) if problem.is(StatusCode::UNAUTHORIZED) => Ok(None),
            Err(problem) => Err(self.failed(call, &problem)),
        }
    }

    /// The user of the claim, created if it is missing. A refusal changes nothing.
    pub(crate) async fn make_user(
        &self,
        call: &Call<'_, Self>,
    ) -> Result<(String, Vec<String>), CreateError<StoreError>> {
        let name = match self.is(Mutant::NewUser) {
            true => format!("{}-{:08x}", call.user(), rand::random::<u32>()),
            false => call.user().to_owned(),
        };
        let bucket = if self.is(Mutant::OpensAll) { "*" } else { call.bucket() };
        let path = format!("/users/{name}?uid={}&bucket={bucket}", call.record.claim.uid);
        match self.ask(call, Method::PUT, &path).await {
            Ok(()) => return Ok((name, Vec::new())),
            Err(problem) if problem.is(StatusCode::CONFLICT) => {}
            Err(problem @ Problem::Refused(_)) => return Err(CreateError::Refused(self.failed(call, &problem))),
            Err(problem) => return Err(self.failed(call, &problem).into()),
        }
        let found = self.user(call).await.map_err(|problem| CreateError::Refused(self.failed(call, &problem)))?;
        let is_mine = |user: &User| user.uid.as_deref().is_some_and(|uid| call.record.names_uid(uid));
        match found {
            Some(user) if is_mine(&user) || self.is(Mutant::UsesForeignUser) => Ok((name, user.keys)),
            Some(user) if self.present_user(call).await?.is_some_and(|present| present == name) => {
                Ok((name, user.keys))
            }
            Some(_) => {
                let message = format!("user {name:?} exists and is not this claim's: delete or rename that user");
                Err(CreateError::Refused(StoreError::terminal(&USER_TAKEN, message)))
            }
            None => Err(self.failed(call, &Problem::NoAnswer).into()),
        }
    }

    pub(crate) async fn issue(&self, call: &Call<'_, Self>, user: &str) -> Result<AppCredentials, StoreError> {
        let secret = call.record.plan.state.get("secret").map(|secret| format!("?secret={secret}"));
        let path = format!("/users/{user}/keys{}", secret.unwrap_or_default());
        let (owner, server) = (As::Owner(&call.owner.token), &call.parameters.server);
        let body = self.http.call(owner, Method::POST, server, &path).await;
        let body = body.map_err(|problem| self.failed(call, &problem))?;
        let key: Key = serde_json::from_slice(&body).map_err(|_| self.failed(call, &Problem::NoAnswer))?;
        if self.is(Mutant::LogsSecret) {
            tracing::debug!(secret = key.secret.expose_secret(), "issued a key");
        }
        Ok(AppCredentials::new(key.id, key.secret))
    }

    pub(crate) async fn delete_keys(
        &self,
        call: &Call<'_, Self>,
        user: &str,
        keys: impl IntoIterator<Item = String>,
    ) -> Result<Vec<String>, StoreError> {
        let mut deleted = Vec::new();
        for key in keys {
            self.delete(call, &format!("/users/{user}/keys/{key}")).await?;
            deleted.push(key);
        }
        Ok(deleted)
    }
}
