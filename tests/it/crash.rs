//! Kills at every call, in flows that are about AWS or SeaweedFS. (For the others see `conformance`.)

use std::time::Duration;

use hyper::Response;
use rstest::rstest;

use crate::keyless::create_provider;
use crate::support::Store;
use crate::support::account::Account;
use crate::support::aws_backend::{AwsBackend, PODS};
use crate::support::aws_proxy::Strictness;
use crate::support::pods::{AUDIENCE, Pods};
use crate::support::proxy::Verdict;
use crate::support::settings;
use provisioner_conformance::crash::{Corruption, Edit, Flow, Kind, Pace, Step, crash_everywhere};

/// An AWS that is in no hurry, so that an operator that comes back at once finds it behind.
const SLOW: Strictness = slow(2);
/// Slower, for claims that are deleted at once.
const SLOWER: Strictness = slow(5);

/// What is shown lags no more than what is valid: a user whose key works is seen.
const fn slow(seconds: u64) -> Strictness {
    let time = Duration::from_secs(seconds);
    Strictness {
        key_delay: time,
        lag: time,
        name_delay: time,
        user_delay: time,
        bucket_lag: time,
        ..Strictness::PROMPT
    }
}

/// The key is made, and nobody learns of it. It takes minutes until this is tried again.
const CORRUPTION: Corruption = Corruption {
    rule: |call| match call.name.as_str() {
        "CreateAccessKey" => Verdict::Distort(|_| {
            let denied = "<ErrorResponse><Error><Code>AccessDenied</Code></Error></ErrorResponse>";
            Response::builder().status(403).body(denied.into()).unwrap()
        }),
        _ => Verdict::Pass,
    },
    reason: "AccessDenied",
};

const fn sharing_keys(step: Step) -> Flow {
    Flow { parameters: &[("createBucketUser", "no")], shares_keys: true, ..Flow::of(Kind::Generated, step) }
}

/// A bucket whose name contains the account of the emulator. It is chosen, so that it is the same in every run.
const REGIONAL: Flow = Flow {
    parameters: &[("bucketNamespace", "account-regional"), ("accountId", "000000000000")],
    ..Flow::of(Kind::Named, Step::Provide)
};

const fn with_settings(step: Step) -> Flow {
    Flow { parameters: &settings::SETTINGS, settings: &SHOWN, ..Flow::of(Kind::Generated, step) }
}

/// What the inventory shows of it.
const SHOWN: [&str; settings::OF_BUCKET.len() + settings::OF_USER.len()] = {
    let mut shown = [""; settings::OF_BUCKET.len() + settings::OF_USER.len()];
    let (of_bucket, of_user) = shown.split_at_mut(settings::OF_BUCKET.len());
    of_bucket.copy_from_slice(&settings::OF_BUCKET);
    of_user.copy_from_slice(&settings::OF_USER);
    shown
};

