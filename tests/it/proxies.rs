//! The proxies themselves, on which the other tests rely.

use std::time::Duration;

use aws_sdk_s3::error::ProvideErrorMetadata as _;
use aws_sdk_s3::types::{AbacStatus, BucketAbacStatus};
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{WatchEvent, WatchParams};
use kube::{Api, Client};
use rstest::rstest;

use crate::support::account::Account;
use crate::support::aws_proxy::Strictness;
use crate::support::proxy::{Ending, Gate, Verdict, expired, expired_in_stream};
use crate::support::{REGION, World};

/// The provisioning account, through the world's proxy.
fn owner(world: &World) -> Account {
    Account::at(&world.aws.url, REGION, "test", "test")
}

const HOUR: Duration = Duration::from_secs(3600);
const LATE: Strictness = Strictness { key_delay: HOUR, name_delay: HOUR, ..Strictness::PROMPT };
const LAGGING: Strictness = Strictness { lag: HOUR, ..Strictness::PROMPT };

#[tokio::test]
async fn a_strict_aws_refuses_what_aws_refuses() {
    let world = World::new().await;
    world.aws.upstream().strict(LATE);
    let (user, bucket) = (world.unique("user"), world.unique("bucket"));
    let owner = owner(&world);
    let iam = &owner.iam;
    iam.create_user().user_name(&user).send().await.unwrap();
    let key = iam.create_access_key().user_name(&user).send().await.unwrap().access_key.unwrap();
    iam.create_access_key().user_name(&user).send().await.unwrap();
    let third = iam.create_access_key().user_name(&user).send().await.unwrap_err();
    assert_eq!(third.code(), Some("LimitExceeded"));
    let conflict = iam.delete_user().user_name(&user).send().await.unwrap_err();
    assert_eq!(conflict.code(), Some("DeleteConflict"));

    owner.create_bucket(&bucket).await;
    let app = Account::at(&world.aws.url, REGION, &key.access_key_id, &key.secret_access_key);
    assert_eq!(app.list(&bucket).await, Err("InvalidAccessKeyId".to_owned()), "the key is too new");
    owner.s3.delete_bucket().bucket(&bucket).send().await.unwrap();
    let again = owner.s3.create_bucket().bucket(&bucket).send().await.unwrap_err();
    assert_eq!(again.code(), Some("OperationAborted"));
}

#[tokio::test]
async fn a_strict_s3_refuses_what_s3_refuses() {
    let world = World::new().await;
    let (aws, owner, bucket) = (world.aws.upstream(), owner(&world), world.unique("bucket"));
    aws.strict(Strictness { refuses_tags: true, ..Strictness::PROMPT });
    let tag = |key: &str| aws_sdk_s3::types::Tag::builder().key(key).value("x").build().unwrap();
    let tagged = aws_sdk_s3::types::CreateBucketConfiguration::builder().tags(tag("a")).build();
    let refused = owner.s3.create_bucket().bucket(&bucket).create_bucket_configuration(tagged).send().await;
    assert_eq!(refused.unwrap_err().code(), Some("UnsupportedArgument"));
    let unpaged = owner.s3.list_buckets().send().await.unwrap_err();
    assert_eq!(unpaged.code(), Some("InvalidRequest"));
    owner.s3.list_buckets().max_buckets(1000).send().await.unwrap();

    owner.create_bucket(&bucket).await;
    let put_tags = async |keys: &[&str]| {
        let tagging =
            aws_sdk_s3::types::Tagging::builder().set_tag_set(Some(keys.iter().map(|key| tag(key)).collect()));
        let put = owner.s3.put_bucket_tagging().bucket(&bucket).tagging(tagging.build().unwrap()).send().await;
        put.map(drop).map_err(|error| error.code().unwrap_or_default().to_owned())
    };
    put_tags(&["aws:stack", "a"]).await.unwrap();
    assert_eq!(put_tags(&["a"]).await, Err("InvalidTag".to_owned()), "AWS's own stay");
    put_tags(&["aws:stack", "b"]).await.unwrap();
    let abac = AbacStatus::builder().status(BucketAbacStatus::Enabled).build();
    owner.s3.put_bucket_abac().bucket(&bucket).abac_status(abac).send().await.unwrap();
    assert_eq!(put_tags(&["aws:stack", "b"]).await, Err("MethodNotAllowed".to_owned()));

    let put = || owner.s3.put_object().bucket(&bucket).key("k");
    let private = put().acl(aws_sdk_s3::types::ObjectCannedAcl::Private).send().await.unwrap_err();
    assert_eq!(private.code(), Some("AccessControlListNotSupported"));
    put().send().await.unwrap();
    let other = owner.s3.get_bucket_tagging().bucket(&bucket).expected_bucket_owner("210987654321").send().await;
    assert_eq!(other.unwrap_err().code(), Some("AccessDenied"));
    aws.strict(Strictness { bucket_lag: HOUR, user_delay: HOUR, ..Strictness::PROMPT });
    let (late, user) = (world.unique("late"), world.unique("user"));
    owner.create_bucket(&late).await;
    assert_eq!(owner.list(&late).await, Err("NoSuchBucket".to_owned()));
    owner.iam.create_user().user_name(&user).send().await.unwrap();
    let unknown = owner.iam.create_access_key().user_name(&user).send().await.unwrap_err();
    assert_eq!(unknown.code(), Some("NoSuchEntity"));
}

