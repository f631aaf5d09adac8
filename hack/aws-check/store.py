"""The commands of hack/conformance.sh for AWS: python store.py inventory|remove|create-bucket|put|list."""

import os
import sys

from account import Account

REGION = os.environ["AWS_REGION"]


def inventory():
    account, part = Account(REGION), os.environ["ID"]
    for bucket in account.buckets(part):
        print("bucket", bucket)
        for item in account.s3.list_objects_v2(Bucket=bucket).get("Contents", []):
            print("object", bucket, item["Key"])
    for user in account.users(part):
        print("user", user)
        for key in account.keys(user):
            print("key", user, key)


def remove():
    account = Account(REGION)
    for line in sys.stdin:
        kind, name, *_ = line.split()
        if kind == "bucket" and name in account.buckets(name):
            account.remove_bucket(name)
        elif kind == "user" and name in account.users(name):
            account.remove_user(name)


def create_bucket():
    account, bucket = Account(REGION), os.environ["BUCKET"]
    account.create_bucket(bucket)
    account.s3.put_object(Bucket=bucket, Key="theirs", Body=b"")


def app():
    return Account(REGION, (os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"])).s3


def put():
    app().put_object(Bucket=os.environ["BUCKET_NAME"], Key=os.environ["OBJECT"], Body=b"")


def list_objects():
    for item in app().list_objects_v2(Bucket=os.environ["BUCKET_NAME"]).get("Contents", []):
        print(item["Key"])


COMMANDS = {"inventory": inventory, "remove": remove, "create-bucket": create_bucket, "put": put, "list": list_objects}
COMMANDS[sys.argv[1]]()
