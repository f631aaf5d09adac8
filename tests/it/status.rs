//! The command `status`: all claims, or the details of one claim, without changing anything.

use bucket_provisioner::api::ObjectBucketClaim;
use futures::future::join_all;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::support::operator::{Kind, Operator};
use crate::support::other::{OtherCluster, ours};
use crate::support::proxy::Verdict;
use crate::support::terminal::Terminal;
use crate::support::tool::Tool;
use crate::support::{World, bucket_of};

/// Requires that nothing was written since the proxies were cleared.
fn assert_only_read(world: &World) {
    assert_eq!(world.kubernetes.writes(), [""; 0]);
    assert_eq!(world.aws.writes(), [""; 0]);
    let others: Vec<_> = world.kubernetes.names().into_iter().filter(|name| name.starts_with("watch")).collect();
    assert!(others.is_empty(), "{others:?}");
}

fn named(claims: &Value) -> Vec<&str> {
    claims["claims"].as_array().unwrap().iter().map(|claim| claim["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn claims_that_need_attention_are_shown_first() {
    let world = World::new().await;
    let class = world.class_with("rotated", "Delete", &[("rotateKeysEvery", "30d")]).await;
    let wrong = world.class_with("wrong", "Delete", &[("regoin", "x")]).await;
    let neighbour = world.neighbour().await;
    let foreign = neighbour.class("foreign").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("photos", &class).await;
    world.wait_bound("photos").await;
    world.wait_reason("photos", "Bound").await;
    world.claim("wrong", &wrong).await;
    world.wait_reason("wrong", "InvalidClassParameter").await;
    operator.stop().await;
    world.claim("theirs", &foreign).await;
    world.claim("new", &class).await;

    world.kubernetes.clear();
    world.aws.clear();
    let shown = Tool::run(&world, &["status", "--output", "json"], "").await;
    assert_eq!(shown.code, 0, "{shown:?}");
    let claims = shown.json();
    assert_eq!(named(&claims), ["wrong", "new", "photos"]);
    let photos = &claims["claims"][2];
    assert_eq!((photos["phase"].as_str(), photos["reason"].as_str()), (Some("Bound"), Some("Bound")));
    assert!(photos["keysIssuedAt"].is_string() && photos["rotationDueAt"].is_string(), "{photos}");
    assert_eq!(photos["objectBucket"], world.record_name("photos"));
    assert_eq!(claims["claims"][0]["attention"], "needed");

    let theirs = Tool::run(&world, &["status", "theirs"], "").await;
    assert!(theirs.code == 1 && theirs.err.contains("correct spec.storageClassName"), "{theirs:?}");
    assert!(theirs.err.contains(&foreign) && theirs.err.contains(&neighbour.provisioner), "{theirs:?}");

    let table = Tool::run(&world, &["status"], "").await.out;
    assert!(table.contains("3 claims: 1 needs attention, 1 in progress, 1 fine"), "{table}");
    assert!(table.contains("InvalidClassParameter") && !table.contains('\u{1b}'), "no colours in a pipe: {table}");
    let wide = Tool::run(&world, &["status", "-o", "wide"], "").await.out;
    assert!(wide.contains("regoin"), "{wide}");
    let yaml = Tool::run(&world, &["status", "-o", "yaml"], "").await.out;
    assert!(yaml.starts_with("claims:"), "{yaml}");
    assert_only_read(&world);
    assert_eq!(world.aws.names(), [""; 0], "AWS is not asked");
    assert!(!world.kubernetes.names().iter().any(|name| name == "get secrets"), "only metadata of Secrets is read");
}

#[tokio::test]
async fn scheduled_deletions_are_shown_with_the_way_to_undo_them() {
    let world = World::new().await;
    let class = world.class_with("later", "Delete", &[("onDelete", "after:7d")]).await;
    let _operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("photos", &class).await;
    let bucket = bucket_of(&world.wait_bound("photos").await);
    world.delete_claim("photos").await;
    world.wait_gone("photos").await;

    let shown = Tool::run(&world, &["status", "-o", "json"], "").await.json();
    let deletion = &shown["scheduledDeletions"][0];
    assert_eq!((&deletion["bucket"], &deletion["name"]), (&json!(bucket), &json!("photos")));
    let text = Tool::run(&world, &["status"], "").await.out;
    assert!(text.contains("1 bucket of a deleted claim is scheduled for deletion, the next one in 6d23h"), "{text}");
    assert!(text.contains(&world.record_name("photos")), "{text}");
    let other = Tool::run(&world, &["status", "--namespace", "elsewhere"], "").await.out;
    assert!(!other.contains("scheduled"), "{other}");

    let asked = Tool::run(&world, &["status", &format!("{}/photos", world.namespace)], "").await;
    assert_ne!(asked.code, 0);
    for part in [&bucket, "undo-delete: \"yes\"", deletion["deleteAt"].as_str().unwrap()] {
        assert!(asked.err.contains(part), "{part}: {}", asked.err);
    }
}

#[tokio::test]
async fn many_claims_are_listed_page_by_page() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    join_all((0..250).map(|number| {
        let (world, class) = (&world, &class);
        async move { drop(world.claim(&format!("claim-{number:03}"), class).await) }
    }))
    .await;
    world.kubernetes.clear();
    let shown = Tool::run(&world, &["status", "-o", "json"], "").await.json();
    assert_eq!(shown["claims"].as_array().unwrap().len(), 250);
    let lists = world.kubernetes.names().iter().filter(|name| *name == "list objectbucketclaims").count();
    assert_eq!(lists, 2, "one call for each page: {:?}", world.kubernetes.names());
    assert_only_read(&world);
}

#[tokio::test]
async fn what_a_tenant_writes_into_a_claim_commands_no_terminal() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    world.claim("photos", &class).await;
    let ready = json!({ "type": "Ready", "status": "False", "reason": "Hi\u{1b}[2J", "message": "a\nforged line\u{9b}31m\u{202e}" });
    let status = json!({ "status": { "phase": "Pending", "conditions": [ready] } });
    world.claims().patch_status("photos", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    let claim = format!("{}/photos", world.namespace);
    for args in [
        &["status"][..],
        &["status", "-o", "wide"],
        &["status", "-o", "json"],
        &["status", "-o", "yaml"],
        &["status", &claim],
    ] {
        let out = Tool::run(&world, args, "").await.out;
        assert!(out.contains("Hi") && !out.contains(['\u{1b}', '\u{9b}', '\u{202e}']), "{args:?}: {out:?}");
        assert!(!out.lines().any(|line| line.starts_with("forged")), "{out}");
    }
}

/// Its ObjectBucket, keys, content, and what its deletion removes.
#[tokio::test]
async fn the_details_of_a_claim_are_shown() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let uid = world.claim("photos", &class).await.uid().unwrap();
    world.wait_bound("photos").await;
    world.wait_reason("photos", "Bound").await;
    world.wait_event("photos", "Bound").await;
    let environment = world.environment("photos").await;
    let (bucket, key) = (&environment["BUCKET_NAME"], &environment["AWS_ACCESS_KEY_ID"]);
    world.app("photos").await.put(bucket, "precious").await.unwrap();
    operator.stop().await;

    world.kubernetes.clear();
    world.aws.clear();
    let claim = format!("{}/photos", world.namespace);
    let shown = Tool::run(&world, &["status", &claim], "").await;
    let user = world.account.users_with(&uid).await.pop().unwrap();
    for part in [bucket, key, &user, &world.record_name("photos"), "1 object, 7 B"] {
        assert!(shown.out.contains(part), "{part}: {}", shown.out);
    }
    assert!(shown.out.contains("deletes bucket") && shown.out.contains("reclaimPolicy is Delete"), "{}", shown.out);
    let details = Tool::run(&world, &["status", "photos", "-o", "json"], "").await;
    assert!(!details.out.contains(&environment["AWS_SECRET_ACCESS_KEY"]), "a secret is shown");
    let details = details.json();
    assert_eq!(details["keys"]["seen"]["presentId"], **key);
    assert_eq!(details["usage"]["seen"], json!({ "objects": 1, "bytes": 7, "isComplete": true }));
    assert_eq!(details["record"]["seen"]["user"], user);
    let events = details["events"]["seen"].as_array().unwrap();
    assert!(events.iter().any(|event| event["reason"] == "Bound"), "{events:?}");
    assert_only_read(&world);
}

