"""What nobody can know without an account: twelve experiments. Each yields lines of the report."""

import json
import random
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from account import PATH, Account, attempt, until

DOCS = Path(__file__).parents[2] / "docs"


class Skipped(Exception):
    """It needs something that the options do not name."""


class Differs(Exception):
    """The operator or AWS does not what this project relies on."""


def expect(holds, otherwise):
    if not holds:
        raise Differs(otherwise)


def needed(value, option):
    if not value:
        raise Skipped(f"needs {option}")
    return value


class Check:
    """What all experiments have: options, account, cluster, and names for this run."""

    def __init__(self, options, account, cluster):
        self.options, self.account, self.cluster, self.run = options, account, cluster, cluster.run
        self.account_id, self.partition = account.id(), account.partition()

    def document(self, name):
        """A policy of docs/, for this account and the names of this run."""
        text = (DOCS / name).read_text()
        text = text.replace("111122223333", self.account_id).replace("acme-*", f"{self.run}-*")
        text = text.replace("aws-s3-provisioner-boundary", f"{self.run}-boundary")
        return json.loads(text.replace("arn:aws:", f"arn:{self.partition}:"))

    def bound(self, name, **class_):
        """A class of this name, and a claim of it that is Bound."""
        self.cluster.claim(name, storage_class=self.cluster.storage_class(name, **class_))
        return self.cluster.wait_bound(name)

    def app(self, name):
        """The bucket of a claim, and the app's client."""
        config, key = self.cluster.outputs(name)
        return config["BUCKET_NAME"], Account(self.options.region, key).s3


def boundary(check):
    """CreateUser with a boundary, under the provisioning policy that demands one"""
    account, cluster, run = check.account, check.cluster, check.run
    document = json.dumps(check.document("permissions-boundary.json"))
    arn = account.iam.create_policy(PolicyName=f"{run}-boundary", PolicyDocument=document)["Policy"]["Arn"]
    key = account.user_with_policy(f"{run}-owner", check.document("owner-iam-policy-with-boundary.json"))
    with cluster.operator("boundary"):
        took = check.bound("boundary", owner=key, permissionsBoundary=arn, bucketNamePrefix=f"{run}-")
        yield f"Bound after {took:.1f} s, with the keys of a user that has this policy"
        bucket, s3 = check.app("boundary")
        put = attempt(s3.put_object, Bucket=bucket, Key="a", Body=b"a")
        expect(put == "ok", f"PutObject of the app: {put}")
        yield "the app can write"
        user = account.users(f"{run}-boundary")[0]
        owner = Account(check.options.region, key)
        code = attempt(owner.iam.delete_user_permissions_boundary, UserName=user)
        expect(code == "AccessDenied", f"DeleteUserPermissionsBoundary with the same keys: {code}")
        yield "the same keys cannot remove the boundary"
        doctor = cluster.command("doctor", "--provisioner-name", cluster.provisioner, "--namespace", run)
        yield f"doctor: {doctor.strip().splitlines()[-1]}"
        cluster.delete("boundary")


def tags_at_creation(check):
    """CreateBucket with tags, in each region"""
    tags = lambda value: {"Tags": [{"Key": "team", "Value": value}]}
    for region in check.options.regions.split(","):
        bucket = f"{check.run}-tags-{region}"
        yield f"{region}: {attempt(check.account.create_bucket, name=bucket, region=region, **tags('a'))}"
    if "us-east-1" in check.options.regions.split(","):
        bucket = f"{check.run}-tags-us-east-1"
        again = attempt(check.account.create_bucket, name=bucket, region="us-east-1", **tags("b"))
        yield f"us-east-1, the same bucket once more, with other tags: {again}"


def burst(check):
    """Many claims at once: rates, refusals, how long keys and reads take"""
    account, cluster = check.account, check.cluster
    names = [f"burst-{number}" for number in range(check.options.claims)]
    storage_class = cluster.storage_class("burst")
    with cluster.operator("burst") as metrics:
        began = time.monotonic()
        cluster.claim(*names, storage_class=storage_class)
        cluster.wait_bound(*names)
        took = time.monotonic() - began
        yield f"{len(names)} claims Bound within {took:.0f} s, {len(names) / took:.1f} a second"
        yield from refusals(metrics.calls())
        took = cluster.delete(*names)
        yield f"deleted within {took:.0f} s"
        yield from refusals(metrics.calls())
    yield from delays(account, check.run)


def refusals(calls):
    refused = [one for one in calls if one["outcome"] != "ok" and one["count"]]
    for one in refused:
        yield f"  {one['operation']}: {one['count']} × {one['outcome']}"
    total = sum(one["count"] for one in calls)
    yield f"  {total} calls to the store so far, {sum(one['count'] for one in refused)} of them refused"


