//! What a claim will get. Pure: from the claim, its class and the provisioner's own plan to a record.

use serde_json::Value;

use crate::api::{ObjectBucket, wire};
use crate::controller::decide::claim::{Claim, wanted};
use crate::controller::decide::class::{Class, ClassLookup};
use crate::controller::decide::codec;
use crate::controller::decide::lookup::Found;
use crate::controller::decide::record::{Author, Stored};
use crate::controller::error::{Error, RecordProblem};
use crate::provisioner::{Mode, Provisioner, ReclaimPolicy, Record, Request};

/// The record that the claim should have by what it and its class say now, in the cluster with this uid. `is_new`: it
/// asks for it for the first time, so that what the class allows counts.
///
/// # Errors
/// A claim that cannot be read, or that asks for what its class cannot give.
pub(crate) fn record<P: Provisioner>(
    provisioner: &P,
    claim: &Claim,
    class: &Class,
    cluster: &str,
    is_new: bool,
) -> Result<Record, Error> {
    let request = Request {
        claim: &claim.id,
        bucket: wanted(claim.spec()?, &claim.id.uid)?,
        class_name: &class.name,
        parameters: &class.parameters,
        is_new,
    };
    let plan = provisioner.plan(&request).map_err(Error::store)?;
    // What existed before is retained, whatever the class says of what it creates.
    let reclaim_policy = match plan.mode {
        Mode::Created => class.reclaim_policy,
        Mode::Granted => ReclaimPolicy::Retain,
    };
    Ok(Record {
        claim: claim.id.clone(),
        former_uids: Vec::new(),
        cluster: Some(cluster.to_owned()),
        account: None,
        class_name: class.name.clone(),
        reclaim_policy,
        handed_over: false,
        plan,
    })
}

/// The record as it is once the claim has taken it over from a former one, or from another cluster.
///
/// What was recorded stays: names were made for the former claim. It counts as handed over, for nobody knows whether
/// it was when the backup was made.
pub(crate) fn adopted(former: &Record, claim: &Claim, cluster: &str) -> Record {
    let mut former_uids: Vec<_> = former.uids().map(str::to_owned).collect();
    // Oldest first, and the claim whose record it was until now last.
    former_uids.rotate_left(1);
    former_uids.retain(|uid| *uid != claim.id.uid);
    Record {
        claim: claim.id.clone(),
        former_uids,
        cluster: Some(cluster.to_owned()),
        handed_over: true,
        ..former.clone()
    }
}

/// What is to be done first for a claim that should have a bucket.
#[derive(Debug)]
pub(crate) enum Intent {
    /// Nothing is recorded: record this, under this name.
    Record { name: String, record: Box<Record> },
    /// It is recorded so: go on from there.
    Proceed(Box<Stored>),
    /// Something else is recorded, made from a claim or class that was edited since: undo that.
    UndoFirst(Box<Stored>),
    /// An admin gives it the record of a former claim.
    Adopt(Box<Stored>),
    /// Its record lost something. This is what it said.
    Restore { object: Box<ObjectBucket>, record: Box<Record>, error: String },
    /// It names a record that does not exist. If the store has what this says, its record was deleted by hand, and is
    /// written again; else the claim was restored or copied, and waits.
    Recover { name: String, record: Box<Record>, problem: RecordProblem },
}

/// What decides beside the claim itself.
pub(crate) struct Surroundings<'a, P> {
    pub(crate) provisioner: &'a P,
    pub(crate) provisioner_name: &'a str,
    /// UID of this cluster.
    pub(crate) cluster: &'a str,
    pub(crate) class: &'a ClassLookup,
}

/// Compares what is recorded with what the claim and its class say.
///
/// What is bound keeps what it was bound to, whatever became of its class.
///
/// # Errors
/// There is no class to plan by, or as [`record`]; and a record that is the claim's no more, or not its own.
pub(crate) fn intent<P: Provisioner>(
    surroundings: &Surroundings<'_, P>,
    claim: &Claim,
    found: Found,
) -> Result<Intent, Error> {
    let planned = |is_new| planned(surroundings, claim, is_new);
    Ok(match found {
        // The Go provisioner wrote its records last: what they name was handed over, and may be in use.
        Found::Mine(stored) if stored.bound() || stored.author == Author::GoProvisioner => Intent::Proceed(stored),
        Found::Mine(stored) if is_same(&stored.record, &planned(true)?) => Intent::Proceed(stored),
        Found::Mine(stored) => Intent::UndoFirst(stored),
        Found::ToAdopt(stored) => Intent::Adopt(stored),
        Found::Damaged { object, error } => {
            let record = Box::new(whole(surroundings, claim, &object, &error)?);
            Intent::Restore { object, record, error }
        }
        Found::Restored(problem @ RecordProblem::Missing { .. }) => match (planned(false), problem.clone()) {
            (Ok(record), RecordProblem::Missing { record: name }) => {
                let record = Box::new(Record { handed_over: true, ..record });
                Intent::Recover { name, record, problem }
            }
            _ => return Err(Error::AdoptionNeeded(problem)),
        },
        Found::Restored(problem) => return Err(Error::AdoptionNeeded(problem)),
        Found::None { free_name } => Intent::Record { name: free_name, record: Box::new(planned(true)?) },
    })
}

