"""Experiments about what is created: permissions, tags, rates, delays, keys, endpoints."""

import json
import random
import statistics
import time

from account import PATH, Account, attempt, until
from check import expect, needed


def boundary(check):
    """CreateUser with a permissions boundary, under the provisioning policy that requires one"""
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
        owner = Account(check.options.region, key)
        code = attempt(owner.iam.delete_user_permissions_boundary, UserName=check.user("boundary"))
        expect(code == "AccessDenied", f"DeleteUserPermissionsBoundary with the same keys: {code}")
        yield "the same keys cannot remove the boundary"
        code, printed, errors = cluster.command("doctor", "--provisioner-name", cluster.provisioner, "--namespace", run)
        expect(code == 0, f"doctor, exit code {code}: {printed} {errors}")
        yield f"doctor: {printed.strip().splitlines()[-1]}"
        yield check.denied("no-boundary", key, action="CreateUser")
        cluster.delete("boundary", "no-boundary")


def tags_at_creation(check):
    """CreateBucket with tags, in each region"""
    account, cluster = check.account, check.cluster
    tags = lambda value: {"Tags": [{"Key": "team", "Value": value}]}
    regions = list(dict.fromkeys(check.options.regions.split(",")))
    with cluster.operator("tags"):
        for region in regions:
            bucket = f"{check.run}-tags-{region}"
            yield f"{region}: {attempt(account.create_bucket, name=bucket, region=region, **tags('a'))}"
            name = f"tags-{region}"
            took = check.bound(name, region=region)
            uid, bucket = cluster.get(name)["metadata"]["uid"], check.app(name)[0]
            there = lambda uid=uid, bucket=bucket: check.tags(bucket).get("objectbucket.io/claim-uid") == uid
            until(there, check.options.timeout)
            yield f"{region}: a claim is Bound after {took:.1f} s, its bucket has {len(check.tags(bucket))} tags"
            cluster.delete(name)
    if "us-east-1" in regions:
        bucket = f"{check.run}-tags-us-east-1"
        again = attempt(account.create_bucket, name=bucket, region="us-east-1", **tags("b"))
        yield f"us-east-1, the same bucket once more, with other tags: {again}; it has {check.tags(bucket)}"


def burst(check):
    """Many claims at once: rates, refusals, how long until new keys work and reads show a change"""
    cluster = check.cluster
    names = [f"burst-{number}" for number in range(check.options.claims)]
    storage_class = cluster.storage_class("burst")
    with cluster.operator("burst") as operator:
        began = time.monotonic()
        cluster.claim(*names, storage_class=storage_class)
        cluster.wait_bound(*names)
        took = time.monotonic() - began
        yield f"{len(names)} claims Bound within {took:.0f} s, {len(names) / took:.1f} a second"
        created, refused = operator.calls(), operator.refusals()
        yield f"calls to AWS: {rates(created, took)}; refused: {listed(refused)}"
        took = cluster.delete(*names)
        yield f"deleted within {took:.0f} s"
        calls, refusals = operator.calls() - created, operator.refusals() - refused
        yield f"calls to AWS: {rates(calls, took)}; refused: {listed(refusals)}"
    yield from delays(check)


def rates(calls, seconds):
    of = lambda service, count: f"{count} of {service}, {count / seconds:.1f} a second"
    return ", ".join(of(service, count) for service, count in sorted(calls.items()))


def listed(refusals):
    return ", ".join(f"{count} × {operation} {code}" for (operation, code), count in refusals.most_common()) or "none"


def delays(check):
    """How long new keys are refused, and reads do not show what was written."""
    account, user, bucket = check.account, f"{check.run}-delays", f"{check.run}-delays"
    iam = account.iam
    iam.create_user(UserName=user, Path=PATH)
    shown = until(lambda: attempt(iam.get_user, UserName=user) == "ok", 60)
    resource = f"arn:{check.partition}:s3:::{bucket}"
    policy = {"Effect": "Allow", "Action": "s3:ListBucket", "Resource": resource}
    document = json.dumps({"Version": "2012-10-17", "Statement": [policy]})
    until(lambda: attempt(iam.put_user_policy, UserName=user, PolicyName="list", PolicyDocument=document) == "ok", 120)
    account.create_bucket(bucket)

    def lists(key):
        # Reads may not know the user yet.
        return attempt(iam.list_access_keys, UserName=user) == "ok" and key in account.keys(user)

    listed_after, works_after = [], []
    for _ in range(20):
        made = iam.create_access_key(UserName=user)["AccessKey"]
        began = time.monotonic()
        s3 = Account(account.region, (made["AccessKeyId"], made["SecretAccessKey"])).s3
        until(lambda s3=s3: attempt(s3.list_objects_v2, Bucket=bucket) == "ok", 120)
        works_after.append(time.monotonic() - began)
        until(lambda key=made["AccessKeyId"]: lists(key), 120)
        listed_after.append(time.monotonic() - began)
        iam.delete_access_key(UserName=user, AccessKeyId=made["AccessKeyId"])
    middle, longest = statistics.median(works_after), max(works_after)
    yield f"new keys work after {middle:.1f} s (median), {longest:.1f} s (longest of {len(works_after)})"
    yield f"ListAccessKeys shows a key within {max(listed_after):.1f} s, GetUser a user after {shown:.1f} s"
    tags = [{"Key": "a", "Value": "b"}]
    account.s3.put_bucket_tagging(Bucket=bucket, Tagging={"TagSet": tags})
    took = until(lambda: attempt(account.s3.get_bucket_tagging, Bucket=bucket) == "ok", 60)
    yield f"GetBucketTagging shows tags after {took:.1f} s"


