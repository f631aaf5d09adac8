"""A stand-in for what a cluster has and the local stack has not: the Deployment controller and a kubelet. It runs the
operator of each Deployment that a page installs as a process of this machine, with the arguments, the variables and the
service account of its pod, and writes the status of the Deployment, for which readers wait. On EKS a webhook gives pods
the identity of their service account; so does this."""

import http.server
import json
import os
import pathlib
import signal
import socket
import ssl
import subprocess
import threading
import urllib.error
import urllib.request

PROGRAM = "aws-s3-provisioner"


class Api:
    """The API server, as the admin of the stack."""

    def __init__(self, kubeconfig):
        view = subprocess.run(
            ["kubectl", "config", "view", "--raw", "--output", "json", "--kubeconfig", kubeconfig],
            check=True, capture_output=True)
        view = json.loads(view.stdout)
        self.cluster, self.token = view["clusters"][0]["cluster"], view["users"][0]["user"]["token"]
        tls = ssl.create_default_context(cafile=self.cluster["certificate-authority"])
        tls.check_hostname = False
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls))

    def call(self, path, method="GET", body=None, kind="application/json"):
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": kind}
        data = json.dumps(body).encode() if body else None
        request = urllib.request.Request(self.cluster["server"] + path, data, headers, method=method)
        with self.opener.open(request, timeout=10) as answer:
            return json.load(answer)


class Agent(http.server.BaseHTTPRequestHandler):
    """The agent of EKS Pod Identity, which gives the keys of a role to pods."""

    def do_GET(self):
        keys = {"AccessKeyId": "test", "SecretAccessKey": "test", "Token": "", "Expiration": "2099-01-01T00:00:00Z"}
        body = json.dumps(keys).encode()
        self.send_response(200 if self.headers["Authorization"] else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Pod:
    """The operator of one Deployment, while its specification stays the same."""

    def __init__(self, kubelet, deployment):
        meta, spec = deployment["metadata"], deployment["spec"]["template"]["spec"]
        self.name, self.namespace, self.generation = meta["name"], meta["namespace"], meta["generation"]
        self.folder = kubelet.folder / f"{self.namespace}.{self.name}"
        self.folder.mkdir(exist_ok=True)
        self.port = free_port()
        container = spec["containers"][0]
        arguments = list(container.get("args", []))
        arguments = [argument for argument in arguments if not argument.startswith("--admin-address")]
        self.environment = self.variables(kubelet, spec, container)
        # What a shell of the page needs to run another command as this pod.
        lines = [f"export {name}={quoted(value)}\n" for name, value in self.environment.items()]
        (self.folder / "environment").write_text("".join(lines))
        self.log = open(self.folder / "log", "ab")
        self.process = subprocess.Popen(
            [str(kubelet.programs / PROGRAM), *arguments], cwd=self.folder, stdout=self.log, stderr=self.log,
            env={"PATH": os.environ["PATH"], **kubelet.network, **self.environment})

    def variables(self, kubelet, spec, container):
        account = kubelet.api.call(f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{spec['serviceAccountName']}")
        found = {"KUBECONFIG": str(self.kubeconfig(kubelet, account))}
        fields = {"metadata.namespace": self.namespace, "metadata.name": self.name}
        for variable in container.get("env", []):
            field = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
            found[variable["name"]] = variable.get("value") or fields.get(field, "")
        # The port of a pod is its own, one of this machine may be taken.
        found["PROVISIONER_ADMIN_ADDRESS"] = f"127.0.0.1:{self.port}"
        if "AWS_WEB_IDENTITY_TOKEN_FILE" in found:
            # A projected volume, of which this machine has only the file.
            token = self.folder / "aws-token"
            token.write_text(kubelet.token(account, "amazonaws.com"))
            found["AWS_WEB_IDENTITY_TOKEN_FILE"] = str(token)
        role = account["metadata"].get("annotations", {}).get("eks.amazonaws.com/role-arn")
        if role:
            token = self.folder / "aws-token"
            token.write_text(kubelet.token(account, "sts.amazonaws.com"))
            found |= {"AWS_ROLE_ARN": role, "AWS_WEB_IDENTITY_TOKEN_FILE": str(token)}
        elif (self.namespace, spec["serviceAccountName"]) in kubelet.associations():
            token = self.folder / "pod-identity-token"
            token.write_text(kubelet.token(account, "pods.eks.amazonaws.com"))
            found |= {"AWS_CONTAINER_CREDENTIALS_FULL_URI": kubelet.agent,
                      "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(token)}
        return found

    def kubeconfig(self, kubelet, account):
        """With the rights of the service account, which are those that the page gives it."""
        name = "cluster"
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": name,
            "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": self.namespace}}],
            "clusters": [{"name": name, "cluster": kubelet.api.cluster}],
            "users": [{"name": name, "user": {"token": kubelet.token(account)}}],
        }
        path = self.folder / "kubeconfig"
        path.write_text(json.dumps(config))
        return path

    def ready(self):
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
                    f"http://127.0.0.1:{self.port}/readyz", timeout=2) as answer:
                return answer.status == 200
        except OSError:
            return False

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()
        self.log.close()