def delays(account, run):
    """How long new keys are refused, and reads do not show what was written."""
    user, bucket = f"{run}-delays", f"{run}-delays"
    account.iam.create_user(UserName=user, Path=PATH)
    shown = until(lambda: attempt(account.iam.get_user, UserName=user) == "ok", 60)
    policy = {"Effect": "Allow", "Action": "s3:ListBucket", "Resource": "*"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [policy]})
    account.iam.put_user_policy(UserName=user, PolicyName="list", PolicyDocument=document)
    account.create_bucket(bucket)
    seconds = []
    for _ in range(20):
        made = account.iam.create_access_key(UserName=user)["AccessKey"]
        listed = until(lambda: made["AccessKeyId"] in account.keys(user), 60)
        s3 = Account(account.region, (made["AccessKeyId"], made["SecretAccessKey"])).s3
        seconds.append(until(lambda: attempt(s3.list_objects_v2, Bucket=bucket) == "ok", 120))
        account.iam.delete_access_key(UserName=user, AccessKeyId=made["AccessKeyId"])
    yield f"new keys work after {statistics.median(seconds):.1f} s (p50), {max(seconds):.1f} s (longest of {len(seconds)})"
    tags = [{"Key": "a", "Value": "b"}]
    account.s3.put_bucket_tagging(Bucket=bucket, Tagging={"TagSet": tags})
    tagged = until(lambda: attempt(account.s3.get_bucket_tagging, Bucket=bucket) == "ok", 60)
    yield f"GetUser shows a user after {shown:.1f} s, ListAccessKeys a key after {listed:.1f} s, GetBucketTagging tags after {tagged:.1f} s"


def early_deletion(check):
    """Claims deleted soon after they were made leave nothing"""
    account, cluster = check.account, check.cluster
    names = [f"early-{number}" for number in range(check.options.early)]
    storage_class = cluster.storage_class("early")
    with cluster.operator("early"):
        cluster.claim(*names, storage_class=storage_class)
        began = time.monotonic()
        for at, name in sorted((random.uniform(0, check.options.spread), name) for name in names):
            time.sleep(max(0, began + at - time.monotonic()))
            cluster.delete(name, wait=False)
        cluster.wait("they are deleted", lambda: not any(map(cluster.has, names)))
    orphans = json.loads(
        cluster.command("orphans", "--provisioner-name", cluster.provisioner, "--output", "json") or "null"
    )
    yield f"{len(names)} claims, deleted within {check.options.spread} s"
    left = account.buckets(f"{check.run}-early") + account.users("early-")
    expect(not left, f"left in the account: {', '.join(left)}")
    yield f"orphans: {json.dumps(orphans)[:400]}"


def guardrails(check):
    """What guardrails of an organization refuse, and what the claim reports"""
    allow = {"Effect": "Allow", "Action": ["s3:*", "iam:*"], "Resource": "*"}
    create = {"Effect": "Deny", "Action": "s3:CreateBucket", "Resource": "*"}
    other = {"s3:x-amz-object-ownership": "BucketOwnerEnforced"}
    rules = {
        "no-users": {"Effect": "Deny", "Action": "iam:CreateUser", "Resource": "*"},
        "no-keys": {"Effect": "Deny", "Action": "iam:CreateAccessKey", "Resource": "*"},
        "ownership": create | {"Condition": {"StringNotEquals": other}},
        "cost-center": create | {"Condition": {"Null": {"aws:RequestTag/CostCenter": "true"}}},
    }
    with check.cluster.operator("guardrails"):
        for name, rule in rules.items():
            policy = {"Version": "2012-10-17", "Statement": [allow, rule]}
            key = check.account.user_with_policy(f"{check.run}-{name}", policy)
            yield f"{name}: {reported(check, name, key)}"
        # Like a boundary of the operator's role that forgets an action.
        limit = {"Version": "2012-10-17", "Statement": [allow, create | {"Action": "s3:TagResource"}]}
        limit = check.account.iam.create_policy(PolicyName=f"{check.run}-limit", PolicyDocument=json.dumps(limit))
        policy = {"Version": "2012-10-17", "Statement": [allow]}
        key = check.account.user_with_policy(f"{check.run}-limited", policy, limit["Policy"]["Arn"])
        yield f"a boundary without s3:TagResource: {reported(check, 'limited', key)}"


def reported(check, name, key):
    check.cluster.claim(name, storage_class=check.cluster.storage_class(name, owner=key))
    reason, message = check.cluster.wait_reported(name)
    check.cluster.delete(name)
    return f"{reason}: {message}" if reason != "Bound" else "Bound, nothing was refused"