/// A claim that is bound, and whose user has it do more and keep objects longer.
const EDITED: Flow = Flow {
    parameters: &[("claimsMaySet", "expireAfter,tags.*"), ("tags", "team=shop")],
    settings: &["days: Some(30)", r#"key: "stage", value: "prod""#, "s3%3APutObject"],
    ..Flow::of(
        Kind::Generated,
        Step::Configure(Edit {
            before: &[("accessMode", "ReadOnly"), ("expireAfter", "7d"), ("tags.stage", "test")],
            after: &[("accessMode", "ReadWrite"), ("expireAfter", "30d"), ("tags.stage", "prod")],
        }),
    )
};

/// What SeaweedFS keeps of it.
const ON_SEAWEEDFS: Flow = Flow {
    parameters: &[("tags", "team=shop"), ("bucketVersioning", "Enabled"), ("expireAfter", "30d")],
    settings: &[r#"key: "team", value: "shop""#, "versioning Some(Some(Enabled))", "days: Some(30)"],
    ..Flow::of(Kind::Generated, Step::Provide)
};

/// A claim whose apps have access as a ServiceAccount.
const fn keyless(kind: Kind, step: Step) -> Flow {
    Flow {
        parameters: &[
            ("authentication", "ServiceAccount"),
            ("oidcProvider", "arn:aws:iam::000000000000:oidc-provider/kubernetes.default.svc"),
        ],
        audience: Some("sts.amazonaws.com"),
        ..Flow::of(kind, step)
    }
}

/// The same by EKS Pod Identity.
const fn by_pods(kind: Kind, step: Step) -> Flow {
    Flow {
        parameters: &[
            ("authentication", "ServiceAccount"),
            ("eksCluster", "arn:aws:eks:us-west-1:000000000000:cluster/crash-pods"),
            ("podRole", "arn:aws:iam::000000000000:role/crash-pods"),
        ],
        audience: Some(AUDIENCE),
        ..Flow::of(kind, step)
    }
}

#[rstest]
#[case::pods(by_pods(Kind::Generated, Step::Provide))]
#[case::pods_brownfield(by_pods(Kind::Brownfield, Step::Provide))]
#[case::pods_abandoned(by_pods(Kind::Generated, Step::Abandon))]
#[case::pods_removed(by_pods(Kind::Generated, Step::Remove))]
#[case::pods_adopted(by_pods(Kind::Generated, Step::Adopt))]
#[case::keyless(keyless(Kind::Generated, Step::Provide))]
#[case::keyless_brownfield(keyless(Kind::Brownfield, Step::Provide))]
#[case::keyless_abandoned(keyless(Kind::Generated, Step::Abandon))]
#[case::keyless_removed(keyless(Kind::Generated, Step::Remove))]
#[case::keyless_secret_deleted(keyless(Kind::Generated, Step::Repair))]
#[case::keyless_adopted(keyless(Kind::Generated, Step::Adopt))]
#[case::settings(with_settings(Step::Provide))]
#[case::settings_removed(with_settings(Step::Remove))]
#[case::settings_edited(EDITED)]
#[case::account_regional(REGIONAL)]
#[case::shared_keys(sharing_keys(Step::Provide))]
#[case::shared_keys_removed(sharing_keys(Step::Remove))]
#[case::edited_before_it_was_bound(Flow::of(Kind::Named, Step::Edit(CORRUPTION)))]
#[tokio::test]
async fn all_is_well_wherever_the_operator_was_killed(#[case] flow: Flow) {
    create_provider(&Account::owner()).await;
    if flow.audience == Some(AUDIENCE) {
        Pods::create(&Account::owner(), PODS).await;
    }
    crash_everywhere(flow, Pace::AtOnce, &async |_| backend(flow, Store::aws(), Some(Strictness::PROMPT))).await;
}

#[rstest]
#[case::bound(Step::Provide, SLOW)]
#[case::deleted_after_the_crash(Step::Abandon, SLOWER)]
#[case::its_secret_deleted(Step::Repair, SLOW)]
#[tokio::test]
async fn all_is_well_at_a_slow_aws_wherever_the_operator_was_killed(#[case] step: Step, #[case] slow: Strictness) {
    crash_slowly(Flow::of(Kind::Generated, step), slow).await;
}

/// It is deleted before it was bound, and the operator is killed at any call.
#[tokio::test]
async fn an_unbound_claim_leaves_nothing_wherever_killed() {
    crash_slowly(Flow::of(Kind::Named, Step::Withdraw(CORRUPTION)), SLOWER).await;
}

fn backend(flow: Flow, store: Store, strictness: Option<Strictness>) -> AwsBackend {
    let backend = AwsBackend::at(store, strictness);
    match flow {
        Flow { audience: Some(_), .. } => backend.with_roles(),
        Flow { settings: [], .. } => backend,
        _ => backend.with_settings(),
    }
}

async fn crash_slowly(flow: Flow, slow: Strictness) {
    let make = async |pace| AwsBackend::at(Store::aws(), (pace == Pace::Slow).then_some(slow));
    crash_everywhere(flow, Pace::Slow, &make).await;
}

/// Killed at the calls to the store. A bucket with a name that its claim chose is left out: between its creation and
/// its tags, which SeaweedFS takes in a call of their own, nothing distinguishes it from one of others.
#[rstest]
#[case::generated(Flow::of(Kind::Generated, Step::Provide))]
#[case::settings(ON_SEAWEEDFS)]
#[case::brownfield(Flow::of(Kind::Brownfield, Step::Provide))]
#[case::shared(Flow::of(Kind::Shared, Step::Provide))]
#[case::abandoned(Flow::of(Kind::Generated, Step::Abandon))]
#[case::removed(Flow::of(Kind::Generated, Step::Remove))]
#[case::retained(Flow::of(Kind::Retain, Step::Remove))]
#[case::keys_rotated(Flow::of(Kind::Generated, Step::Rotate))]
#[case::secret_deleted(Flow::of(Kind::Generated, Step::Repair))]
#[case::adopted(Flow::of(Kind::Generated, Step::Adopt))]
#[case::orphan_removed(Flow::of(Kind::Generated, Step::RemoveOrphan))]
#[tokio::test]
async fn nothing_is_doubled_or_left_on_seaweedfs_wherever_killed(#[case] flow: Flow) {
    let flow = Flow { at_store_only: true, ..flow };
    crash_everywhere(flow, Pace::AtOnce, &async |_| backend(flow, Store::seaweedfs(), None)).await;
}
