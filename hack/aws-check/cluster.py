"""The cluster and the operator in it: all of it has the id of one run in its name."""

import json
import os
import re
import signal
import socket
import subprocess
import time
import urllib.request
from collections import Counter
from contextlib import contextmanager

from account import Interruption

# For how many seconds the operator repeats the text of its metrics.
REPEATED = 2

CRDS = ["objectbucketclaims.objectbucket.io", "objectbuckets.objectbucket.io"]

# The reasons whose remedy is to wait, in docs/reasons.md; None: not reported.
PASSING = {
    None,
    "Pending",
    "Provisioning",
    "WaitingForCredentials",
    "WaitingForStore",
    "Settling",
    "Removing",
    "Purging",
    "Throttled",
    "StoreBusy",
    "StoreFailing",
    "StoreUnreachable",
    "NotVisibleYet",
    "BucketNotFound",
    "TimedOut",
}


class Cluster:
    def __init__(self, run, program, folder, region, timeout):
        self.run, self.program, self.folder = run, program, folder
        self.region, self.timeout = region, timeout
        self.provisioner = f"{run}.example.com/bucket"
        self.starts = 0

    def kubectl(self, *arguments, given=None):
        done = subprocess.run(["kubectl", *arguments], input=given, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"kubectl {' '.join(arguments[:4])}: {done.stderr.strip()}")
        return done.stdout

    def create(self, *objects):
        self.kubectl("create", "-f", "-", given=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    def prepare(self):
        """The CRDs stay: others may use them by then."""
        installed = self.kubectl("get", "crd", "--output", "name")
        if not all(name in installed for name in CRDS):
            _, crds, _ = self.command("crds")
            self.kubectl("apply", "--server-side", "-f", "-", given=crds)
            self.kubectl("wait", "--for", "condition=established", "--timeout", "60s", "crd", *CRDS)
        self.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.run}})

    def clear(self):
        """Deletes all claims, then what they need to be deleted: the classes and their Secrets."""
        if self.claims():
            with self.operator("clear"):
                self.kubectl("delete", "obc", "--all", "--namespace", self.run, "--wait=false")
                self.wait("all claims are deleted", lambda: not self.claims())
        for name in self.classes():
            self.kubectl("delete", "storageclass", name)
            self.kubectl("delete", "secret", name, "--namespace", self.run, "--ignore-not-found")

    def abandon(self):
        """Deletes claims whose buckets and users were removed by somebody else than the operator."""
        records = [name for name in self.kubectl("get", "ob", "--output", "name").split() if f"obc-{self.run}-" in name]
        claims = self.kubectl("get", "obc", "--namespace", self.run, "--output", "name").split()
        for name in claims + records:
            self.kubectl("delete", name, "--namespace", self.run, "--wait=false")
            without = '{"metadata": {"finalizers": null}}'
            self.kubectl("patch", name, "--namespace", self.run, "--type", "merge", "--patch", without)
        self.clear()

    def remove(self):
        self.kubectl("delete", "namespace", self.run, "--ignore-not-found", "--timeout", "120s")

    def classes(self):
        names = self.kubectl("get", "storageclass", "--output", "name").split()
        names = [name.rpartition("/")[2] for name in names]
        return [name for name in names if name.startswith(f"{self.run}-")]

    def storage_class(self, name, owner=None, **parameters):
        """Creates a class; `owner`: the keys in its Secret, instead of the operator's own identity."""
        name = f"{self.run}-{name}"
        parameters = {"region": self.region, **parameters}
        if owner:
            keys = {"AWS_ACCESS_KEY_ID": owner[0], "AWS_SECRET_ACCESS_KEY": owner[1]}
            metadata = {"name": name, "namespace": self.run}
            self.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": keys})
            parameters |= {"secretName": name, "secretNamespace": self.run}
        class_ = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name}}
        self.create(class_ | {"provisioner": self.provisioner, "parameters": parameters})
        return name

    def claim(self, *names, storage_class):
        def claim(name):
            spec = {"generateBucketName": f"{self.run}-{name}"[:26], "storageClassName": storage_class}
            metadata = {"name": name, "namespace": self.run}
            kind = {"apiVersion": "objectbucket.io/v1alpha1", "kind": "ObjectBucketClaim"}
            return kind | {"metadata": metadata, "spec": spec}

        self.create(*(claim(name) for name in names))

    def claims(self):
        return json.loads(self.kubectl("get", "obc", "--namespace", self.run, "--output", "json"))["items"]

    def get(self, name):
        return json.loads(self.kubectl("get", "obc", name, "--namespace", self.run, "--output", "json"))

    def ready(self, name):
        """Status, reason and message of a claim's condition Ready."""
        conditions = self.get(name).get("status", {}).get("conditions", [])
        ready = next((one for one in conditions if one["type"] == "Ready"), {})
        return ready.get("status"), ready.get("reason"), ready.get("message")

    def wait_bound(self, *names):
        def bound():
            is_bound = lambda claim: claim.get("status", {}).get("phase") == "Bound"
            return set(names) <= {claim["metadata"]["name"] for claim in self.claims() if is_bound(claim)}

        return self.wait(f"{', '.join(names[:3])} Bound", bound, names[0])

    def wait_reported(self, name, but=None):
        """Until a claim is Bound, or a problem is reported that has a remedy; its reason and message. `but`: not
        this."""
        reported = []

        def has_reported():
            reported[:] = self.ready(name)[1:]
            return reported[0] not in {*PASSING, but}

        self.wait(f"{name} reported", has_reported, name)
        return reported

    def delete(self, *names, wait=True):
        """The seconds until claims are deleted; without `wait`, until Kubernetes knows that they are to be."""
        began = time.monotonic()
        self.kubectl("delete", "obc", *names, "--namespace", self.run, "--wait=false")
        if wait:
            self.wait_deleted(*names)
        return time.monotonic() - began

    def wait_deleted(self, *names):
        there = lambda: {claim["metadata"]["name"] for claim in self.claims()}
        return self.wait(f"{', '.join(names[:3])} deleted", lambda: not there() & set(names), names[0])

    def outputs(self, name):
        """The ConfigMap's entries, and the keys of the Secret."""
        config = json.loads(self.kubectl("get", "configmap", name, "--namespace", self.run, "--output", "json"))
        template = "{{range $k, $v := .data}}{{$k}}={{$v | base64decode}}\n{{end}}"
        secret = self.kubectl("get", "secret", name, "--namespace", self.run, "--output", f"go-template={template}")
        secret = dict(line.split("=", 1) for line in secret.splitlines())
        return config["data"], (secret["AWS_ACCESS_KEY_ID"], secret["AWS_SECRET_ACCESS_KEY"])

    def retry(self, name):
        """Asks for another attempt at once."""
        now = f"objectbucket.io/retry={time.time()}"
        self.kubectl("annotate", "obc", name, "--namespace", self.run, "--overwrite", now)

    def wait(self, what, true, claim=None):
        """The seconds until it is true."""
        began = time.monotonic()
        while not true():
            Interruption.raise_again()
            if time.monotonic() - began > self.timeout:
                reason = f"; its condition is {self.ready(claim)}" if claim and self.has(claim) else ""
                raise TimeoutError(f"{what}: not within {self.timeout:.0f} s{reason}")
            time.sleep(0.5)
        return time.monotonic() - began

    def has(self, name):
        return any(claim["metadata"]["name"] == name for claim in self.claims())

    def command(self, *arguments):
        """Exit code, standard output and standard error of a command of the program."""
        done = subprocess.run([self.program, *arguments], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    @contextmanager
    def operator(self, name, environment=None, arguments=()):
        """Runs the operator; the value reads its metrics and its log."""
        self.starts += 1
        log = os.path.join(self.folder, f"operator-{self.starts}-{name}.log")
        command = [self.program, "--provisioner-name", self.provisioner, "--namespace", self.run]
        address = free_address()
        command += ["--lease-namespace", self.run, "--admin-address", address, *arguments]
        # For AWS's codes.
        logged = {"RUST_LOG": "info,kube_runtime=warn,aws_s3_provisioner::client::call=debug"}
        environment = os.environ | logged | (environment or {})
        with open(log, "wb") as out:
            # In a session of its own, Ctrl-C does not end it before its claims are deleted.
            process = subprocess.Popen(command, env=environment, stdout=out, stderr=out, start_new_session=True)
        try:
            serving = lambda: "serving claims" in read(log) or process.poll() is not None
            self.wait("the operator serves", serving)
            if process.poll() is not None:
                raise RuntimeError(f"the operator ended: {read(log)[-2000:]}")
            yield Running(address, log)
        finally:
            stop(process)


def stop(process):
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(60)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def free_address():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{listener.getsockname()[1]}"


class Running:
    """What metrics and log of an operator say."""

    def __init__(self, address, log):
        self.address, self.log = address, log
        # A proxy for AWS is none for this machine.
        self.http = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def counters(self, name):
        """The labels of each series, and its value."""
        with self.http.open(f"http://{self.address}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        found = re.findall(rf"^{name}\{{(.*)\}} (\d+)", text, re.MULTILINE)
        return [(dict(re.findall(r'(\w+)="([^"]*)"', labels)), int(value)) for labels, value in found]

    def calls(self):
        """How many calls to AWS were made, by service."""
        time.sleep(REPEATED)
        calls = Counter()
        for labels, count in self.counters("obc_provisioner_store_calls_total"):
            calls[labels["service"]] += count
        return calls

    def checks(self, *results):
        """How many checks of bound claims have ended with one of these results."""
        found = self.counters("obc_provisioner_checks_total")
        return sum(count for labels, count in found if labels["result"] in results)

    def refusals(self):
        """How many calls failed, by operation and AWS's code, without reads of what does not exist."""
        line = r'AWS (?:call failed|refused a call) operation=(\S+) .*?status=(\d+) code="([^"]*)"'
        found = re.findall(line, read(self.log))
        return Counter((operation, code or f"HTTP {status}") for operation, status, code in found if status != "404")