def kms(check):
    """A brownfield bucket with a customer managed key"""
    key = needed(check.options.kms_key, "--kms-key ARN")
    account, bucket = check.account, f"{check.run}-kms"
    account.create_bucket(bucket)
    rule = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": key}}
    account.s3.put_bucket_encryption(Bucket=bucket, ServerSideEncryptionConfiguration={"Rules": [rule]})
    with check.cluster.operator("kms"):
        took = check.bound("kms", bucketName=bucket)
        yield f"Bound after {took:.1f} s"
        _, s3 = check.app("kms")
        yield f"PutObject of the app, as the policy of the KMS key decides: {attempt(s3.put_object, Bucket=bucket, Key='a', Body=b'a')}"
        check.cluster.delete("kms")


def endpoints(check):
    """STS and IAM at endpoints of their own"""
    sts, iam = check.options.sts_endpoint, check.options.iam_endpoint
    needed(sts or iam, "--sts-endpoint URL or --iam-endpoint URL")
    environment = {"AWS_ENDPOINT_URL_STS": sts} if sts else {}
    with check.cluster.operator("endpoints", environment):
        took = check.bound("endpoints", **({"iamEndpoint": iam} if iam else {}))
        yield f"Bound after {took:.1f} s, STS at {sts or 'its usual endpoint'}, IAM at {iam or 'its usual endpoint'}"
        check.cluster.delete("endpoints")


def foreign_tags(check):
    """A bucket with ABAC, and one with tags of CloudFormation"""
    account, cluster, imported = check.account, check.cluster, check.options.imported_bucket
    with cluster.operator("tags", arguments=["--resync", "5s"]) as metrics:
        check.bound("abac")
        bucket, _ = check.app("abac")
        code = attempt(account.s3.put_bucket_abac, Bucket=bucket, AbacStatus={"Status": "Enabled"})
        yield f"PutBucketAbac: {code}"
        tags = {"TagSet": account.s3.get_bucket_tagging(Bucket=bucket)["TagSet"]}
        yield f"PutBucketTagging after it: {attempt(account.s3.put_bucket_tagging, Bucket=bucket, Tagging=tags)}"
        checks = metrics.checks()
        # The one that runs now may have begun before.
        cluster.wait("two checks have ended", lambda: metrics.checks() >= checks + 2)
        expect(cluster.ready("abac")[0] == "True", f"the claim reports {cluster.ready('abac')}")
        cluster.delete("abac")
        expect(bucket not in account.buckets(bucket), f"bucket {bucket} is not deleted")
        yield "deleted with its bucket"
        if not imported:
            yield "tags of CloudFormation: skipped, needs --imported-bucket NAME"
            return
        before = account.s3.get_bucket_tagging(Bucket=imported)["TagSet"]
        check.bound("imported", bucketName=imported)
        cluster.delete("imported")
        after = account.s3.get_bucket_tagging(Bucket=imported)["TagSet"]
        expect(before == after, f"the tags of {imported} were {before} and are {after}")
        yield f"{imported}: Bound, deleted, its {len(after)} tags are as they were"


def by_hand(check):
    """What people change by hand, during upkeep"""
    account, cluster, run = check.account, check.cluster, check.run
    with cluster.operator("by-hand", arguments=["--resync", "5s"]):
        for name in ["inactive", "lost-user", "other-tags"]:
            check.bound(name)
        key, lost = cluster.outputs("inactive")[1], cluster.outputs("lost-user")[1]
        user = account.users(f"{run}-inactive")[0]
        account.iam.update_access_key(UserName=user, AccessKeyId=key[0], Status="Inactive")
        account.remove_user(account.users(f"{run}-lost-user")[0])
        bucket, _ = check.app("other-tags")
        before = {tag["Key"] for tag in account.s3.get_bucket_tagging(Bucket=bucket)["TagSet"]}
        account.s3.put_bucket_tagging(Bucket=bucket, Tagging={"TagSet": [{"Key": "team", "Value": "other"}]})
        reason, message = cluster.wait_reported("inactive", but="Bound")
        expect(reason == "KeysInactive", f"a key was set Inactive, the claim reports {reason}: {message}")
        yield f"key set Inactive: the claim reports {reason}: {message}"
        took = cluster.wait("the user is back", lambda: cluster.outputs("lost-user")[1] != lost, "lost-user")
        yield f"user deleted: another one, with other keys, after {took:.1f} s"
        ours = lambda: {tag["Key"] for tag in account.s3.get_bucket_tagging(Bucket=bucket)["TagSet"]}
        took = cluster.wait("the tags are back", lambda: ours() >= before | {"team"}, "other-tags")
        yield f"tags replaced: they are back after {took:.1f} s, beside the other one"
        cluster.delete("inactive", "lost-user", "other-tags", wait=False)
        cluster.wait("they are deleted", lambda: not any(map(cluster.has, ["inactive", "lost-user", "other-tags"])))


