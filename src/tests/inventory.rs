//! What `orphans` reads of an account.

use crate::testing::*;

/// There can be thousands of others, and each costs a call.
#[tokio::test]
async fn only_users_with_names_of_claims_are_read() {
    let user = |name: &str| {
        let path =
            "<Path>/aws-s3-provisioner/</Path><UserId>AIDA1</UserId><CreateDate>2026-01-01T00:00:00Z</CreateDate>";
        format!("<member>{path}<UserName>{name}</UserName><Arn>arn:aws:iam::{ACCOUNT}:user/{name}</Arn></member>")
    };
    let users = user(&format!("shop-photos-{UID}")) + &user("alice") + &user("shop-photos");
    let result = format!("<ListUsersResult><Users>{users}</Users><IsTruncated>false</IsTruncated></ListUsersResult>");
    let stage = Stage::answering([
        ("ListBuckets", ok("<ListAllMyBucketsResult><Buckets></Buckets></ListAllMyBucketsResult>")),
        ("ListUsers", ok(format!("<ListUsersResponse>{result}</ListUsersResponse>"))),
        ("GetUser", user_with_tags(OURS)),
    ]);
    stage.inventory(&record()).await;
    let asked = stage.all_sent("GetUser");
    assert!(asked.len() == 1 && asked[0].contains(UID), "{asked:?}");
    // "ListBuckets" in the Amazon S3 API reference: unpaginated requests fail in accounts with a large quota.
    assert!(stage.sent("ListBuckets").contains("max-buckets=1000"), "{}", stage.sent("ListBuckets"));
}
