"""Experiments about claims that are Bound, and their deletion."""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from account import Account, attempt, code_of, until
from botocore.exceptions import BotoCoreError, ClientError
from check import Skipped, expect

# How many PutObject are under way at once.
WRITERS = 16


def foreign_tags(check):
    """A bucket with ABAC, and one with tags of CloudFormation"""
    account, cluster, imported = check.account, check.cluster, check.options.imported_bucket
    with cluster.operator("tags", arguments=["--resync", "5s"]) as operator:
        check.bound("abac")
        bucket, _ = check.app("abac")
        before = check.tags(bucket)
        abac = attempt(account.s3.put_bucket_abac, Bucket=bucket, AbacStatus={"Status": "Enabled"})
        yield f"PutBucketAbac: {abac}"
        if abac == "ok":
            yield from with_abac(check, operator, bucket, before)
        cluster.delete("abac")
        yield "deleted with its bucket"
        if imported:
            before = check.tags(imported)
            check.bound("imported", bucketName=imported)
            cluster.delete("imported")
            after = check.tags(imported)
            expect(before == after, f"the tags of {imported} were {before} and are {after}")
            yield f"{imported}: Bound, deleted, its {len(after)} tags are as they were"
        else:
            yield "tags of CloudFormation: skipped, needs --imported-bucket NAME"
    if abac != "ok":
        raise Skipped(f"ABAC needs an AWS that has it; PutBucketAbac: {abac}")


def with_abac(check, operator, bucket, before):
    account, cluster = check.account, check.cluster
    arn = f"arn:{check.partition}:s3:::{bucket}"
    tags = [{"Key": key, "Value": value} for key, value in before.items()]
    code = attempt(account.s3.put_bucket_tagging, Bucket=bucket, Tagging={"TagSet": tags})
    read = attempt(account.s3.get_bucket_tagging, Bucket=bucket)
    yield f"PutBucketTagging after it: {code}; GetBucketTagging: {read}"
    done, failed = operator.checks("done"), operator.checks("failed", "lost")
    # The one that runs now may have begun before.
    cluster.wait("two checks have ended", lambda: operator.checks("done") >= done + 2, "abac")
    more = operator.checks("failed", "lost") - failed
    expect(not more, f"{more} checks have failed")
    expect(cluster.ready("abac")[0] == "True", f"the claim reports {cluster.ready('abac')}")
    yield "two checks of the bucket have succeeded"
    control, key = account.client("s3control"), "objectbucket.io/claim-name"
    which = {"AccountId": check.account_id, "ResourceArn": arn}
    code = attempt(control.untag_resource, **which, TagKeys=[key])
    yield f"UntagResource of {key}: {code}"
    if code == "ok":
        listed = lambda: {tag["Key"] for tag in control.list_tags_for_resource(**which)["Tags"]}
        took = cluster.wait(f"the tag {key} exists again", lambda: key in listed(), "abac")
        yield f"the tag exists again after {took:.1f} s"


def by_hand(check):
    """What people change by hand in AWS while claims are Bound"""
    account, cluster = check.account, check.cluster
    claims = ["inactive", "lost-user", "other-tags"]
    with cluster.operator("by-hand", arguments=["--resync", "5s"]):
        for name in claims:
            check.bound(name)
        key, lost = cluster.outputs("inactive")[1], cluster.outputs("lost-user")[1]
        account.iam.update_access_key(UserName=check.user("inactive"), AccessKeyId=key[0], Status="Inactive")
        account.remove_user(check.user("lost-user"))
        bucket, _ = check.app("other-tags")
        before = check.tags(bucket)
        other = {"team": "other"}
        account.s3.put_bucket_tagging(Bucket=bucket, Tagging={"TagSet": [{"Key": "team", "Value": "other"}]})
        reason, message = cluster.wait_reported("inactive", but="Bound")
        expect(reason == "KeysInactive", f"a key was set Inactive, the claim reports {reason}: {message}")
        yield f"key set Inactive: the claim reports {reason}: {message}"
        took = cluster.wait("the user exists again", lambda: cluster.outputs("lost-user")[1] != lost, "lost-user")
        yield f"user deleted: the user exists again, with other keys, after {took:.1f} s"
        lost_bucket, s3 = check.app("lost-user")
        took = until(lambda: attempt(s3.put_object, Bucket=lost_bucket, Key="a", Body=b"") == "ok", 120)
        yield f"its keys can write after another {took:.1f} s"
        complete = lambda: before.items() | other.items() <= check.tags(bucket).items()
        took = cluster.wait("the tags exist again", complete, "other-tags")
        yield f"tags replaced: they exist again after {took:.1f} s, with the other one"
        cluster.delete(*claims)


def emptying(check):
    """Deletion of a bucket with many versions, an access point, Object Lock, server access logs in the same bucket"""
    with check.cluster.operator("emptying"):
        yield from many_versions(check)
        yield from access_point(check)
        yield from locked(check)


def many_versions(check):
    account, cluster, count = check.account, check.cluster, check.options.versions
    check.bound("full")
    bucket, s3 = check.app("full")
    account.s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    yield from logs_of_itself(check, bucket)
    write(s3, bucket, count)
    pages = account.s3.get_paginator("list_object_versions").paginate(Bucket=bucket, Prefix="k")
    found = sum(len(page.get("Versions", [])) for page in pages)
    expect(found == count, f"{found} versions were written, not {count}")
    took = cluster.delete("full")
    yield f"{count} versions and their bucket are deleted within {took:.1f} s"


