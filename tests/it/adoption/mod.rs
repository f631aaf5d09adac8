//! Claims that come back from a backup, or move to another cluster: they wait for an admin's annotation, and then
//! keep bucket, user and keys as they were. (For ObjectBuckets that are in no backup see `recall`; for buckets with an
//! object lock, `locks`.)

mod locks;
pub(crate) mod recall;

use bucket_provisioner::api::{ObjectBucket, ObjectBucketClaim};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams};
use rstest::rstest;
use serde_json::json;

use crate::support::operator::{Kind, Operator};
use crate::support::other::OtherCluster;
use crate::support::tool::Tool;
use crate::support::{World, ready, seen};
use provisioner_conformance::Backup;

const CLAIM: &str = "photos";

/// What kind of claim is restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Made {
    Generated,
    Named,
    Granted,
    SharedKeys,
    Retained,
}

/// In which order a backup comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    RecordsFirst,
    ClaimsFirst,
}

/// A claim that was bound in a cluster, and a backup of it.
struct Lost {
    class: String,
    bucket: String,
    record: String,
    uid: String,
    key: String,
    backup: Backup,
}

impl Lost {
    /// Binds a claim and has an app use it, with an operator that does not run any more then.
    async fn bind(world: &World, made: Made) -> Self {
        let (class, spec) = match made {
            Made::Generated => (world.class("class").await, json!({ "generateBucketName": "photos" })),
            Made::Retained => {
                (world.class_with("class", "Retain", &[]).await, json!({ "generateBucketName": "photos" }))
            }
            Made::Named => (world.class("class").await, json!({ "bucketName": world.unique("photos") })),
            Made::SharedKeys => {
                let parameters = [("createBucketUser", "no")];
                (world.class_with("class", "Delete", &parameters).await, json!({ "generateBucketName": "photos" }))
            }
            Made::Granted => {
                let bucket = world.unique("archive");
                world.account.create_bucket(&bucket).await;
                (world.class_with("class", "Delete", &[("bucketName", &bucket)]).await, json!({}))
            }
        };
        let mut spec = spec;
        spec["storageClassName"] = json!(class);
        let operator = Operator::start(world, Kind::InProcess).await;
        let uid = world.claim_with(CLAIM, spec).await.uid().unwrap();
        world.wait_bound(CLAIM).await;
        let environment = world.environment(CLAIM).await;
        let bucket = environment["BUCKET_NAME"].clone();
        world.app(CLAIM).await.put(&bucket, "precious").await.unwrap();
        operator.stop().await;
        Self {
            class,
            record: world.record_name(CLAIM),
            uid,
            key: environment["AWS_ACCESS_KEY_ID"].clone(),
            bucket,
            backup: world.back_up(CLAIM).await,
        }
    }

    /// Restores ObjectBucket and claim, and waits until the claim reports which annotation it needs.
    async fn come_back(&self, world: &World, order: Order) {
        match order {
            Order::RecordsFirst => {
                world.restore(&self.backup.record).await;
                world.wait_orphaned(&self.record, "ClaimGone").await;
                world.restore(&self.backup.claim).await;
            }
            Order::ClaimsFirst => {
                world.restore(&self.backup.claim).await;
                let message = world.wait_reason(CLAIM, "AdoptionNeeded").await;
                assert!(message.contains("does not exist") && message.contains("the command `adopt`"), "{message}");
                world.restore(&self.backup.record).await;
            }
        }
        world.wait_orphaned(&self.record, "ClaimReplaced").await;
        let reported = |claim: &ObjectBucketClaim| {
            ready(claim).is_some_and(|ready| {
                ready.reason == "AdoptionNeeded" && ready.message.contains("objectbucket.io/orphan=adopt")
            })
        };
        world.wait_claim(CLAIM, "reported with the annotation that it needs", reported).await;
    }

