//! Revoking access that a claim had before it was moved.

use super::owner;
use crate::error::Error;
use crate::state::context::Context;
use crate::store::{AccessRemoval, AppCredentials, PreviousAccess, Provisioner, Record};

/// Has the store revoke it. `present`: the keys in the claim's Secret. Returns what is left in place, and why.
///
/// # Errors
/// The provisioning credentials of that time cannot be used, or the store refused.
pub(crate) async fn revoke<P: Provisioner>(
    ctx: &Context<P>,
    record: &Record,
    previous: &PreviousAccess,
    present: Option<&AppCredentials>,
) -> Result<Option<String>, Error> {
    let then = previous.record(record);
    let Some(identity) = then.plan.identity() else { return Ok(None) };
    let owner = owner::of_record(ctx, &then).await?;
    let call = owner.call(&then).with_present(present);
    Ok(match ctx.call_store(&then, Box::pin(ctx.provisioner.revoke(&call))).await? {
        AccessRemoval::Deleted | AccessRemoval::NotFound | AccessRemoval::NotIssued => None,
        AccessRemoval::LeftInPlace(why) | AccessRemoval::Unproven(why) => {
            Some(format!("the claim's previous access ({identity}) is left in place: {why}"))
        }
    })
}
