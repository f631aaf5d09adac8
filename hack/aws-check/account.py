"""The AWS account that is checked, past the operator."""

import json
import time

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

PATH = "/aws-s3-provisioner/"


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


class Account:
    """Clients of an account with these keys, or with those of the environment."""

    def __init__(self, region, key=None):
        keys = {"aws_access_key_id": key[0], "aws_secret_access_key": key[1]} if key else {}
        self.region = region
        self.session = boto3.Session(region_name=region, **keys)
        # Each refusal is to be seen, and an emulator has no names of buckets in its DNS.
        self.config = Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "auto"})
        self.s3 = self.client("s3")
        self.iam = self.client("iam")
        self.sts = self.client("sts")

    def client(self, service, region=None):
        return self.session.client(service, region_name=region or self.region, config=self.config)

    def id(self):
        return self.sts.get_caller_identity()["Account"]

    def partition(self):
        return self.sts.get_caller_identity()["Arn"].split(":")[1]

    def buckets(self, part=""):
        """The names of all buckets that contain this."""
        names, token = [], {}
        while True:
            page = self.s3.list_buckets(MaxBuckets=1000, **token)
            names += [bucket["Name"] for bucket in page.get("Buckets", []) if part in bucket["Name"]]
            if not page.get("ContinuationToken"):
                return names
            token = {"ContinuationToken": page["ContinuationToken"]}

    def users(self, part=""):
        """The names of all users that contain this."""
        pages = self.iam.get_paginator("list_users").paginate()
        return [user["UserName"] for page in pages for user in page["Users"] if part in user["UserName"]]

    def policies(self, part):
        pages = self.iam.get_paginator("list_policies").paginate(Scope="Local")
        return [policy["Arn"] for page in pages for policy in page["Policies"] if part in policy["PolicyName"]]

    def keys(self, user):
        keys = self.iam.list_access_keys(UserName=user)["AccessKeyMetadata"]
        return sorted(key["AccessKeyId"] for key in keys)

    def create_bucket(self, name, region=None, **more):
        region = region or self.region
        place = {} if region == "us-east-1" else {"LocationConstraint": region}
        place |= more
        arguments = {"CreateBucketConfiguration": place} if place else {}
        self.client("s3", region).create_bucket(Bucket=name, **arguments)

    def user_with_policy(self, name, policy, boundary=None):
        """A user with an inline policy, outside of the path of the operator's; its keys, when AWS accepts them."""
        limits = {"PermissionsBoundary": boundary} if boundary else {}
        self.iam.create_user(UserName=name, **limits)
        self.iam.put_user_policy(UserName=name, PolicyName="check", PolicyDocument=json.dumps(policy))
        key = self.iam.create_access_key(UserName=name)["AccessKey"]
        key = (key["AccessKeyId"], key["SecretAccessKey"])
        account = Account(self.region, key)
        # All of AWS has to know them, so once is not enough.
        for _ in range(3):
            until(lambda: attempt(account.sts.get_caller_identity) == "ok", 120)
        return key

    def remove_bucket(self, name):
        s3 = self.s3
        for page in s3.get_paginator("list_object_versions").paginate(Bucket=name):
            for version in page.get("Versions", []) + page.get("DeleteMarkers", []):
                which = {"Bucket": name, "Key": version["Key"], "VersionId": version["VersionId"]}
                if attempt(s3.delete_object, **which) != "ok":
                    s3.delete_object(**which, BypassGovernanceRetention=True)
        for upload in s3.list_multipart_uploads(Bucket=name).get("Uploads", []):
            s3.abort_multipart_upload(Bucket=name, Key=upload["Key"], UploadId=upload["UploadId"])
        s3.delete_bucket(Bucket=name)

    def remove_user(self, name):
        iam = self.iam
        for key in self.keys(name):
            iam.delete_access_key(UserName=name, AccessKeyId=key)
        for policy in iam.list_user_policies(UserName=name)["PolicyNames"]:
            iam.delete_user_policy(UserName=name, PolicyName=policy)
        for policy in iam.list_attached_user_policies(UserName=name)["AttachedPolicies"]:
            iam.detach_user_policy(UserName=name, PolicyArn=policy["PolicyArn"])
        iam.delete_user(UserName=name)

    def remove(self, part):
        """Removes all that has this in its name, and returns the names."""
        found = {"bucket": self.buckets(part), "user": self.users(part), "policy": self.policies(part)}
        for bucket in found["bucket"]:
            self.remove_bucket(bucket)
        for user in found["user"]:
            self.remove_user(user)
        for policy in found["policy"]:
            self.iam.delete_policy(PolicyArn=policy)
        return [f"{kind} {name}" for kind, names in found.items() for name in names]


def until(true, patience):
    """The seconds until a condition holds. A check fails if it does not in time."""
    began = time.monotonic()
    while not true():
        if time.monotonic() - began > patience:
            raise TimeoutError(f"not within {patience} s")
        time.sleep(0.2)
    return time.monotonic() - began