class Kubelet(threading.Thread):
    """Polls the Deployments until it is stopped."""

    def __init__(self, kubeconfig, programs, folder, network):
        super().__init__(daemon=True)
        self.api, self.programs, self.folder = Api(kubeconfig), pathlib.Path(programs), pathlib.Path(folder)
        # A pod of a cluster that has AWS in reach; here it is emulated.
        self.network, self.pods, self.stopping = network, {}, threading.Event()
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Agent)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.agent = f"http://127.0.0.1:{server.server_port}/v1/credentials"

    def token(self, account, audience=None):
        meta = account["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/serviceaccounts/{meta['name']}/token"
        spec = {"audiences": [audience] if audience else [], "expirationSeconds": 7200}
        return self.api.call(path, "POST", {"spec": spec})["status"]["token"]

    def associations(self):
        """Service accounts that a page associated with a role: lines of a file that replaces the API of EKS."""
        path = self.folder / "pod-identity-associations"
        return {tuple(line.split()) for line in path.read_text().splitlines()} if path.exists() else set()

    def run(self):
        while not self.stopping.wait(0.3):
            try:
                self.look()
            except (OSError, KeyError, urllib.error.HTTPError):
                continue  # The service account comes after its Deployment, or the API server is busy.
        for pod in self.pods.values():
            pod.stop()

    def look(self):
        items = self.api.call("/apis/apps/v1/deployments")["items"]
        wanted = {item["metadata"]["uid"]: item for item in items
                  if PROGRAM in item["spec"]["template"]["spec"]["containers"][0]["image"] and item["spec"]["replicas"]}
        for uid in [uid for uid in self.pods if uid not in wanted]:
            self.pods.pop(uid).stop()
        for uid, deployment in wanted.items():
            pod = self.pods.get(uid)
            if pod and pod.process.poll() is not None:
                self.pods.pop(uid).stop()
                pod = None
            if pod and pod.generation != deployment["metadata"]["generation"]:
                self.pods.pop(uid).stop()
                pod = None
            self.pods[uid] = pod or Pod(self, deployment)
        for item in items:
            self.report(item)
        for item in self.api.call("/apis/policy/v1/poddisruptionbudgets")["items"]:
            self.report_budget(item)

    def report_budget(self, budget):
        """Helm waits for these, too."""
        meta = budget["metadata"]
        if budget.get("status", {}).get("observedGeneration") != meta["generation"]:
            status = {"observedGeneration": meta["generation"], "currentHealthy": 1, "desiredHealthy": 1,
                      "expectedPods": 1, "disruptionsAllowed": 1}
            path = f"/apis/policy/v1/namespaces/{meta['namespace']}/poddisruptionbudgets/{meta['name']}/status"
            self.api.call(path, "PATCH", {"status": status}, "application/merge-patch+json")

    def report(self, deployment):
        pod = self.pods.get(deployment["metadata"]["uid"])
        wanted, meta = deployment["spec"]["replicas"], deployment["metadata"]
        ready = wanted if pod and pod.ready() else 0
        up = "True" if ready == wanted else "False"
        reason = "NewReplicaSetAvailable" if up == "True" else "ReplicaSetUpdated"
        status = {
            "observedGeneration": meta["generation"], "replicas": wanted, "updatedReplicas": wanted,
            "readyReplicas": ready, "availableReplicas": ready, "unavailableReplicas": wanted - ready or None,
            "conditions": [{"type": "Available", "status": up, "reason": "MinimumReplicasAvailable"},
                           {"type": "Progressing", "status": "True", "reason": reason}]}
        if {key: deployment["status"].get(key) for key in status if key != "conditions"} == {
                key: value or None for key, value in status.items() if key != "conditions"}:
            return
        path = f"/apis/apps/v1/namespaces/{meta['namespace']}/deployments/{meta['name']}/status"
        self.api.call(path, "PATCH", {"status": status}, "application/merge-patch+json")

    def stop(self):
        self.stopping.set()
        self.join()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def quoted(value):
    return "'" + value.replace("'", "'\\''") + "'"