/// By their class and by themselves.
#[tokio::test]
async fn details_show_what_claims_may_do_and_have_set() {
    let world = World::new().await;
    let archive = world.unique("archive");
    world.account.create_bucket(&archive).await;
    let existing = [("bucketName", archive.as_str()), ("prefix", "teams/${namespace}/"), ("accessMode", "ReadOnly")];
    let existing = world.class_with("existing", "Retain", &existing).await;
    let new = [("objectLock", "GOVERNANCE:1d"), ("tags", "team=${claim}"), ("claimsMaySet", "expireAfter")];
    let new = world.class_with("new", "Delete", &new).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("reader", &existing).await;
    let config = json!({ "accessMode": "WriteOnly", "expireAfter": "7d" });
    let spec = json!({ "storageClassName": new, "generateBucketName": "writer", "additionalConfig": config });
    world.claim_with("writer", spec).await;
    for claim in ["reader", "writer"] {
        world.wait_bound(claim).await;
    }
    operator.stop().await;

    world.kubernetes.clear();
    world.aws.clear();
    let prefix = format!("teams/{}/", world.namespace);
    let reader = Tool::run(&world, &["status", "reader"], "").await.out;
    assert!(reader.contains(&format!("Access:         ReadOnly, only {prefix}*\n")), "{reader}");
    assert!(!reader.contains("Settings:"), "{reader}");
    let writer = Tool::run(&world, &["status", "writer"], "").await.out;
    let settings = "Settings:       expireAfter=7d, objectLock=GOVERNANCE:1d, tags=team=writer\n";
    assert!(writer.contains("Access:         WriteOnly\n") && writer.contains(settings), "{writer}");

    let details = async |claim: &str| Tool::run(&world, &["status", claim, "-o", "json"], "").await.json();
    let reader = details("reader").await["record"]["seen"].clone();
    assert_eq!((&reader["accessMode"], &reader["prefix"]), (&json!("ReadOnly"), &json!(prefix)));
    assert_eq!(reader["settings"], json!({}));
    let writer = details("writer").await["record"]["seen"].clone();
    assert_eq!((&writer["accessMode"], &writer["prefix"]), (&json!("WriteOnly"), &Value::Null));
    let settings = json!({ "expireAfter": "7d", "objectLock": "GOVERNANCE:1d", "tags": "team=writer" });
    assert_eq!(writer["settings"], settings);
    assert_only_read(&world);
}