def early_deletion(check):
    """Claims deleted soon after they were made leave nothing"""
    account, cluster, within = check.account, check.cluster, check.options.within
    names = [f"early-{number}" for number in range(check.options.early)]
    storage_class = cluster.storage_class("early")
    with cluster.operator("early"):
        cluster.claim(*names, storage_class=storage_class)
        began = time.monotonic()
        for at, name in sorted((random.uniform(0, within), name) for name in names):
            time.sleep(max(0, began + at - time.monotonic()))
            cluster.delete(name, wait=False)
        cluster.wait_deleted(*names)
        yield f"{len(names)} claims, deleted within {within:.0f} s"
        prefix, left = f"{check.run}-early-", []

        def is_empty():
            left[:] = account.buckets(prefix) + account.users(prefix)
            return not left

        try:
            took = until(is_empty, 60)
        except TimeoutError:
            expect(False, f"left in the account: {', '.join(left)}")
        yield f"nothing of them is listed in the account after {took:.1f} s"
        arguments = ["--provisioner-name", cluster.provisioner, "--output", "json"]
        code, printed, errors = cluster.command("orphans", *arguments)
        expect(code == 0 and not json.loads(printed)["orphans"], f"orphans, exit code {code}: {printed} {errors}")
        yield "orphans: none"


def guardrails(check):
    """Denies as in guardrails of an organization, and what the claim reports"""
    account, run = check.account, check.run
    allowed = check.document("owner-iam-policy.json")["Statement"]
    create = {"Effect": "Deny", "Action": "s3:CreateBucket", "Resource": "*"}
    enforced = {"s3:x-amz-object-ownership": "BucketOwnerEnforced"}
    rules = {
        "no-users": ("CreateUser", {"Effect": "Deny", "Action": "iam:CreateUser", "Resource": "*"}),
        "no-keys": ("CreateAccessKey", {"Effect": "Deny", "Action": "iam:CreateAccessKey", "Resource": "*"}),
        "ownership": ("CreateBucket", create | {"Condition": {"StringNotEquals": enforced}}),
        "cost-center": ("CreateBucket", create | {"Condition": {"Null": {"aws:RequestTag/CostCenter": "true"}}}),
    }
    policy = lambda *more: {"Version": "2012-10-17", "Statement": [*allowed, *more]}
    with check.cluster.operator("guardrails"):
        for name, (action, rule) in rules.items():
            key = account.user_with_policy(f"{run}-{name}", policy(rule))
            yield check.denied(name, key, action)
        # Like a boundary of the operator's role that forgets an action. The policy of the user decides what it may do.
        all_but_tags = [
            {"Effect": "Allow", "Action": ["s3:*", "iam:*"], "Resource": "*"},
            {"Effect": "Deny", "Action": "s3:TagResource", "Resource": "*"},
        ]
        limit = json.dumps({"Version": "2012-10-17", "Statement": all_but_tags})
        limit = account.iam.create_policy(PolicyName=f"{run}-limit", PolicyDocument=limit)["Policy"]["Arn"]
        key = account.user_with_policy(f"{run}-limited", policy(), limit)
        check.cluster.claim("limited", storage_class=check.cluster.storage_class("limited", owner=key))
        reason, message = check.cluster.wait_reported("limited")
        # An emulator does not evaluate it, so nothing is expected.
        yield f"a boundary without s3:TagResource: {reason}: {message}"
        check.cluster.delete(*rules, "limited")


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
        put = attempt(s3.put_object, Bucket=bucket, Key="a", Body=b"a")
        yield f"PutObject of the app, as the policy of the KMS key decides: {put}"
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