    /// Requires that the claim is bound to what it had, and can be used.
    async fn assert_adopted(&self, world: &World, made: Made) {
        let claim = world.wait_bound(CLAIM).await;
        world.wait_reason(CLAIM, "Bound").await;
        // The last of what an adoption does.
        world.wait_event(CLAIM, "Adopted").await;
        world.wait_orphaned(&self.record, "Adopted").await;
        let environment = world.environment(CLAIM).await;
        assert_eq!(environment["BUCKET_NAME"], self.bucket);
        let app = world.app(CLAIM).await;
        assert!(app.list(&self.bucket).await.unwrap().contains(&"precious".to_owned()));
        app.put(&self.bucket, "later").await.unwrap();
        let uid = claim.uid().unwrap();
        assert_ne!(uid, self.uid);
        let record = world.records().get(&self.record).await.unwrap();
        let state = record.spec.additional_state.clone().unwrap();
        assert_eq!((state["claimUID"].as_str(), state["formerClaimUIDs"].as_str()), (uid.as_str(), self.uid.as_str()));
        assert!(!record.annotations().contains_key("objectbucket.io/orphan"), "the action is done");
        if made != Made::Granted {
            let tags = world.account.bucket_tags(&self.bucket).await;
            assert_eq!(tags["objectbucket.io/claim-uid"], uid);
            assert_eq!(tags["objectbucket.io/cluster-uid"], state["clusterUID"]);
        }
        let users = world.account.users_with(&self.uid).await;
        assert_eq!(users.len(), usize::from(made != Made::SharedKeys), "{users:?}");
        for user in &users {
            world.wait_keys(user, &[&environment["AWS_ACCESS_KEY_ID"]]).await;
            let tags = world.account.iam.list_user_tags().user_name(user).send().await.unwrap().tags;
            assert!(tags.iter().any(|tag| tag.key == "objectbucket.io/claim-uid" && tag.value == uid), "{tags:?}");
        }
        assert!(world.account.users_with(&uid).await.is_empty(), "no second user");
        assert!(world.account.buckets_with(&uid).await.is_empty(), "no second bucket");
    }
}

#[rstest]
#[case::records_first(Made::Generated, Order::RecordsFirst, true)]
#[case::claims_first(Made::Generated, Order::ClaimsFirst, true)]
#[case::without_its_secret(Made::Generated, Order::RecordsFirst, false)]
#[case::chosen_name(Made::Named, Order::ClaimsFirst, false)]
#[case::brownfield(Made::Granted, Order::RecordsFirst, true)]
#[case::shared_keys(Made::SharedKeys, Order::RecordsFirst, true)]
#[case::retained(Made::Retained, Order::ClaimsFirst, true)]
#[tokio::test]
async fn a_restored_claim_adopts_its_bucket_on_request(
    #[case] made: Made,
    #[case] order: Order,
    #[case] with_secret: bool,
) {
    let world = World::new().await;
    let lost = Lost::bind(&world, made).await;
    world.lose(CLAIM).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    if with_secret {
        world.restore(&lost.backup.secret).await;
        world.restore(&lost.backup.config_map).await;
    }
    lost.come_back(&world, order).await;
    world.claim("other", &lost.class).await;
    world.wait_bound("other").await;
    assert_eq!(world.account.list(&lost.bucket).await.unwrap(), ["precious"], "nothing was done meanwhile");

    world.set_action(&lost.record, "adopt").await;
    lost.assert_adopted(&world, made).await;
    let key = world.environment(CLAIM).await["AWS_ACCESS_KEY_ID"].clone();
    if with_secret {
        assert_eq!(key, lost.key, "apps go on with the key that they have");
    }
    operator.stop().await;

    // From then on it is as any other: it costs nothing, and is removed when it is deleted.
    world.aws.clear();
    world.kubernetes.clear();
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("third", &lost.class).await;
    world.wait_bound("third").await;
    let of_adopted = |target: &str| target.contains(CLAIM) || target.contains(&lost.bucket);
    let writes: Vec<_> =
        world.kubernetes.calls().into_iter().filter(|call| call.mutates && of_adopted(&call.target)).collect();
    assert!(writes.is_empty(), "{writes:#?}");
    world.delete_claim(CLAIM).await;
    world.wait_gone(CLAIM).await;
    world.assert_no_objects(CLAIM).await;
    let stays = matches!(made, Made::Granted | Made::Retained);
    assert_eq!(world.account.bucket_exists(&lost.bucket).await, stays);
    assert!(world.account.users_with(&lost.uid).await.is_empty());
    operator.stop().await;
}