def logs_of_itself(check, bucket):
    s3 = check.account.s3
    logging = {
        "Effect": "Allow",
        "Principal": {"Service": "logging.s3.amazonaws.com"},
        "Action": "s3:PutObject",
        "Resource": f"arn:{check.partition}:s3:::{bucket}/logs/*",
        "Condition": {"StringEquals": {"aws:SourceAccount": check.account_id}},
    }
    policy = json.dumps({"Version": "2012-10-17", "Statement": [logging]})
    yield f"PutBucketPolicy for logs: {attempt(s3.put_bucket_policy, Bucket=bucket, Policy=policy)}"
    logs = {"LoggingEnabled": {"TargetBucket": bucket, "TargetPrefix": "logs/"}}
    yield f"PutBucketLogging into itself: {attempt(s3.put_bucket_logging, Bucket=bucket, BucketLoggingStatus=logs)}"


def write(s3, bucket, count):
    """Writes so many versions."""
    stop = threading.Event()

    def share(first):
        for number in range(first, count, WRITERS):
            if stop.is_set():
                return
            s3.put_object(Bucket=bucket, Key=f"k{number % 100}", Body=b"")

    with ThreadPoolExecutor(WRITERS) as pool:
        try:
            for done in [pool.submit(share, first) for first in range(WRITERS)]:
                done.result()
        finally:
            # If one fails, or the run ends, the others need not go on.
            stop.set()


def access_point(check):
    account, cluster, name = check.account, check.cluster, f"{check.run}-point"
    check.bound("point")
    bucket, _ = check.app("point")
    control = account.client("s3control")
    code = attempt(control.create_access_point, AccountId=check.account_id, Name=name, Bucket=bucket)
    if code != "ok":
        yield f"CreateAccessPoint is refused, so nothing is shown with one: {code}"
        cluster.delete("point")
        return
    try:
        cluster.delete("point", wait=False)
        reason, message = cluster.wait_reported("point", but="Bound")
        expect(reason == "BucketHasAccessPoints", f"the deleted claim reports {reason}: {message}")
        yield f"with an access point, the deleted claim reports {reason}: {message}"
    finally:
        control.delete_access_point(AccountId=check.account_id, Name=name)
    cluster.retry("point")
    cluster.wait_deleted("point")


def locked(check):
    account, cluster = check.account, check.cluster
    check.bound("locked")
    bucket, s3 = check.app("locked")
    account.s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    lock = {"ObjectLockEnabled": "Enabled"}
    try:
        account.s3.put_object_lock_configuration(Bucket=bucket, ObjectLockConfiguration=lock)
        account.lock(bucket, "a")
    except (ClientError, BotoCoreError) as error:
        yield f"Object Lock is refused, so nothing is shown with it: {code_of(error)}"
        account.delete_versions(bucket)
        cluster.delete("locked")
        return
    try:
        s3.put_object(Bucket=bucket, Key="z", Body=b"")
        cluster.delete("locked", wait=False)
        reason, message = cluster.wait_reported("locked", but="Bound")
        # The shipped policies let the operator read locks only where classes have settings.
        expect(reason in ("ObjectsNotDeleted", "ObjectsLocked"), f"the deleted claim reports {reason}: {message}")
        yield f"with an object under lock, the deleted claim reports {reason}: {message}"
        left = lambda: [one["Key"] for one in account.s3.list_object_versions(Bucket=bucket).get("Versions", [])]
        expect(left() == ["a"], f"the objects left are {left()}")
        yield "only the object under lock is left"
    finally:
        account.delete_versions(bucket)
    cluster.retry("locked")
    cluster.wait_deleted("locked")


def listings(check):
    """orphans and doctor in an account with many buckets"""
    cluster = check.cluster
    yield f"{len(check.account.buckets())} buckets, {len(check.account.users())} users"
    with cluster.operator("listings"):
        check.bound("listed")
        arguments = ["--provisioner-name", cluster.provisioner, "--namespace", check.run]
        for command in ["orphans", "doctor"]:
            began = time.monotonic()
            code, printed, errors = cluster.command(command, *arguments)
            took, lines = time.monotonic() - began, printed.strip().splitlines()
            expect(lines and (command == "doctor" or code == 0), f"{command}, exit code {code}: {printed} {errors}")
            yield f"{command}: {took:.1f} s, exit code {code}; {lines[-1]}"
            yield from (f"  {line.strip()}" for line in lines if "✗" in line and line is not lines[-1])
        cluster.delete("listed")


def private_acl(check):
    """PutObject with the canned ACL `private`"""
    with check.cluster.operator("acl"):
        check.bound("acl")
        bucket, s3 = check.app("acl")
        put = lambda **acl: attempt(s3.put_object, Bucket=bucket, Key="a", Body=b"", **acl)
        yield f"private: {put(ACL='private')}"
        public = put(ACL="public-read")
        expect(public != "ok", "public-read is accepted")
        yield f"public-read: {public}"
        plain = put()
        expect(plain == "ok", f"without an ACL: {plain}")
        yield "without an ACL: ok"
        check.cluster.delete("acl")
