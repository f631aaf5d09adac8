//! Stores for tests. Their methods are never called.

use std::marker::PhantomData;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::store::{
    AccessRemoval, AppCredentials, BucketRemoval, Call, Content, CreateError, Endpoint, Provisioner, Reason,
    StoreError, Topic,
};

/// The differences between stores.
pub(crate) trait Quirks: 'static {
    type Parameters: crate::store::Parameters;
    const USER_NAME_MAX: usize = 64;
    const REASONS: &'static [&'static Reason] = &[];
}

/// A store with these.
pub(crate) struct OtherShelf<Q>(PhantomData<fn() -> Q>);

/// An ordinary store.
pub(crate) type Shelf = OtherShelf<Ordinary>;

pub(crate) struct Ordinary;

#[derive(Deserialize, JsonSchema)]
#[allow(dead_code, reason = "only its names matter")]
pub(crate) struct Parameters {
    /// The shelf.
    shelf: String,
}

pub(crate) const FULL: Reason =
    Reason::new("ShelfFull", Topic::Store).meaning("there is no room").remedy("ask for another shelf");

impl Quirks for Ordinary {
    type Parameters = Parameters;
    const REASONS: &'static [&'static Reason] = &[&FULL];
}

impl<Q: Quirks> Provisioner for OtherShelf<Q> {
    type Parameters = Q::Parameters;
    type Owner = ();
    type Error = StoreError;

    const USER_NAME_MAX: usize = Q::USER_NAME_MAX;
    const REASONS: &'static [&'static Reason] = Q::REASONS;

    fn endpoint(&self, _: &Q::Parameters) -> Endpoint {
        Endpoint::new("shelf", 80).with_region("here")
    }

    async fn create_bucket(&self, _: &Call<'_, Self>) -> Result<(), CreateError<StoreError>> {
        Err(full().into())
    }

    async fn grant(&self, _: &Call<'_, Self>) -> Result<AppCredentials, CreateError<StoreError>> {
        Err(full().into())
    }

    async fn revoke(&self, _: &Call<'_, Self>) -> Result<AccessRemoval, StoreError> {
        Err(full())
    }

    async fn delete_bucket(&self, _: &Call<'_, Self>, _: Content) -> Result<BucketRemoval, StoreError> {
        Err(full())
    }
}

fn full() -> StoreError {
    StoreError::terminal(&FULL, "there is no room")
}
