"""The cluster and the operator in it: all of it has the id of one run in its name."""

import json
import os
import re
import signal
import socket
import subprocess
import time
import urllib.request
from contextlib import contextmanager

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
    def __init__(self, run, program, folder, region, patience):
        self.run, self.program, self.folder = run, program, folder
        self.region, self.patience = region, patience
        self.provisioner = f"{run}.example.com/bucket"
        self.starts = 0

    def kubectl(self, *arguments, given=None):
        done = subprocess.run(["kubectl", *arguments], input=given, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def create(self, *objects):
        self.kubectl("create", "-f", "-", given=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    def prepare(self):
        installed = self.kubectl("get", "crd", "--output", "name")
        if "objectbucketclaims.objectbucket.io" not in installed:
            self.kubectl("create", "-f", "-", given=self.command("crds"))
            self.kubectl("wait", "--for", "condition=established", "--timeout", "60s", "crd", "--all")
        self.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.run}})

    def clear(self):
        """Claims are deleted first: they need the operator."""
        with self.operator("clear"):
            for claim in self.claims():
                self.delete(claim["metadata"]["name"], wait=False)
            self.wait("all claims are deleted", lambda: not self.claims())
        classes = self.kubectl("get", "storageclass", "--output", "name").split()
        for name in classes:
            if self.run in name:
                self.kubectl("delete", name)
        self.kubectl("delete", "namespace", self.run, "--wait=false")

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
            return {"apiVersion": "objectbucket.io/v1alpha1", "kind": "ObjectBucketClaim", "metadata": metadata, "spec": spec}

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
        """Until a claim is Bound, or a problem is reported that has a remedy; its reason and message. `but`: not this."""
        self.wait(f"{name} reported", lambda: self.ready(name)[1] not in {*PASSING, but}, name)
        return self.ready(name)[1:]

    def delete(self, *names, wait=True):
        self.kubectl("delete", "obc", *names, "--namespace", self.run, "--wait=false")
        if wait:
            there = lambda: {claim["metadata"]["name"] for claim in self.claims()}
            return self.wait(f"{', '.join(names[:3])} deleted", lambda: not there() & set(names), names[0])
        return None

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
            if time.monotonic() - began > self.patience:
                reason = f"; its condition is {self.ready(claim)}" if claim and self.has(claim) else ""
                raise TimeoutError(f"{what}: not within {self.patience} s{reason}")
            time.sleep(0.5)
        return time.monotonic() - began

    def has(self, name):
        return any(claim["metadata"]["name"] == name for claim in self.claims())

    def command(self, *arguments):
        """What a command of the program prints, whatever its exit code is."""
        done = subprocess.run([self.program, *arguments], capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    @contextmanager
    def operator(self, name, environment=None, arguments=()):
        """Runs the operator; the value reads its metrics."""
        self.starts += 1
        log = os.path.join(self.folder, f"operator-{self.starts}-{name}.log")
        command = [self.program, "--provisioner-name", self.provisioner, "--namespace", self.run]
        address = free_address()
        command += ["--lease-namespace", self.run, "--admin-address", address, *arguments]
        with open(log, "wb") as out:
            process = subprocess.Popen(command, env=os.environ | (environment or {}), stdout=out, stderr=out)
        try:
            serving = lambda: "serving claims" in read(log) or process.poll() is not None
            self.wait("the operator serves", serving)
            if process.poll() is not None:
                raise RuntimeError(f"the operator ended: {read(log)[-2000:]}")
            yield Metrics(address)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def free_address():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{listener.getsockname()[1]}"


class Metrics:
    """What an operator's metrics say."""

    def __init__(self, address):
        self.address = address

    def text(self):
        with urllib.request.urlopen(f"http://{self.address}/metrics", timeout=10) as answer:
            return answer.read().decode()

    def calls(self):
        """The calls to the store: `operation` and `outcome` of each kind, and how many."""
        found = re.findall(r"^obc_provisioner_store_calls_total\{(.*)\} (\d+)", self.text(), re.MULTILINE)
        return [dict(re.findall(r'(\w+)="([^"]*)"', labels)) | {"count": int(count)} for labels, count in found]

    def checks(self):
        """How many checks of bound claims have ended."""
        found = re.findall(r"^obc_provisioner_checks_total\{.*\} (\d+)", self.text(), re.MULTILINE)
        return sum(map(int, found))