#[tokio::test]
async fn what_an_admin_may_not_read_is_left_out_and_reported() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("photos", &class).await;
    world.wait_bound("photos").await;
    operator.stop().await;
    world.kubernetes.inject(|call| {
        if call.name.ends_with(" secrets") {
            let denied = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "secrets is forbidden", "reason": "Forbidden", "code": 403 });
            return Verdict::Answer(403, denied.to_string());
        }
        Verdict::Pass
    });
    let shown = Tool::run(&world, &["status"], "").await;
    assert!(shown.code == 0 && shown.err.contains("you may not list Secrets"), "{shown:?}");
    assert!(shown.out.contains("photos"), "{shown:?}");
    let shown = Tool::run(&world, &["status", "photos"], "").await;
    assert!(shown.code == 0 && shown.out.contains("you may not read its Secret"), "{shown:?}");
    assert!(shown.out.contains("Content:        not known"), "{shown:?}");
}

/// Claims of other provisioners are not shown.
#[tokio::test]
async fn a_waiting_claim_is_shown_with_its_remedy() {
    let world = World::new().await;
    let wrong = world.class_with("wrong", "Delete", &[("regoin", "x")]).await;
    let neighbour = world.neighbour().await;
    let foreign = neighbour.class("foreign").await;
    world.claim("theirs", &foreign).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("wrong", &wrong).await;
    world.wait_reason("wrong", "InvalidClassParameter").await;
    let shown = Tool::run(&world, &["status", "wrong"], "").await.out;
    assert!(shown.contains("Remedy:") && shown.contains("delete the class and create it again"), "{shown}");
    let theirs = Tool::run(&world, &["status", "theirs"], "").await;
    assert!(theirs.code == 1 && theirs.err.contains("another provisioner"), "{theirs:?}");
    let nothing = Tool::run(&world, &["status", "nothing"], "").await;
    assert!(nothing.code == 1 && nothing.err.contains("does not exist"), "{nothing:?}");
    operator.stop().await;
}