/// The previous cluster cannot adopt it again.
#[tokio::test]
async fn a_bucket_moves_to_another_cluster_and_cannot_go_back() {
    let other = OtherCluster::take().await;
    let here = World::new().await;
    let there = other.twin_of(&here).await;
    let lost = Lost::bind(&here, Made::Generated).await;
    there.class("class").await;
    let operator_there = Operator::start(&there, Kind::InProcess).await;
    there.restore(&lost.backup.record).await;
    there.restore(&lost.backup.secret).await;
    there.restore(&lost.backup.claim).await;
    there.wait_orphaned(&lost.record, "OtherCluster").await;
    there.set_action(&lost.record, "adopt").await;
    lost.assert_adopted(&there, Made::Generated).await;

    // Somebody deletes the claim in the previous cluster, with its operator running.
    let operator_here = Operator::start(&here, Kind::InProcess).await;
    here.delete_claim(CLAIM).await;
    here.wait_gone(CLAIM).await;
    let (_, note) = here.wait_event(CLAIM, "LeftInPlace").await;
    assert!(note.contains("left in place"), "{note}");
    let (_, note) = here.wait_event(CLAIM, "Removed").await;
    assert!(note.contains("its keys still work") && note.contains("is left in place"), "{note}");
    assert!(there.app(CLAIM).await.list(&lost.bucket).await.unwrap().contains(&"precious".to_owned()));
    operator_here.stop().await;
    operator_there.stop().await;
}

/// The ObjectBucket reports the reason.
#[tokio::test]
async fn a_claim_with_a_bucket_of_its_own_adopts_no_other() {
    let world = World::new().await;
    let lost = Lost::bind(&world, Made::Generated).await;
    world.forget_object(&world.claims(), CLAIM).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    // A tenant who gets a freed name does not inherit what was made under it.
    world.claim(CLAIM, &lost.class).await;
    world.wait_bound(CLAIM).await;
    let own = world.environment(CLAIM).await["BUCKET_NAME"].clone();
    assert_ne!(own, lost.bucket);
    world.wait_orphaned(&lost.record, "ClaimReplaced").await;
    world.set_action(&lost.record, "adopt").await;
    let message = world.wait_orphaned(&lost.record, "ActionRefused").await;
    assert!(message.contains("already has ObjectBucket"), "{message}");
    assert_eq!(world.environment(CLAIM).await["BUCKET_NAME"], own);

    // With the claim out of the way, the next one of the name has it.
    world.wait_action_removed(&lost.record).await;
    world.delete_claim(CLAIM).await;
    world.wait_gone(CLAIM).await;
    // An action is for what exists now: a claim that gets the name later does not adopt the bucket.
    world.set_action(&lost.record, "adopt").await;
    let does_not_exist = |record: Option<&ObjectBucket>| {
        let conditions = record.and_then(|record| record.status.clone()).unwrap_or_default().conditions;
        conditions.iter().any(|c| c.reason == "ActionRefused" && c.message.contains("does not exist"))
    };
    seen(&world.records(), &lost.record, does_not_exist).await.expect("the reason is reported");
    world.wait_action_removed(&lost.record).await;
    world.claim(CLAIM, &lost.class).await;
    world.wait_bound(CLAIM).await;
    assert_ne!(world.environment(CLAIM).await["BUCKET_NAME"], lost.bucket);
    assert_eq!(world.account.list(&lost.bucket).await.unwrap(), ["precious"]);
    operator.stop().await;
}

/// For an admin who has only the manifest of the claim.
#[tokio::test]
async fn a_refused_adoption_says_how_to_recreate_the_claim() {
    let world = World::new().await;
    let lost = Lost::bind(&world, Made::Generated).await;
    world.forget_object(&world.claims(), CLAIM).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.wait_orphaned(&lost.record, "ClaimGone").await;
    world.set_action(&lost.record, "adopt").await;
    let message = world.wait_orphaned(&lost.record, "ActionRefused").await;
    assert!(message.contains(&format!("spec.objectBucketName: {}", lost.record)), "{message}");
    world.wait_action_removed(&lost.record).await;
    let checked = Tool::run(&world, &["doctor"], "").await;
    assert!(checked.out.contains("1 ObjectBucket has no claim: 1 ActionRefused"), "{checked:?}");

    let spec = json!({
        "storageClassName": lost.class, "generateBucketName": "photos", "objectBucketName": lost.record,
    });
    world.claim_with(CLAIM, spec).await;
    world.wait_reason(CLAIM, "AdoptionNeeded").await;
    world.set_action(&lost.record, "adopt").await;
    lost.assert_adopted(&world, Made::Generated).await;
    operator.stop().await;
}

