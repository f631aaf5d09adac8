"""What all experiments have: options, account, cluster, and names for this run."""

import json
from pathlib import Path

from account import Account, code_of, is_gone, until
from botocore.exceptions import ClientError

DOCS = Path(__file__).parents[2] / "docs"


class Skipped(Exception):
    """It needs something that the options do not name."""


class Failed(Exception):
    """The operator or AWS does not do what this project relies on."""


def expect(holds, otherwise):
    if not holds:
        raise Failed(otherwise)


def needed(value, option):
    if not value:
        raise Skipped(f"needs {option}")
    return value


class Check:
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

    def denied(self, name, owner, action):
        """A claim whose provisioning credentials lack a permission: what it reports, which has to name that."""
        self.cluster.claim(name, storage_class=self.cluster.storage_class(name, owner=owner))
        reason, message = self.cluster.wait_reported(name)
        named = reason == "AccessDenied" and action in message
        expect(named, f"{name}: {reason}, which does not name {action}: {message}")
        return f"{name}: {reason}: {message}"

    def user(self, claim):
        """The user of a claim."""
        found = []
        # Listings do not show at once what is new.
        until(lambda: found.extend(self.account.users(f"{self.run}-{claim}-")) or found, 120)
        return found[0]

    def tags(self, bucket):
        """The tags of a bucket. Reads do not know a bucket at once, and a bucket without tags is an error."""
        try:
            return self.account.tags(bucket)
        except ClientError as error:
            if is_gone(code_of(error)) or code_of(error) == "NoSuchTagSet":
                return {}
            raise

    def app(self, name):
        """The bucket of a claim, and the app's client."""
        config, key = self.cluster.outputs(name)
        return config["BUCKET_NAME"], Account(self.options.region, key).s3
