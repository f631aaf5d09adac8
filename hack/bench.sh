#!/usr/bin/env bash
# How fast claims become buckets and go again, and what that costs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'END'
usage: hack/bench.sh [--debug] [N]

Creates N claims at once (200 by default) on a stack of its own, waits until all
are Bound, restarts the operator, deletes the claims, waits until all is gone; and
prints how long it took, what the operator needed, and how many calls a claim cost.

  --debug  measures the debug build, which is there sooner and runs slower
END
}

umask 077
source hack/lib/common.sh
source hack/lib/processes.sh
say() { printf 'bench: %s\n' "$*" >&2; }

readonly namespace=bench
readonly claims_path=/apis/objectbucket.io/v1alpha1/namespaces/$namespace/objectbucketclaims
# Claims of the run that counts calls, whose log would disturb the other.
readonly counted=20

build() {
  local arguments=(--locked --bin aws-s3-provisioner)
  [[ $profile = debug ]] || arguments+=(--release)
  say "building the operator ($profile)"
  cargo build "${arguments[@]}"
}

start_stack() {
  # What stands on the network of somebody else measures that network.
  unset KUBECONFIG AWS_ENDPOINT_URL AWS_S3_PROVISIONER_STACK
  hack/stack.sh up --name "$stack"
  local environment
  environment=$(hack/stack.sh env --name "$stack")
  eval "$environment"
  server=$(kubectl config view --raw --output 'jsonpath={.clusters[0].cluster.server}')
  authority=$(kubectl config view --raw --output 'jsonpath={.clusters[0].cluster.certificate-authority}')
  mkdir -p "$state"/{run,logs,tmp}
  kubectl create -f crds/ -f examples/owner-secret.yaml -f examples/storageclass-greenfield.yaml >/dev/null
  kubectl create namespace $namespace >/dev/null
  kubectl wait --for condition=established --timeout 60s crd/objectbucketclaims.objectbucket.io \
    crd/objectbuckets.objectbucket.io >/dev/null
}

start_operator() {
  local log=$state/logs/operator.log
  start operator KUBECONFIG="$KUBECONFIG" AWS_ENDPOINT_URL="$AWS_ENDPOINT_URL" \
    "$PWD/target/$profile/aws-s3-provisioner" "$@" 2>/dev/null
  wait_for operator 60 grep -q 'serving claims' "$log"
  read -r pid _ <"$state/run/operator"
  settle
}

stop_operator() {
  kill -TERM "$pid"
  while running operator; do sleep 0.05; done
}

# Waits until the operator has used no processor for a second, at most 60.
settle() {
  local before now i
  before=$(cpu_ticks)
  for ((i = 0; i < 60; i++)); do
    sleep 1
    now=$(cpu_ticks)
    ((now - before > 1)) || return 0
    before=$now
  done
}

# Processor time of the operator, in ticks of 10 ms.
cpu_ticks() {
  local stat fields
  stat=$(<"/proc/$pid/stat")
  read -ra fields <<<"${stat##*) }"
  echo $((fields[11] + fields[12]))
}

# A line of /proc/PID/status in MiB: VmRSS is resident memory, VmHWM the most it was.
memory() { awk -v key="$1:" '$1 == key { printf "%.1f", $2 / 1024 }' "/proc/$pid/status"; }

# Creates $1 claims as fast as the API server takes them: by one curl, 16 at a time.
create_claims() {
  local token i
  token=$(kubectl config view --raw --output 'jsonpath={.users[0].user.token}')
  for ((i = 1; i <= $1; i++)); do
    ((i == 1)) || echo next
    cat <<END
url = "$server$claims_path"
header = "Authorization: Bearer $token"
header = "Content-Type: application/json"
cacert = "$authority"
data = "{\"apiVersion\":\"objectbucket.io/v1alpha1\",\"kind\":\"ObjectBucketClaim\",\"metadata\":{\"name\":\"c$i\"},\"spec\":{\"storageClassName\":\"s3-buckets\",\"generateBucketName\":\"bench\"}}"
output = "/dev/null"
silent
fail
END
  done >"$state/tmp/claims"
  curl --parallel --parallel-max 16 --no-progress-meter --config "$state/tmp/claims"
}

delete_claims() { kubectl delete --raw "$claims_path" >/dev/null; }

# Prints the time at which the $1th claim is seen of which the watch says $2.
moment_of() {
  local count=0 type name phase
  local -A seen
  while ((count < $1)) && read -r type name phase; do
    [[ " $type $phase " = *" $2 "* && ! ${seen[$name]-} ]] || continue
    seen[$name]=yes
    count=$((count + 1))
  done < <(exec kubectl --namespace $namespace get obc --watch --output-watch-events \
    --output 'jsonpath={.type} {.object.metadata.name} {.object.status.phase}{"\n"}')
  kill $!
  ((count < $1)) || now
}

now() { echo "$EPOCHREALTIME"; }
per() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.1f", b == 0 ? 0 : a / b }'; }

# Starts a watch, runs the command after $2, and sets $took to the seconds until
# the watch has seen $1 claims of which it says $2.
measure() {
  local number=$1 wanted=$2 began deadline
  shift 2
  : >"$state/tmp/moment"
  moment_of "$number" "$wanted" >"$state/tmp/moment" 2>/dev/null &
  watcher=$!
  began=$(now)
  "$@"
  deadline=$((SECONDS + 60 + number))
  until [[ -s $state/tmp/moment ]]; do
    running operator || fail "the operator has ended: $(tail -n 5 "$state/logs/operator.log")"
    ((SECONDS < deadline)) || fail "not all claims are $wanted after $((60 + number)) s: $(kubectl get obc --namespace $namespace)"
    sleep 0.05
  done
  took=$(awk -v a="$began" -v b="$(<"$state/tmp/moment")" 'BEGIN { printf "%.2f", b - a }')
  wait "$watcher" || true
  watcher=
}

