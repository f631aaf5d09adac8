//! The accounts and stores to check: those of the classes, each once, and those that only ObjectBuckets still name.

use std::collections::BTreeSet;

use crate::cli::accounts::{Accounts, credentials};
use crate::cli::session::Session;
use crate::cli::view::{Classes, Records};
use crate::controller::{read_owner, would_be};
use crate::decide::claim::WantedBucket;
use crate::decide::class::Class;
use crate::decide::request::{self, Asked};
use crate::decide::sample::has_same_credentials;
use crate::decide::{codec, record, service_account};
use crate::store::{ClaimId, Inventory, Provisioner, Record, TaggedResource};

/// No claim has this uid.
const NOBODY: &str = "00000000-0000-0000-0000-000000000000";

/// A store and account that may hold buckets and users of this provisioner.
pub(crate) struct Place {
    /// The plan for a claim there.
    pub(crate) record: Record,
    /// The class; `None` if only ObjectBuckets still name the place.
    pub(crate) class: Option<Class>,
    /// Whether its store has listed what it holds.
    pub(crate) is_listed: bool,
}

/// The plan of a class for a claim that requests any bucket.
///
/// # Errors
/// The class cannot be used; a sentence with the reason.
/// `account`: the ServiceAccount of its apps.
pub(crate) fn planned<P: Provisioner>(
    store: &P,
    class: &Class,
    claim: ClaimId,
    account: &str,
) -> Result<Record, String> {
    let wanted = WantedBucket::Generated { prefix: "lost".to_owned() };
    let config = service_account::config(class, account);
    let asked = Asked { config: config.as_ref(), ..Asked::bucket(&wanted) };
    let plan = request::plan(store, class, &claim, asked, None);
    Ok(would_be(class, plan.map_err(|problem| problem.of_named_class())?, claim))
}

/// All places, and the accounts that ObjectBuckets record. Invalid classes are added to `problems`.
pub(crate) fn all<P: Provisioner>(
    session: &Session<P>,
    classes: &Classes,
    records: &Records,
    problems: &mut Vec<String>,
) -> (Vec<Place>, Accounts) {
    let (mut places, mut accounts) = (Vec::<Place>::new(), Accounts::default());
    for class in classes.served_by(&session.provisioner).map(Class::read) {
        let nobody = ClaimId { namespace: "nobody".into(), name: "nobody".into(), uid: NOBODY.into() };
        match planned(&session.store, &class, nobody, "nobody") {
            Err(problem) => problems.push(format!("StorageClass {:?} was not checked: {problem}", class.name)),
            Ok(record) if places.iter().any(|place| has_same_credentials(&place.record, &record)) => {}
            Ok(record) => places.push(Place { record, class: Some(class), is_listed: false }),
        }
    }
    let ours = records.all.iter().filter(|object| record::is_ours(object, &session.provisioner));
    for stored in ours.filter_map(|object| codec::read(object).ok()) {
        accounts.add(&stored.record, &stored.name);
        let store = |record: &Record| (record.plan.owner.clone(), record.plan.endpoint.clone());
        if !places.iter().any(|place| store(&place.record) == store(&stored.record)) {
            places.push(Place { record: stored.record, class: None, is_listed: false });
        }
    }
    (places, accounts)
}

/// The accounts of ObjectBuckets that were not checked, because the credentials are now of another account.
pub(crate) fn unseen_accounts(places: &[Place], accounts: &Accounts) -> BTreeSet<String> {
    let seen = places.iter().filter(|place| place.is_listed);
    let unseen = seen.filter_map(|Place { record, .. }| Some((record, record.account.as_deref()?)));
    let unseen = unseen.flat_map(|(record, now)| {
        let others = accounts.of(record).filter(move |(account, _)| *account != now);
        let now = credentials(&record.plan.owner, now);
        others.map(move |(account, those)| format!("account {account} was not checked: {those}, but {now}"))
    });
    unseen.collect()
}

/// What a place holds; `None` if its store cannot list that.
///
/// # Errors
/// Why it could not be checked.
pub(crate) async fn inventory<P: Provisioner>(
    session: &Session<P>,
    place: &mut Place,
    again: Option<&[TaggedResource]>,
) -> Result<Option<Inventory>, String> {
    let owner = read_owner::<P>(&session.client, &place.record).await.map_err(|problem| problem.to_string())?;
    place.record.account =
        session.store.account(&owner.call(&place.record)).await.map_err(|problem| problem.to_string())?;
    session.store.inventory(&owner.call(&place.record), again).await.map_err(|problem| problem.to_string())
}