#[tokio::test]
async fn without_a_terminal_each_change_is_a_line() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("photos", &class).await;
    world.wait_reason("photos", "Bound").await;
    let mut watch = Tool::start(&world, &["status", "--watch", "--interval", "100ms"]);
    watch.prints("photos Bound bucket ").await;
    world.delete_claim("photos").await;
    watch.prints("photos deleted").await;
    operator.stop().await;
}

/// A failed read does not end the command.
#[tokio::test]
async fn on_a_terminal_the_table_is_redrawn() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("photos", &class).await;
    world.wait_reason("photos", "Bound").await;
    let mut terminal = Terminal::start(&world, &["status", "--watch", "--interval", "100ms"]);
    terminal.shows(&["photos", "Bound", "1 claim"]).await;
    world.claim("videos", &class).await;
    // In place of what was there.
    terminal.shows(&["A\r\u{1b}[2K", "videos", "2 claims"]).await;
    world.kubernetes.inject(|call| match call.name.starts_with("list objectbucketclaims") {
        true => Verdict::Answer(500, String::new()),
        false => Verdict::Pass,
    });
    terminal.shows(&["retrying"]).await;
    world.kubernetes.leave_alone();
    world.delete_claim("photos").await;
    terminal.shows(&["1 claim"]).await;
    assert!(terminal.runs());
    operator.stop().await;
}

/// Those of other provisioners are left out.
#[tokio::test]
async fn unreadable_claims_come_first() {
    let other = OtherCluster::take().await;
    // Our CRD lets nothing of that in; those that others installed do.
    let [mut claims, records] = ours();
    let schema = &mut claims["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema["properties"]["spec"] = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    other.install(&[claims, records]).await;
    let world = other.world().await;
    let class = world.class("greenfield").await;
    let foreign = world.unique("foreign");
    world.create_class(json!({ "metadata": { "name": foreign }, "provisioner": "example.com/other" })).await;
    let resource = ApiResource::erase::<ObjectBucketClaim>(&());
    let raw: Api<DynamicObject> = Api::namespaced_with(world.client.clone(), &world.namespace, &resource);
    for (name, class) in [("broken", &class), ("theirs", &foreign)] {
        let claim = json!({
            "apiVersion": resource.api_version, "kind": resource.kind, "metadata": { "name": name },
            "spec": { "storageClassName": class, "generateBucketName": 7 },
        });
        raw.create(&PostParams::default(), &serde_json::from_value(claim).unwrap()).await.unwrap();
    }
    world.claim("photos", &class).await;
    let shown = Tool::run(&world, &["status", "-o", "json"], "").await.json();
    assert_eq!(named(&shown), ["broken", "photos"]);
    assert_eq!(shown["claims"][0]["reason"], "ClaimUnreadable");
    let shown = Tool::run(&world, &["status", "broken"], "").await;
    assert!(shown.code == 0 && shown.out.contains("Remedy:"), "{shown:?}");
}
