"""The AWS account that is checked, past the operator."""

import json
import sys
import time
from datetime import UTC, datetime, timedelta

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

PATH = "/aws-s3-provisioner/"


class Interruption:
    """Whether a signal has ended the run. What its handler raises can get lost: Python ignores it in a destructor."""

    code = None

    @classmethod
    def raise_again(cls):
        if cls.code is not None:
            sys.exit(cls.code)


def code_of(error):
    """AWS's code of a refusal; what prevents a call counts as well."""
    if isinstance(error, ClientError):
        return error.response["Error"].get("Code") or str(error.response["ResponseMetadata"].get("HTTPStatusCode"))
    return type(error).__name__


def attempt(call, **arguments):
    """The code of a call's answer: `ok`, or that of the refusal."""
    try:
        call(**arguments)
    except (ClientError, BotoCoreError) as error:
        return code_of(error)
    return "ok"


def is_gone(code):
    """Whether the code means that something does not exist. Listings show for some time what was deleted."""
    return code in {"NoSuchBucket", "NoSuchEntity", "NoSuchAccessPoint", "404"}


class Account:
    """Clients of an account with these keys, or with those of the environment."""

    def __init__(self, region, key=None):
        keys = {"aws_access_key_id": key[0], "aws_secret_access_key": key[1]} if key else {}
        self.region = region
        self.session = boto3.Session(region_name=region, **keys)
        # Throttled calls and errors of servers are retried, refusals are not. The host of an emulator has no subdomains
        # for buckets.
        self.config = Config(
            retries={"total_max_attempts": 10, "mode": "standard"},
            connect_timeout=10,
            s3={"addressing_style": "auto"},
        )
        self.s3 = self.client("s3")
        self.iam = self.client("iam")
        self.sts = self.client("sts")

    def client(self, service, region=None):
        return self.session.client(service, region_name=region or self.region, config=self.config)

    def id(self):
        return self.sts.get_caller_identity()["Account"]

    def partition(self):
        return self.sts.get_caller_identity()["Arn"].split(":")[1]

    def buckets(self, prefix=""):
        """The names of all buckets that begin so."""
        names, token = [], {}
        while True:
            # An emulator lists all of them.
            page = self.s3.list_buckets(MaxBuckets=1000, **token, **({"Prefix": prefix} if prefix else {}))
            names += [bucket["Name"] for bucket in page.get("Buckets", []) if bucket["Name"].startswith(prefix)]
            if not page.get("ContinuationToken"):
                return names
            token = {"ContinuationToken": page["ContinuationToken"]}

    def users(self, prefix=""):
        """The names of all users that begin so."""
        pages = self.iam.get_paginator("list_users").paginate()
        return [user["UserName"] for page in pages for user in page["Users"] if user["UserName"].startswith(prefix)]

    def policies(self, prefix):
        """The ARNs of all policies whose names begin so."""
        pages = self.iam.get_paginator("list_policies").paginate(Scope="Local")
        found = [policy for page in pages for policy in page["Policies"]]
        return [policy["Arn"] for policy in found if policy["PolicyName"].startswith(prefix)]

    def keys(self, user):
        keys = self.iam.list_access_keys(UserName=user)["AccessKeyMetadata"]
        return sorted(key["AccessKeyId"] for key in keys)

    def tags(self, bucket):
        """The tags of a bucket."""
        tags = self.s3.get_bucket_tagging(Bucket=bucket)["TagSet"]
        return {tag["Key"]: tag["Value"] for tag in tags}

    def create_bucket(self, name, region=None, **more):
        region = region or self.region
        place = {} if region == "us-east-1" else {"LocationConstraint": region}
        place |= more
        arguments = {"CreateBucketConfiguration": place} if place else {}
        self.client("s3", region).create_bucket(Bucket=name, **arguments)

    def user_with_policy(self, name, policy, boundary=None):
        """A user with a policy, outside of the path of the operator's users; its keys, when AWS accepts them and knows
        the policy, which has to allow ListUsers and ListBuckets. Inline policies of a user are too short."""
        document = json.dumps(policy, separators=(",", ":"))
        arn = self.iam.create_policy(PolicyName=name, PolicyDocument=document)["Policy"]["Arn"]
        limits = {"PermissionsBoundary": boundary} if boundary else {}
        self.iam.create_user(UserName=name, **limits)
        until(lambda: attempt(self.iam.attach_user_policy, UserName=name, PolicyArn=arn) == "ok", 120)
        key = self.iam.create_access_key(UserName=name)["AccessKey"]
        key = (key["AccessKeyId"], key["SecretAccessKey"])
        account = Account(self.region, key)
        # An account with a raised quota lists buckets only in pages.
        page = lambda: account.s3.list_buckets(MaxBuckets=1)
        # All of AWS has to know them, so once is not enough.
        for _ in range(5):
            for call in [account.sts.get_caller_identity, account.iam.list_users, page]:
                until(lambda call=call: attempt(call) == "ok", 120)
        return key

    def lock(self, bucket, key):
        """Writes an object that nobody may delete for a day, except with a permission of its own."""
        until_when = datetime.now(UTC) + timedelta(days=1)
        lock = {"ObjectLockMode": "GOVERNANCE", "ObjectLockRetainUntilDate": until_when}
        self.s3.put_object(Bucket=bucket, Key=key, Body=b"", ChecksumAlgorithm="SHA256", **lock)

    def delete_versions(self, bucket):
        """Deletes all objects with their versions, also those under a lock."""
        for page in self.s3.get_paginator("list_object_versions").paginate(Bucket=bucket):
            found = page.get("Versions", []) + page.get("DeleteMarkers", [])
            objects = [{"Key": version["Key"], "VersionId": version["VersionId"]} for version in found]
            if not objects:
                continue
            delete = {"Objects": objects, "Quiet": True}
            errors = self.s3.delete_objects(Bucket=bucket, Delete=delete).get("Errors", [])
            if errors:
                which = [{"Key": error["Key"], "VersionId": error["VersionId"]} for error in errors]
                delete = {"Objects": which, "Quiet": True}
                self.s3.delete_objects(Bucket=bucket, Delete=delete, BypassGovernanceRetention=True)

    def remove_bucket(self, name):
        self.delete_versions(name)
        for page in self.s3.get_paginator("list_multipart_uploads").paginate(Bucket=name):
            for upload in page.get("Uploads", []):
                self.s3.abort_multipart_upload(Bucket=name, Key=upload["Key"], UploadId=upload["UploadId"])
        code = attempt(self.s3.delete_bucket, Bucket=name)
        if code == "ok" or is_gone(code):
            return
        # Only now: an emulator has no access points, and its host does not exist.
        control = self.client("s3control")
        for point in control.list_access_points(AccountId=self.id(), Bucket=name)["AccessPointList"]:
            control.delete_access_point(AccountId=self.id(), Name=point["Name"])
        self.s3.delete_bucket(Bucket=name)

    def remove_user(self, name):
        iam = self.iam
        for key in self.keys(name):
            iam.delete_access_key(UserName=name, AccessKeyId=key)
        for policy in iam.list_user_policies(UserName=name)["PolicyNames"]:
            iam.delete_user_policy(UserName=name, PolicyName=policy)
        for policy in iam.list_attached_user_policies(UserName=name)["AttachedPolicies"]:
            iam.detach_user_policy(UserName=name, PolicyArn=policy["PolicyArn"])
        iam.delete_user(UserName=name)

    def remove_policy(self, arn):
        self.iam.delete_policy(PolicyArn=arn)

    def remove(self, prefix, patience=300):
        """Removes all whose name begins so, users first, until two listings in a row show nothing. What was removed,
        and what was not, with the reason."""
        removed, began, clean = set(), time.monotonic(), 0
        while clean < 2:
            left = {}
            kinds = [
                ("user", self.users, self.remove_user),
                ("bucket", self.buckets, self.remove_bucket),
                ("policy", self.policies, self.remove_policy),
            ]
            for kind, find, remove in kinds:
                try:
                    names = find(prefix)
                except (ClientError, BotoCoreError) as error:
                    left[f"each {kind}"] = code_of(error)
                    continue
                for name in names:
                    code = attempt(remove, **{"arn" if kind == "policy" else "name": name})
                    if code == "ok":
                        removed.add(f"{kind} {name}")
                    elif not is_gone(code):
                        left[f"{kind} {name}"] = code
            if left and time.monotonic() - began > patience:
                return sorted(removed), left
            clean = 0 if left else clean + 1
            if clean < 2:
                time.sleep(5)
        return sorted(removed), {}


def until(true, patience):
    """The seconds until a condition holds. A check fails if it does not in time."""
    began = time.monotonic()
    while not true():
        Interruption.raise_again()
        if time.monotonic() - began > patience:
            raise TimeoutError(f"not within {patience} s")
        time.sleep(0.2)
    return time.monotonic() - began
