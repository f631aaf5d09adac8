//! Classes that use the same Secret and store: what is wrong there is wrong with each of them, and explained once.

use std::collections::BTreeMap;

use rstest::rstest;
use serde_json::{Value, json};

use super::{Examined, NO_LEASE};
use crate::support::World;
use crate::support::operator::{Kind, Operator};
use crate::support::owner_policy::{Buckets, DOCTOR, PLAIN, PolicedOwner};

/// Requires that the only finding about this class's store refers to the other class.
#[track_caller]
fn refers(examined: &Examined, class: &str, verdict: &str, other: &str, wrong: &str) {
    let of_store = |finding: &&Value| !["parameters", "namespaces"].contains(&finding["what"].as_str().unwrap());
    let about: Vec<_> = examined.findings().into_iter().filter(|finding| finding["subject"] == class).collect();
    let about: Vec<_> = about.iter().filter(of_store).filter(|finding| finding["verdict"] != "good").collect();
    let [finding] = about[..] else { panic!("not one finding about the store of {class}: {about:#?}") };
    assert_eq!((&finding["what"], &finding["verdict"]), (&json!("store"), &json!(verdict)), "{finding}");
    assert_eq!(finding["remedy"], format!("see StorageClass {other:?}, which uses the same Secret and store"));
    let message = finding["message"].as_str().unwrap();
    assert!(message.contains(&format!("StorageClass {other:?}")) && message.contains(wrong), "{message}");
}

/// Requires that the summary counts what is listed, and that so many findings about classes have this verdict.
#[track_caller]
fn counts(examined: &Examined, verdict: &str, wanted: usize) {
    let summary: Value = serde_json::from_str(&examined.text).unwrap();
    let findings = examined.findings();
    let listed = findings.iter().filter(|finding| finding["verdict"] == verdict).count();
    assert_eq!(summary["summary"][verdict], listed, "{summary:#}");
    let of_classes = |finding: &&Value| finding["group"] == "StorageClass" && finding["verdict"] == verdict;
    assert_eq!(findings.iter().filter(of_classes).count(), wanted, "{summary:#}");
}

/// How often each call was made to AWS.
fn asked(world: &World) -> BTreeMap<String, usize> {
    let mut asked = BTreeMap::new();
    for name in world.aws.names() {
        *asked.entry(name).or_default() += 1;
    }
    asked
}

#[rstest]
#[case::wrong("wrong", "credentials", "AWS refused", 1)]
#[case::incomplete("half", "owner", "has no key AWS_SECRET_ACCESS_KEY", 0)]
#[case::missing("missing", "owner", "does not exist", 0)]
#[tokio::test]
async fn each_class_reports_a_secret_that_does_not_work(
    #[case] secret: &str,
    #[case] what: &str,
    #[case] words: &str,
    #[case] calls: usize,
) {
    let world = World::new().await;
    world.owner_secret("wrong", &[("AWS_ACCESS_KEY_ID", "AKIAUNKNOWN"), ("AWS_SECRET_ACCESS_KEY", "wrong")]).await;
    world.owner_secret("half", &[("AWS_ACCESS_KEY_ID", "AKIAUNKNOWN")]).await;
    let namespace = ("allowedNamespaces", world.namespace.as_str());
    let first = world.class_with("a", "Delete", &[("secretName", secret)]).await;
    let alike = world.class_with("b", "Delete", &[("secretName", secret), namespace]).await;
    let granted = world.class_with("c", "Retain", &[("secretName", secret), ("bucketName", "archive")]).await;

    let examined = Examined::json(&world, &[NO_LEASE]).await;
    assert_eq!(examined.code, Some(1), "{}\n{}", examined.text, examined.log);
    examined.assert_finds(&first, what, "bad", words);
    refers(&examined, &alike, "bad", &first, what);
    refers(&examined, &granted, "bad", &first, what);
    counts(&examined, "bad", 3);
    assert_eq!(asked(&world).values().sum::<usize>(), calls, "{:?}", world.aws.names());

    let remedy = format!("→ {}\n", examined.about(&first, what)[0]["remedy"].as_str().unwrap());
    let text = Examined::text(&world, &[NO_LEASE]).await;
    assert_eq!((text.code, text.text.matches(&remedy).count()), (Some(1), 1), "{}", text.text);
}

#[tokio::test]
async fn what_classes_share_is_examined_once() {
    let world = World::new().await;
    let (archive, prefix) = (world.unique("archive"), world.unique("new-"));
    let buckets = Buckets { prefix: prefix.clone(), existing: archive.clone() };
    let owner = PolicedOwner::limited_to(&world, &[PLAIN, DOCTOR], buckets).await;
    world.account.create_bucket(&archive).await;
    let names = ("bucketNamePrefix", prefix.as_str());
    let first = world.class_with("a", "Delete", &[names]).await;
    let alike = world.class_with("b", "Delete", &[names, ("allowedNamespaces", &world.namespace)]).await;
    let granted = world.class_with("c", "Retain", &[("bucketName", &archive)]).await;

    let good = Examined::json(&world, &[NO_LEASE]).await;
    assert_eq!(good.code, Some(0), "{}\n{}", good.text, good.log);
    good.assert_finds(&alike, "store", "good", &format!("the same as for StorageClass {first:?}"));
    good.assert_finds(&granted, "bucket", "good", &archive);
    let asked = asked(&world);
    for name in ["GetCallerIdentity", "GetAccountSummary", "ListBuckets"] {
        assert_eq!(asked.get(name), Some(&1), "{name}: {asked:?}");
    }

    // What cannot be seen of one cannot be seen of the other, and claims may still work.
    owner.allow(&world, &[PLAIN, PLAIN]).await;
    let unknown = Examined::json(&world, &[NO_LEASE]).await;
    assert_eq!(unknown.code, Some(0), "{}\n{}", unknown.text, unknown.log);
    refers(&unknown, &alike, "unknown", &first, "permissions");
}

#[tokio::test]
async fn a_secret_that_claims_need_is_explained_at_its_class() {
    let world = World::new().await;
    let class = world.class("a").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("photos", &class).await;
    world.wait_bound("photos").await;
    operator.stop().await;
    world.owner_secret("owner", &[("AWS_ACCESS_KEY_ID", "AKIAUNKNOWN")]).await;

    let examined = Examined::json(&world, &[NO_LEASE]).await;
    examined.assert_finds(&class, "owner", "bad", "has no key AWS_SECRET_ACCESS_KEY");
    let needed =
        format!("Secret {}/owner cannot be used, but is needed by {}", world.namespace, world.record_name("photos"));
    examined.assert_finds("", "owner", "bad", &needed);
    let is_of_records = |finding: &Value| finding["group"] == "ObjectBuckets" && finding["what"] == "owner";
    let finding = examined.findings().into_iter().find(is_of_records).unwrap();
    assert_eq!(finding["remedy"], format!("see StorageClass {class:?}, which uses the same Secret"));
}