def emptying(check):
    """Deletion of a bucket with many versions, logs into itself, an access point and Object Lock"""
    account, cluster, run = check.account, check.cluster, check.run
    with cluster.operator("emptying"):
        check.bound("full")
        bucket, s3 = check.app("full")
        account.s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
        logs = {"LoggingEnabled": {"TargetBucket": bucket, "TargetPrefix": "logs/"}}
        yield f"PutBucketLogging: {attempt(account.s3.put_bucket_logging, Bucket=bucket, BucketLoggingStatus=logs)}"
        with ThreadPoolExecutor(16) as pool:
            put = lambda number: s3.put_object(Bucket=bucket, Key=f"k{number % 100}", Body=b"")
            list(pool.map(put, range(check.options.versions)))
        began = time.monotonic()
        cluster.delete("full")
        yield f"{check.options.versions} versions and their bucket are deleted within {time.monotonic() - began:.1f} s"

        check.bound("point")
        bucket, _ = check.app("point")
        control = account.client("s3control")
        code = attempt(control.create_access_point, AccountId=check.account_id, Name=f"{run}-point", Bucket=bucket)
        yield f"CreateAccessPoint: {code}"
        if code == "ok":
            cluster.delete("point", wait=False)
            reason, message = cluster.wait_reported("point", but="Bound")
            yield f"with an access point, the deleted claim reports {reason}: {message}"
            control.delete_access_point(AccountId=check.account_id, Name=f"{run}-point")
            cluster.retry("point")
        else:
            cluster.delete("point", wait=False)
        cluster.wait("the claim is deleted", lambda: not cluster.has("point"))
        yield from locked(check)


def locked(check):
    account, cluster = check.account, check.cluster
    check.bound("locked")
    bucket, s3 = check.app("locked")
    account.s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    rule = {"DefaultRetention": {"Mode": "GOVERNANCE", "Days": 1}}
    lock = {"ObjectLockEnabled": "Enabled", "Rule": rule}
    code = attempt(account.s3.put_object_lock_configuration, Bucket=bucket, ObjectLockConfiguration=lock)
    yield f"PutObjectLockConfiguration: {code}"
    if code == "ok":
        s3.put_object(Bucket=bucket, Key="a", Body=b"", ChecksumAlgorithm="SHA256")
        cluster.delete("locked", wait=False)
        reason, message = cluster.wait_reported("locked", but="Bound")
        expect(reason == "ObjectsNotDeleted", f"the deleted claim reports {reason}: {message}")
        yield f"with an object under lock, the deleted claim reports {reason}: {message}"
        version = account.s3.list_object_versions(Bucket=bucket)["Versions"][0]
        which = {"Key": version["Key"], "VersionId": version["VersionId"]}
        account.s3.delete_object(Bucket=bucket, BypassGovernanceRetention=True, **which)
        cluster.retry("locked")
    else:
        cluster.delete("locked", wait=False)
    cluster.wait("the claim is deleted", lambda: not cluster.has("locked"))


def listings(check):
    """orphans and doctor in an account with many buckets"""
    cluster = check.cluster
    yield f"{len(check.account.buckets())} buckets, {len(check.account.users())} users"
    with cluster.operator("listings"):
        check.bound("listed")
        for command in ["orphans", "doctor"]:
            began = time.monotonic()
            lines = cluster.command(command, "--provisioner-name", cluster.provisioner).strip().splitlines()
            yield f"{command}: {time.monotonic() - began:.1f} s; {lines[-1] if lines else 'nothing'}"
        cluster.delete("listed")


def private_acl(check):
    """PutObject with the canned ACL `private`"""
    with check.cluster.operator("acl"):
        check.bound("acl")
        bucket, s3 = check.app("acl")
        for acl in ["private", "public-read"]:
            yield f"{acl}: {attempt(s3.put_object, Bucket=bucket, Key='a', Body=b'', ACL=acl)}"
        put = attempt(s3.put_object, Bucket=bucket, Key="a", Body=b"")
        expect(put == "ok", f"without an ACL: {put}")
        yield "without an ACL: ok"
        check.cluster.delete("acl")


ALL = [
    boundary,
    tags_at_creation,
    burst,
    early_deletion,
    guardrails,
    kms,
    endpoints,
    foreign_tags,
    by_hand,
    emptying,
    listings,
    private_acl,
]
