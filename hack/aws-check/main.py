"""Runs the experiments and prints a report. hack/aws-check.sh explains the options."""

import argparse
import re
import secrets
import signal
import sys
import tempfile
import time

from account import Account, Interruption, code_of
from check import Check, Failed, Skipped
from cluster import Cluster
from experiments import ALL

# A claim's bucket and user end so, what experiments make themselves does not.
OF_A_CLAIM = re.compile(r"-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


def main():
    options = read_options()
    if options.check_options:
        return 0
    account = Account(options.region)
    if options.clean_up:
        return 1 if cleaned_up(account, options.clean_up) else 0
    # Whatever ends the run, the account is cleaned up.
    on_signals(interrupted)
    run = f"check-{secrets.token_hex(4)}"
    folder = tempfile.mkdtemp(prefix=f"{run}-")
    cluster = Cluster(run, options.operator, folder, options.region, options.timeout)
    check = Check(options, account, cluster)
    print(f"# Account {check.account_id} ({check.partition}), {options.region}; logs in {folder}")
    print(f"All names begin with {run}. If this is killed: hack/aws-check.sh --clean-up {run}, with the same account\n")
    counts = {"done": 0, "skipped": 0, "FAILED": 0}
    try:
        cluster.prepare()
        for number, experiment in enumerate(ALL, 1):
            if number in options.only:
                counts[tried(number, experiment, check)] += 1
                Interruption.raise_again()
    finally:
        on_signals(signal.SIG_IGN)
        Interruption.code = None
        failures = tidied(check) + removed_from(cluster)
        counts["FAILED"] += cleaned_up(account, run) + failures
        print(", ".join(f"{count} {how}" for how, count in counts.items()), flush=True)
    return 1 if counts["FAILED"] else 0


def on_signals(handler):
    for number in [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]:
        signal.signal(number, handler)


def interrupted(number, _):
    # A second one would end what the first has begun: the operator is stopped, the account cleaned up.
    on_signals(signal.SIG_IGN)
    Interruption.code = 128 + number
    print("interrupted; cleaning up", flush=True)
    Interruption.raise_again()


def tried(number, experiment, check):
    """How an experiment ended."""
    began = time.monotonic()
    print(f"{number}. {experiment.__doc__}", flush=True)
    ended = "done"
    try:
        for line in experiment(check):
            print(f"   - {line}", flush=True)
    except Skipped as skipped:
        ended = "skipped"
        print(f"   - {skipped}", flush=True)
    except Exception as error:  # Whatever it is, the next experiment is tried.
        ended = "FAILED"
        what = str(error) if isinstance(error, (Failed, TimeoutError)) else f"{code_of(error)}: {error}"
        print(f"   - {what}", flush=True)
    if tidied(check):
        ended = "FAILED"
    print(f"   {ended}, {time.monotonic() - began:.0f} s\n", flush=True)
    return ended


def tidied(check):
    """Deletes the claims and classes of an experiment, and what it has made in the account. How much of it failed."""
    failures = 0
    try:
        check.cluster.clear()
    except Exception as error:
        failures += 1
        print(f"   - the operator has not deleted the claims of namespace {check.run}: {error}", flush=True)
    account, prefix = check.account, f"{check.run}-"
    of_claims = lambda: [name for name in account.buckets(prefix) + account.users(prefix) if OF_A_CLAIM.search(name)]
    began = time.monotonic()
    # Listings show for some time what was deleted.
    while (left := of_claims()) and time.monotonic() - began < 60:
        time.sleep(1)
    if left:
        failures += 1
        print(f"   - the operator has left in the account: {', '.join(left)}", flush=True)
    _, not_removed = account.remove(prefix)
    for what, code in not_removed.items():
        print(f"   - {what} was not removed: {code}", flush=True)
    if failures:
        try:
            check.cluster.abandon()
        except Exception as error:
            print(f"   - claims still exist in namespace {check.run}: {error}", flush=True)
    return failures + len(not_removed)


def removed_from(cluster):
    """Removes what the run has in the cluster. How much of it failed."""
    try:
        cluster.remove()
    except Exception as error:
        print(f"namespace {cluster.run} still exists: {error}", flush=True)
        return 1
    return 0


def cleaned_up(account, run):
    """Removes what is left of a run in the account. How much of it failed."""
    removed, left = account.remove(f"{run}-")
    if removed:
        print(f"removed from the account: {', '.join(removed)}")
    for what, code in left.items():
        print(f"{what} was not removed: {code}")
    return len(left)


def read_options():
    parser = argparse.ArgumentParser(prog="hack/aws-check.sh")
    parser.add_argument("--operator")
    parser.add_argument("--region", required=True)
    parser.add_argument("--regions", default="")
    parser.add_argument("--claims", type=int, default=200)
    parser.add_argument("--early", type=int, default=100)
    parser.add_argument("--within", type=float, default=60)
    parser.add_argument("--versions", type=int, default=10_000)
    parser.add_argument("--timeout", type=float, default=600)
    parser.add_argument("--kms-key")
    parser.add_argument("--imported-bucket")
    parser.add_argument("--sts-endpoint")
    parser.add_argument("--iam-endpoint")
    parser.add_argument("--clean-up", type=name_of_a_run)
    parser.add_argument("--only", type=numbers, default=numbers(f"1-{len(ALL)}"))
    # Whether they are valid, before anything that takes hours.
    parser.add_argument("--check-options", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def name_of_a_run(text):
    if not re.fullmatch(r"(check|t)-[0-9a-f]{8}", text):
        raise argparse.ArgumentTypeError(f"{text} is not the name of a run, such as check-0123abcd")
    return text


def numbers(text):
    found = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    if not set(found) <= set(range(1, len(ALL) + 1)):
        raise argparse.ArgumentTypeError(f"experiments have the numbers 1 to {len(ALL)}")
    return found


sys.exit(main())
