"""Runs the experiments and prints a report. hack/aws-check.sh explains the options."""

import argparse
import secrets
import sys
import tempfile
import time

from account import Account, code_of
from cluster import Cluster
from experiments import ALL, Check, Differs, Skipped


def main():
    options = read_options()
    account = Account(options.region)
    run = f"check-{secrets.token_hex(4)}"
    folder = tempfile.mkdtemp(prefix=f"{run}-")
    cluster = Cluster(run, options.operator, folder, options.region, options.patience)
    check = Check(options, account, cluster)
    cluster.prepare()
    print(f"# Account {check.account_id} ({check.partition}), {options.region}, names with {run}; logs in {folder}\n")
    differ = 0
    for number, experiment in enumerate(ALL, 1):
        if number in options.only:
            differ += not tried(number, experiment, check)
    try:
        cluster.clear()
    except TimeoutError as error:
        print(f"\nClaims are left in namespace {run}: {error}")
        differ += 1
    left = account.remove(run)
    # Buckets and users of the experiments' own are among them.
    print(f"\nRemoved at the end: {', '.join(left) or 'nothing was left'}")
    print(f"{len(options.only)} experiments, {differ} of them with a difference")
    return 1 if differ else 0


def tried(number, experiment, check):
    """Whether an experiment ended as expected, or was left out."""
    began = time.monotonic()
    title = experiment.__doc__
    print(f"{number}. {title}", flush=True)
    try:
        for line in experiment(check):
            print(f"   - {line}", flush=True)
    except Skipped as skipped:
        print(f"   skipped: {skipped}\n", flush=True)
        return True
    except Exception as error:  # Whatever it is, the next experiment is tried.
        what = str(error) if isinstance(error, (Differs, TimeoutError)) else f"{code_of(error)}: {error}"
        print(f"   DIFFERS: {what}\n", flush=True)
        return False
    print(f"   as expected, {time.monotonic() - began:.0f} s\n", flush=True)
    return True


def read_options():
    parser = argparse.ArgumentParser(prog="hack/aws-check.sh")
    parser.add_argument("--operator", required=True)
    parser.add_argument("--region", required=True)
    parser.add_argument("--regions", required=True)
    parser.add_argument("--claims", type=int, default=200)
    parser.add_argument("--early", type=int, default=100)
    parser.add_argument("--spread", type=float, default=60)
    parser.add_argument("--versions", type=int, default=10_000)
    parser.add_argument("--patience", type=float, default=600)
    parser.add_argument("--kms-key")
    parser.add_argument("--imported-bucket")
    parser.add_argument("--sts-endpoint")
    parser.add_argument("--iam-endpoint")
    numbers = lambda text: [int(number) for number in text.split(",")]
    parser.add_argument("--only", type=numbers, default=list(range(1, len(ALL) + 1)))
    return parser.parse_args()


sys.exit(main())
