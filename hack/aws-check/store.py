"""The commands of hack/conformance.sh for AWS: python store.py inventory|remove|create-bucket|put|list; and all that
has a name as checks of the kit give it: python store.py names."""

import os
import sys

from botocore.exceptions import ClientError

from account import Account, attempt, code_of, is_gone

REGION = os.environ["AWS_REGION"]


def inventory():
    account, prefix = Account(REGION), f"t-{os.environ['ID']}-"
    for bucket in account.buckets(prefix):
        show(lambda: account.s3.list_objects_v2(Bucket=bucket).get("Contents", []), "bucket", bucket, "object", "Key")
    for user in account.users(prefix):
        show(lambda: [{"Id": key} for key in account.keys(user)], "user", user, "key", "Id")


def show(find, kind, name, kind_within, field):
    """What was deleted is listed for some time."""
    try:
        within = find()
    except ClientError as error:
        if is_gone(code_of(error)):
            return
        raise
    print(kind, name)
    for item in within:
        print(kind_within, name, item[field])


def remove():
    account = Account(REGION)
    for line in sys.stdin:
        kind, name, *_ = line.split()
        calls = {"bucket": account.remove_bucket, "user": account.remove_user}
        code = attempt(calls[kind], name=name) if kind in calls else "ok"
        if code != "ok" and not is_gone(code):
            sys.exit(f"{kind} {name} was not removed: {code}")


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


def names():
    account = Account(REGION)
    for name in sorted(account.buckets("t-") + account.users("t-")):
        print(name)


COMMANDS = {
    "inventory": inventory,
    "remove": remove,
    "create-bucket": create_bucket,
    "put": put,
    "list": list_objects,
    "names": names,
}
COMMANDS[sys.argv[1]]()
