# shellcheck shell=bash
# What a stack consists of, and how each part is started and seen to be ready.

# Prints the first of $1 ports in a row that are free. They lie below the range
# from which the system picks ports for outgoing connections.
free_ports() {
  local first port
  while true; do
    first=$((20000 + $1 * (RANDOM % (10000 / $1))))
    for ((port = first; port < first + $1; port++)); do
      ! (: <>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || continue 2
    done
    echo "$first"
    return
  done
}

kube() { "$(program kubectl)" --kubeconfig "$kubeconfig" --request-timeout 5s "$@"; }

answers() { curl --noproxy '*' --silent --fail --max-time 5 --output /dev/null "$1"; }

start_control_plane() {
  local first=$1 token etcd server
  etcd=http://127.0.0.1:$first
  server=https://127.0.0.1:$((first + 2))
  kubeconfig=$state/kubeconfig
  token=$(od -An -N20 -tx1 /dev/urandom | tr -d ' \n')
  echo "$token,admin,admin,system:masters" >"$state/tokens.csv"
  openssl ecparam -name prime256v1 -genkey -noout -out "$state/sa.key"
  cat >"$kubeconfig" <<END
apiVersion: v1
kind: Config
current-context: stack-$stack
contexts:
- name: stack-$stack
  context: {cluster: stack-$stack, user: admin}
clusters:
- name: stack-$stack
  cluster: {server: "$server", certificate-authority: "$state/certs/apiserver.crt"}
users:
- name: admin
  user: {token: $token}
END

  # No fsync: the data need not outlive the machine's next start. A test of memory
  # writes a gigabyte, and may be run several times before etcd is compacted.
  # GOGC: a third less processor time for some memory more.
  start etcd GOGC=400 "$(program etcd)" --data-dir "$state/etcd" --unsafe-no-fsync --log-level warn \
    --quota-backend-bytes 8589934592 \
    --listen-client-urls "$etcd" --advertise-client-urls "$etcd" \
    --listen-peer-urls "http://127.0.0.1:$((first + 1))"
  wait_for etcd 30 answers "$etcd/readyz"

  # What service accounts did, and whether they were allowed to: tests compare it
  # with the permissions that are shipped. Nobody else is in the log, which stays
  # in one file.
  cat >"$state/audit-policy.yaml" <<'END'
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  userGroups: ["system:serviceaccounts"]
- level: None
END
  # No limit to requests at a time: tests measure the operator, and an answer of
  # "too many requests" would make them depend on the machine. The loopback
  # address is no address for the endpoints of the service `kubernetes`, so none
  # are kept; naming it lets the server start where there is no network at all.
  # The plugin is one of OpenShift: who writes an owner reference that blocks the
  # deletion of the owner needs a permission.
  start kube-apiserver GOGC=400 "$(program kube-apiserver)" --etcd-servers "$etcd" \
    --bind-address 127.0.0.1 --advertise-address 127.0.0.1 --secure-port "${server##*:}" \
    --endpoint-reconciler-type none --service-cluster-ip-range 10.0.0.0/24 \
    --cert-dir "$state/certs" --token-auth-file "$state/tokens.csv" --authorization-mode RBAC \
    --service-account-issuer https://kubernetes.default.svc \
    --service-account-key-file "$state/sa.key" --service-account-signing-key-file "$state/sa.key" \
    --enable-priority-and-fairness=false \
    --max-requests-inflight 0 --max-mutating-requests-inflight 0 \
    --audit-policy-file "$state/audit-policy.yaml" --audit-log-path "$state/logs/audit.log" \
    --audit-log-maxsize 100000 --enable-admission-plugins OwnerReferencesPermissionEnforcement \
    --event-ttl 15m --allow-privileged=true --profiling=false
  wait_for kube-apiserver 60 kube get --raw /readyz
}

start_controllers() {
  kubeconfig=$state/kubeconfig
  # Its requests are limited to 20 a second by default, too few to clear away
  # after many parallel tests.
  start kube-controller-manager "$(program kube-controller-manager)" --kubeconfig "$kubeconfig" \
    --controllers clusterrole-aggregation-controller,garbage-collector-controller,namespace-controller,serviceaccount-controller,persistentvolume-binder-controller,persistentvolumeclaim-protection-controller,persistentvolume-protection-controller \
    --kube-api-qps 300 --kube-api-burst 600 \
    --secure-port 0 --leader-elect=false --profiling=false
  wait_for kube-controller-manager 60 kube get serviceaccount default --namespace default
}

use_cluster() {
  # shellcheck disable=SC2153 # the variable of the user
  kubeconfig=$KUBECONFIG
  local kubectl server
  kubectl=$(program kubectl)
  server=$("$kubectl" config view --minify --output 'jsonpath={.clusters[0].cluster.server}') ||
    fail "KUBECONFIG=$KUBECONFIG names no cluster; unset it to have one started"
  say "using the cluster of your KUBECONFIG: $server"
  "$kubectl" get --raw /readyz --request-timeout 15s >/dev/null ||
    fail "$server does not answer; unset KUBECONFIG to have a cluster started"
}

# Of the emulator's services only those that the operator calls are on, and none
# of its listeners beside the gateway, which would stand on fixed ports.
start_emulator() {
  endpoint=http://127.0.0.1:$1
  start ministack BIND_HOST=127.0.0.1 GATEWAY_PORT="$1" AUTH=true SERVICES=s3,iam,sts,eks \
    IOT_MTLS_ENABLED=0 SFTP_ENABLED=0 LOG_LEVEL=WARNING \
    "$emulator/bin/python" -m ministack
  wait_for ministack 30 answers "$endpoint/"
}

use_endpoint() {
  endpoint=$AWS_ENDPOINT_URL
  say "using the AWS of your AWS_ENDPOINT_URL: $endpoint"
  # Any answer will do: what stands on / differs between stores.
  curl --silent --max-time 15 --output /dev/null "$endpoint" ||
    fail "$endpoint does not answer; unset AWS_ENDPOINT_URL to have an emulator started"
}

# SeaweedFS with S3 and IAM at one address. Each of its parts (master, volume,
# filer, S3) has a port, and the one after it for calls between them. Each bucket
# takes volumes of its own, so there are many small ones, and one for a bucket
# instead of seven. A bucket has to be empty to be
# deleted, as at AWS, so that tests see that the operator empties it.
start_seaweedfs() {
  local first=$1 key=seaweedfs url
  url=http://127.0.0.1:$((first + 6))
  mkdir -p "$state/seaweedfs"
  printf '{"identities":[{"name":"owner","actions":["Admin","Read","Write","List","Tagging"],
    "credentials":[{"accessKey":"%s","secretKey":"%s"}]}]}\n' "$key" "$key" >"$state/seaweedfs.json"
  start seaweedfs WEED_MASTER_VOLUME_GROWTH_COPY_1=1 \
    "$seaweedfs/bin/weed" -logtostderr=true server -dir "$state/seaweedfs" \
    -ip=127.0.0.1 -ip.bind=127.0.0.1 \
    -master.port="$first" -master.port.grpc=$((first + 1)) \
    -volume.port=$((first + 2)) -volume.port.grpc=$((first + 3)) \
    -filer -filer.port=$((first + 4)) -filer.port.grpc=$((first + 5)) \
    -s3 -s3.port=$((first + 6)) -s3.port.grpc=$((first + 7)) \
    -s3.config="$state/seaweedfs.json" -s3.iam.readOnly=false -s3.allowDeleteBucketNotEmpty=false \
    -s3.port.iceberg=0 -s3.port.lance=0 -master.telemetry=false \
    -master.volumeSizeLimitMB=64 -volume.max=5000
  wait_for seaweedfs 60 answers "$url/healthz"
  # Comes last: a stack that has it has a SeaweedFS that was ready.
  {
    printf 'export %s=%q\n' SEAWEEDFS_URL "$url" \
      SEAWEEDFS_ACCESS_KEY_ID "$key" SEAWEEDFS_SECRET_ACCESS_KEY "$key"
    # shellcheck disable=SC2016 # expanded where it is used
    printf 'export AWS_S3_PROVISIONER_STACK="$AWS_S3_PROVISIONER_STACK "%q\n' "SEAWEEDFS_URL=$url"
  } >"$state/seaweedfs.partial"
  mv "$state/seaweedfs.partial" "$state/seaweedfs.env"
}

# The second emulator. It knows no keys, so any are good.
start_moto() {
  local url=http://127.0.0.1:$1
  start moto AWS_DEFAULT_REGION=us-west-1 "$moto/bin/python" -m moto.server -H 127.0.0.1 -p "$1"
  wait_for moto 60 answers "$url/moto-api/"
  {
    printf 'export MOTO_URL=%q\n' "$url"
    # shellcheck disable=SC2016 # expanded where it is used
    printf 'export AWS_S3_PROVISIONER_STACK="$AWS_S3_PROVISIONER_STACK "%q\n' "MOTO_URL=$url"
  } >"$state/moto.partial"
  mv "$state/moto.partial" "$state/moto.env"
}