/// What claim and class say now.
fn planned<P: Provisioner>(surroundings: &Surroundings<'_, P>, claim: &Claim, is_new: bool) -> Result<Record, Error> {
    let Surroundings { provisioner, provisioner_name, cluster, class } = *surroundings;
    match class {
        ClassLookup::Found(class) if class.provisioner == provisioner_name => {
            record(provisioner, claim, class, cluster, is_new)
        }
        other => Err(no_class(other, claim)),
    }
}

/// What a damaged ObjectBucket of this claim said before it lost something.
///
/// # Errors
/// [`Error::RecordDamaged`] if claim and class do not tell, or what is left of it says otherwise.
pub(crate) fn whole<P: Provisioner>(
    surroundings: &Surroundings<'_, P>,
    claim: &Claim,
    object: &ObjectBucket,
    error: &str,
) -> Result<Record, Error> {
    let restored = |planned| restored(object, planned, surroundings.provisioner_name, error);
    match planned(surroundings, claim, false).and_then(restored) {
        Err(problem) if !matches!(problem, Error::RecordDamaged { .. }) => {
            Err(damaged(object, error, problem.to_string()))
        }
        answer => answer,
    }
}

/// Whether a record says what would be planned now. What is learnt later (account, cluster, former claims) is not
/// planned.
fn is_same(recorded: &Record, planned: &Record) -> bool {
    // Destructured in full: a new field has to be thought of here.
    let Record { claim, former_uids: _, cluster: _, account: _, class_name, reclaim_policy, handed_over: _, plan } =
        recorded;
    *claim == planned.claim
        && *class_name == planned.class_name
        && *reclaim_policy == planned.reclaim_policy
        && *plan == planned.plan
}

/// The record that an ObjectBucket held before it lost something: what is planned now, if nothing that is left of it
/// says otherwise.
fn restored(object: &ObjectBucket, planned: Record, provisioner: &str, error: &str) -> Result<Record, Error> {
    let state = |key: &str| object.spec.additional_state.as_ref()?.get(key).filter(|value| !value.is_empty()).cloned();
    let record = Record {
        account: state(wire::state::ACCOUNT_ID),
        // Nobody knows; and what may be in use is not planned again.
        handed_over: true,
        ..planned
    };
    let whole = codec::to_object(&record, "", provisioner);
    let json = |object: &ObjectBucket| serde_json::to_value(&object.spec).unwrap_or_default();
    match contradiction(&json(object), &json(&whole), "spec") {
        None => Ok(record),
        Some(why) => Err(damaged(object, error, why)),
    }
}

/// The first value of `is` that `should` has otherwise.
fn contradiction(is: &Value, should: &Value, field: &str) -> Option<String> {
    // The Go library writes what it does not have as an empty string.
    let says_nothing = |value: &Value| value.is_null() || value.as_str() == Some("");
    match (is, should) {
        (is, _) if says_nothing(is) => None,
        (Value::Object(is), Value::Object(should)) => is.iter().find_map(|(key, is)| {
            contradiction(is, should.get(key).unwrap_or(&Value::Null), &format!("{field}.{key}"))
        }),
        (Value::Object(is), Value::Null) if is.values().all(says_nothing) => None,
        (is, should) if is == should => None,
        (is, _) => Some(format!("{field} is {is}, but claim and StorageClass now give another value")),
    }
}

fn damaged(object: &ObjectBucket, error: &str, why: String) -> Error {
    let name = object.metadata.name.clone().unwrap_or_default();
    Error::RecordDamaged { name, error: error.to_owned(), why }
}

/// Why there is no class to go by. A claim that cannot be read at all may name none.
pub(crate) fn no_class(class: &ClassLookup, claim: &Claim) -> Error {
    let class = match class {
        ClassLookup::Found(Class { name, .. }) | ClassLookup::Missing { name } => name.clone(),
        ClassLookup::Unnamed => String::new(),
    };
    claim.spec().err().unwrap_or(Error::StorageClassNotFound { class })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::decide::testing::record;
    use crate::provisioner::Plan;

    #[test]
    fn a_record_that_lost_its_state_is_restored_unless_what_is_left_says_otherwise() {
        let mut object = codec::to_object(&record(), "obc-shop-photos", "ours");
        object.spec.additional_state = None;
        let whole = restored(&object, record(), "ours", "lost").map_err(|error| error.to_string());
        assert_eq!(whole, Ok(Record { handed_over: true, ..record() }));

        let another = Record { plan: Plan { bucket: "another".into(), ..record().plan }, ..record() };
        let refused = restored(&object, another, "ours", "lost").map_err(|error| error.to_string());
        assert!(refused.as_ref().is_err_and(|why| why.contains("spec.endpoint.bucketName")), "{refused:?}");

        object.spec.additional_state = Some([("UserName".to_owned(), "another".to_owned())].into());
        let refused = restored(&object, record(), "ours", "lost").map_err(|error| error.to_string());
        assert!(refused.as_ref().is_err_and(|why| why.contains("UserName")), "{refused:?}");
    }
}