#[tokio::test]
async fn a_claim_deleted_before_its_adoption_removes_nothing() {
    let world = World::new().await;
    let lost = Lost::bind(&world, Made::Named).await;
    world.lose(CLAIM).await;
    world.restore(&lost.backup.record).await;
    world.restore(&lost.backup.claim).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.wait_reason(CLAIM, "AdoptionNeeded").await;
    world.delete_claim(CLAIM).await;
    world.wait_gone(CLAIM).await;
    let (_, note) = world.wait_event_with(CLAIM, "LeftInPlace", &lost.record).await;
    assert!(note.contains("are kept"), "{note}");
    assert_eq!(world.account.list(&lost.bucket).await.unwrap(), ["precious"]);
    assert_eq!(world.account.users_with(&lost.uid).await.len(), 1);
    world.wait_orphaned(&lost.record, "ClaimGone").await;
    operator.stop().await;
}

/// And gives no access to it.
#[tokio::test]
async fn naming_the_object_bucket_of_another_claim_is_reported() {
    let world = World::new().await;
    let lost = Lost::bind(&world, Made::Generated).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    // A copy of a claim under another name, as users make them with an editor.
    let mut copy = lost.backup.claim.clone();
    copy["metadata"]["name"] = json!("copy");
    world.restore(&copy).await;
    let message = world.wait_reason("copy", "AdoptionNeeded").await;
    assert!(
        message.contains("does not belong to this claim") && message.contains("without spec.objectBucketName"),
        "{message}"
    );
    world.set_action(&lost.record, "adopt").await;
    world.claim("other", &lost.class).await;
    world.wait_bound("other").await;
    world.wait_reason("copy", "AdoptionNeeded").await;

    // As the message advises: without the copied fields it is a claim like any other.
    let plain = json!({ "spec": { "objectBucketName": null, "bucketName": null } });
    world.claims().patch("copy", &PatchParams::default(), &Patch::Merge(plain)).await.unwrap();
    world.wait_bound("copy").await;
    assert_ne!(world.environment("copy").await["BUCKET_NAME"], lost.bucket);
    operator.stop().await;
}

#[tokio::test]
async fn an_adoption_replaces_keys_that_do_not_work() {
    let world = World::new().await;
    let lost = Lost::bind(&world, Made::Generated).await;
    world.lose(CLAIM).await;
    let user = world.account.users_with(&lost.uid).await.pop().unwrap();
    world.account.iam.delete_access_key().user_name(&user).access_key_id(&lost.key).send().await.unwrap();
    for object in [&lost.backup.secret, &lost.backup.config_map, &lost.backup.record, &lost.backup.claim] {
        world.restore(object).await;
    }
    world.set_action(&lost.record, "adopt").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    lost.assert_adopted(&world, Made::Generated).await;
    assert_ne!(world.environment(CLAIM).await["AWS_ACCESS_KEY_ID"], lost.key);
    operator.stop().await;
}

#[tokio::test]
async fn a_bucket_can_be_adopted_again_and_again() {
    let world = World::new().await;
    let lost = Lost::bind(&world, Made::Generated).await;
    let mut uids = vec![lost.uid.clone()];
    for _ in 0..2 {
        let backup = world.back_up(CLAIM).await;
        world.lose(CLAIM).await;
        for object in [&backup.record, &backup.claim] {
            world.restore(object).await;
        }
        world.set_action(&lost.record, "adopt").await;
        let operator = Operator::start(&world, Kind::InProcess).await;
        world.wait_action_removed(&lost.record).await;
        operator.stop().await;
        uids.push(world.claims().get(CLAIM).await.unwrap().uid().unwrap());
    }
    let state = world.records().get(&lost.record).await.unwrap().spec.additional_state.unwrap();
    assert_eq!(state["formerClaimUIDs"], uids[..2].join(","));
    assert_eq!(state["claimUID"], uids[2]);
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.delete_claim(CLAIM).await;
    world.wait_gone(CLAIM).await;
    assert!(!world.account.bucket_exists(&lost.bucket).await);
    assert!(world.account.users_with(&lost.uid).await.is_empty());
    operator.stop().await;
}

#[tokio::test]
async fn a_foreign_secret_is_not_adopted() {
    let world = World::new().await;
    let lost = Lost::bind(&world, Made::Generated).await;
    world.lose(CLAIM).await;
    let mut foreign = lost.backup.secret.clone();
    foreign["metadata"]["labels"] = json!({ "app": "theirs" });
    for object in [&foreign, &lost.backup.record, &lost.backup.claim] {
        world.restore(object).await;
    }
    world.set_action(&lost.record, "adopt").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.wait_reason(CLAIM, "OutputExists").await;
    assert!(world.secrets().get(CLAIM).await.unwrap().owner_references().is_empty());
    world.secrets().delete(CLAIM, &DeleteParams::default()).await.unwrap();
    lost.assert_adopted(&world, Made::Generated).await;
    operator.stop().await;
}