#[tokio::test]
async fn a_strict_aws_checks_the_region_of_a_call() {
    let world = World::new().await;
    world.aws.upstream().strict(Strictness::PROMPT);
    let elsewhere = Account::at(&world.aws.url, "us-east-1", "test", "test");
    assert_eq!(elsewhere.iam.list_users().send().await.unwrap_err().code(), Some("SignatureDoesNotMatch"));
    owner(&world).iam.list_users().send().await.unwrap();
    world.aws.upstream().strict(Strictness { region_is_disabled: true, ..Strictness::PROMPT });
    let unknown = owner(&world).iam.list_users().send().await.unwrap_err();
    assert_eq!(unknown.code(), Some("InvalidClientTokenId"));
    let unknown = owner(&world).s3.list_buckets().send().await.unwrap_err();
    assert_eq!(unknown.code(), Some("InvalidAccessKeyId"));
}

#[tokio::test]
async fn a_lagging_aws_shows_users_as_they_were() {
    let world = World::new().await;
    let user = world.unique("user");
    let owner = owner(&world);
    world.aws.upstream().strict(LAGGING);
    owner.iam.create_user().user_name(&user).send().await.unwrap();
    assert!(!owner.user_exists(&user).await, "it is shown late");
    let twice = owner.iam.create_user().user_name(&user).send().await.unwrap_err();
    assert_eq!(twice.code(), Some("EntityAlreadyExists"), "names are unique at once");

    let tag = aws_sdk_iam::types::Tag::builder().key("a").value("b").build().unwrap();
    owner.iam.tag_user().user_name(&user).tags(tag).send().await.unwrap();
    let key = owner.iam.create_access_key().user_name(&user).send().await.unwrap().access_key.unwrap().access_key_id;
    // Forgets the changes so far.
    world.aws.upstream().strict(LAGGING);
    owner.iam.delete_access_key().user_name(&user).access_key_id(&key).send().await.unwrap();
    owner.iam.delete_user().user_name(&user).send().await.unwrap();
    assert_eq!(owner.keys(&user).await, [key], "they are deleted, and still shown");
    let shown = owner.iam.get_user().user_name(&user).send().await.unwrap().user.unwrap();
    assert_eq!((shown.tags()[0].key(), shown.tags()[0].value()), ("a", "b"));
    assert!(!Account::owner().user_exists(&user).await);
}

#[tokio::test]
async fn calls_fail_as_configured() {
    let world = World::new().await;
    let bucket = world.unique("bucket");
    let owner = owner(&world);
    let list = || async { owner.s3.list_objects_v2().bucket(&bucket).send().await };
    world.account.create_bucket(&bucket).await;
    list().await.unwrap();
    world.aws.inject(|_| Verdict::Reset);
    list().await.unwrap_err();
    world.aws.inject(|_| Verdict::Truncate(10));
    list().await.unwrap_err();
    world.aws.inject(|_| Verdict::Distort(|answer| answer.map(|_| Bytes::from_static(b"<html>"))));
    list().await.unwrap_err();
    world.aws.leave_alone();
    world.aws.down().await;
    list().await.unwrap_err();
    world.aws.up();
    list().await.unwrap();

    let gate = Gate::closed();
    let held = gate.clone();
    world.aws.inject(move |call| match call.name.as_str() {
        "DeleteBucket" => Verdict::HoldAnswer(held.clone()),
        _ => Verdict::Pass,
    });
    let delete = tokio::spawn(owner.s3.delete_bucket().bucket(&bucket).send());
    assert!(gate.reached().await);
    assert!(!world.account.bucket_exists(&bucket).await, "it is done");
    assert!(!delete.is_finished(), "and not answered");
    gate.open();
    delete.await.unwrap().unwrap();
}

#[tokio::test]
async fn watches_are_refused_as_configured() {
    let world = World::new().await;
    let client = Client::try_from(world.config()).unwrap();
    let secrets: Api<Secret> = Api::namespaced(client, &world.namespace);
    world.kubernetes.inject(|_| expired());
    let refused = secrets.watch(&WatchParams::default(), "0").await.map(drop).unwrap_err();
    assert!(matches!(&refused, kube::Error::Api(status) if status.code == 410), "{refused:?}");
    world.kubernetes.inject(|_| expired_in_stream());
    let mut watch = secrets.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    let first = watch.next().await;
    assert!(matches!(&first, Some(Ok(WatchEvent::Error(e))) if e.code == 410), "{first:?}");
}

#[rstest]
#[case::closed(Ending::Closed)]
#[case::broken(Ending::Broken)]
#[case::expired(Ending::Expired)]
#[tokio::test]
async fn watches_end_as_configured(#[case] ending: Ending) {
    let world = World::new().await;
    let client = Client::try_from(world.config()).unwrap();
    let secrets: Api<Secret> = Api::namespaced(client, &world.namespace);
    let mut watch = secrets.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    let first = watch.try_next().await.unwrap();
    assert!(matches!(first, Some(WatchEvent::Added(_))), "{first:?}");
    world.kubernetes.end_watches(ending);
    let mut rest = watch.filter(|event| std::future::ready(!matches!(event, Ok(WatchEvent::Bookmark(_)))));
    let next = rest.next().await;
    match ending {
        Ending::Closed => assert!(next.is_none(), "{next:?}"),
        // kube takes it for an end.
        Ending::Broken => assert!(matches!(next, None | Some(Err(_))), "{next:?}"),
        Ending::Expired => assert!(matches!(&next, Some(Ok(WatchEvent::Error(e))) if e.code == 410), "{next:?}"),
    }
}