# Requests that changed something of what the operator writes, as the API server
# counts them, without the claims that this script creates and deletes.
writes() {
  kubectl get --raw /metrics | awk '
    /^apiserver_request_total/ && /verb="(POST|PUT|PATCH|APPLY|DELETE)"/ &&
    /resource="(objectbucketclaims|objectbuckets|secrets|configmaps)"/ &&
    !(/verb="POST"/ && /resource="objectbucketclaims"/) { sum += $NF }
    END { print sum + 0 }'
}

events() {
  kubectl get --raw /metrics |
    awk '/^apiserver_request_total/ && /verb="POST"/ && /resource="events"/ && /group="events.k8s.io"/ { sum += $NF } END { print sum + 0 }'
}

aws_calls() { grep -c 'AWS call' "$state/logs/operator.log" || true; }

check_nothing_left() {
  local left answer
  left=$(kubectl get ob,obc,secret,configmap --all-namespaces --selector bucket-provisioner --output name)
  [[ -z $left ]] || fail "left in the cluster: $left"
  answer=$(curl --silent --aws-sigv4 aws:amz:us-east-1:iam --config <(echo "user = \"$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY\"") \
    --data 'Version=2010-05-08&Action=ListUsers' "$AWS_ENDPOINT_URL/")
  [[ $answer = *ListUsersResult* && $answer != *"<UserName>"* ]] || fail "left in IAM: $answer"
  answer=$(curl --silent --aws-sigv4 "aws:amz:$AWS_REGION:s3" --config <(echo "user = \"$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY\"") \
    "$AWS_ENDPOINT_URL/")
  [[ $answer = *ListAllMyBucketsResult* && $answer != *"<Name>"* ]] || fail "left in S3: $answer"
}

run() {
  local before
  say "starting the operator"
  start_operator
  rss_idle=$(memory VmRSS)

  say "creating $n claims"
  before=$(cpu_ticks)
  measure "$n" Bound create_claims "$n"
  bound_seconds=$took
  settle
  bound_ticks=$(($(cpu_ticks) - before))
  rss_bound=$(memory VmRSS)
  peak_bound=$(memory VmHWM)

  say "restarting the operator"
  stop_operator
  before=$(writes)
  start_operator -v=2
  rss_restart=$(memory VmRSS)
  restart_ticks=$(cpu_ticks)
  restart_aws=$(aws_calls)
  restart_writes=$(($(writes) - before))
  stop_operator

  say "deleting $n claims"
  start_operator
  before=$(cpu_ticks)
  measure "$n" DELETED delete_claims
  gone_seconds=$took
  settle
  gone_ticks=$(($(cpu_ticks) - before))
  rss_gone=$(memory VmRSS)
  stop_operator
  check_nothing_left

  say "counting the calls of $counted claims"
  start_operator -v=2
  local -i w e a
  w=$(writes) e=$(events)
  measure $counted Bound create_claims $counted
  settle
  a=$(aws_calls)
  bound_writes=$(($(writes) - w)) bound_events=$(($(events) - e)) bound_aws=$a
  w=$(writes) e=$(events)
  measure $counted DELETED delete_claims
  settle
  gone_writes=$(($(writes) - w)) gone_events=$(($(events) - e)) gone_aws=$(($(aws_calls) - a))
  stop_operator
}

table() {
  cat <<END

$n claims at once, $profile build, $(nproc) processors

                           created to Bound   deleted to gone   restart with $n Bound
END
  row "seconds" "$bound_seconds" "$gone_seconds" -
  row "claims a second" "$(per "$n" "$bound_seconds")" "$(per "$n" "$gone_seconds")" -
  row "processor, ms a claim" "$(per $((bound_ticks * 10)) "$n")" "$(per $((gone_ticks * 10)) "$n")" "$(per $((restart_ticks * 10)) "$n")"
  row "AWS calls a claim" "$(per "$bound_aws" $counted)" "$(per "$gone_aws" $counted)" "$(per "$restart_aws" "$n")"
  row "Kubernetes writes a claim" "$(per "$bound_writes" $counted)" "$(per "$gone_writes" $counted)" "$(per "$restart_writes" "$n")"
  row "events a claim" "$(per "$bound_events" $counted)" "$(per "$gone_events" $counted)" -
  row "resident after, MiB" "$rss_bound" "$rss_gone" "$rss_restart"
  cat <<END

resident memory: $rss_idle MiB idle before, $peak_bound MiB at most
END
}

row() { printf '%-26s %16s %17s %23s\n' "$@"; }

on_exit() {
  local code=$?
  trap "" INT TERM HUP
  if [[ $watcher ]]; then kill "$watcher" 2>/dev/null || true; fi
  stop_all
  hack/stack.sh down --name "$stack"
  rm -rf "$state"
  exit "$code"
}

n=200 profile=release
while (($#)); do
  case $1 in
    --debug) profile=debug ;;
    -h | --help) usage && exit ;;
    *)
      [[ $1 =~ ^[1-9][0-9]*$ ]] || fail "unknown argument: $1; see $0 --help"
      n=$1
      ;;
  esac
  shift
done

stack=bench-$$ watcher=
# The folder of hack/stack.sh; no stack can have a name with a dot.
state=${XDG_RUNTIME_DIR:-${TMPDIR:-/tmp}}/aws-s3-provisioner-$UID/$stack.bench
trap on_exit EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

build
start_stack
run
table
