#!/usr/bin/env bash
# How fast claims become buckets and go again, what that costs, and how far it is
# from the floor: the same calls and writes without an operator.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'END_OF_USAGE'
usage: hack/bench.sh [--debug] [--only PART]... [--objects M] [N]

Measures the operator on a stack of its own, and beside it the floor. PARTs:

  claims   N claims (1000 by default), from creation to all Bound and from deletion
           to all gone
  restart  the operator starts again with N claims bound, and one that waits
  delay    as `claims`, with 50 ms and with 300 ms added to each answer of AWS, and
           with at most 500 and 200 claims
  purge    a claim is deleted whose bucket holds M objects (20000 by default) and
           M / 4 further versions

  --debug  measures debug builds, which are there sooner and run slower

The floor (hack/bench/) makes the same AWS calls and the same Kubernetes writes,
events among them, in the same order for each claim and for 32 claims at once; it
reads and watches nothing. Its processor time is that of creating or deleting the
claims, too. For a restart it lists once what the operator watches, and binds a claim.
END_OF_USAGE
}

umask 077
source hack/lib/common.sh
source hack/lib/processes.sh
source hack/lib/counters.sh
say() { printf 'bench: %s\n' "$*" >&2; }

# As the operator logs without flags, and each AWS call beside it: they are counted.
readonly log=info,kube_runtime=warn,kube_client::client::builder=off,aws_config=error,bucket_provisioner::aws::call=debug
# What a claim costs, to be taken off where one claim is not what is measured.
readonly writes_a_claim=8

build() {
  local arguments=(--locked)
  [[ $profile = debug ]] || arguments+=(--release)
  say "building the operator ($profile)"
  # Apart: what the examples need would change the features of what the operator is built from.
  cargo build "${arguments[@]}" --bin aws-s3-provisioner
  say "building the floor ($profile)"
  cargo build "${arguments[@]}" --example bench
}

start_stack() {
  # What stands on the network of somebody else measures that network.
  unset KUBECONFIG AWS_ENDPOINT_URL AWS_S3_PROVISIONER_STACK
  hack/stack.sh up --name "$stack"
  local environment
  environment=$(hack/stack.sh env --name "$stack")
  eval "$environment"
  mkdir -p "$state"/{run,logs,tmp}
  kubectl create -f crds/ -f examples/owner-secret.yaml -f examples/storageclass-greenfield.yaml >/dev/null
  kubectl create namespace bench >/dev/null
  kubectl wait --for condition=established --timeout 60s crd/objectbucketclaims.objectbucket.io \
    crd/objectbuckets.objectbucket.io >/dev/null
}

# Starts the operator, with the lease as it ships.
start_operator() {
  start operator KUBECONFIG="$KUBECONFIG" AWS_ENDPOINT_URL="$url" RUST_LOG=$log \
    "$PWD/target/$profile/aws-s3-provisioner" 2>/dev/null
  wait_for operator 60 grep -q 'serving claims' "$state/logs/operator.log"
  read -r pid _ <"$state/run/operator"
  serving=yes
  settle
}

stop_operator() {
  serving=
  stop_process operator
}

stop_process() {
  local id
  read -r id _ <"$state/run/$1"
  kill -TERM "$id"
  while running "$1"; do sleep 0.05; done
}

# Waits until the operator has used no processor for a second, at most 60.
settle() {
  local before now i
  before=$(cpu_ticks "$pid")
  for ((i = 0; i < 60; i++)); do
    sleep 1
    now=$(cpu_ticks "$pid")
    ((now - before > 1)) || return 0
    before=$now
  done
}

aws_calls() { grep -c 'AWS call' "$state/logs/operator.log" || true; }

# Runs the program of hack/bench/ and sets what it says: the seconds of what it
# measured, its processor seconds, and its AWS calls.
bench() {
  AWS_ENDPOINT_URL=$url "target/$profile/examples/bench" "$@" >"$state/tmp/said" &
  helper=$!
  while kill -0 "$helper" 2>/dev/null; do
    [[ ! $serving ]] || running operator || fail "the operator has ended: $(tail -n 5 "$state/logs/operator.log")"
    sleep 0.2
  done
  wait "$helper" || fail "failed: bench $*; $(kubectl get obc --namespace bench | head)"
  helper=
  read -r seconds cpu calls <"$state/tmp/said" || true
}

# Measures `bench` with the arguments after $2, for a row named $1 of $2 things.
# What is done is done by the operator if one runs, else by the floor.
measure() {
  local key=$1 name=$1 number=$2 w e a t ratio='' mib=''
  shift 2
  w=$(writes) e=$(events)
  if [[ $serving ]]; then
    a=$(aws_calls) t=$(cpu_ticks "$pid")
    bench "$@"
    settle
    cpu=$(per $(($(cpu_ticks "$pid") - t)) 100) calls=$(($(aws_calls) - a)) mib=$(memory "$pid" VmRSS)
    of_operator[$name]=$seconds
    name+=", operator"
  else
    bench "$@"
    ratio=$(per "${of_operator[$name]}" "$seconds")
    name+=", floor"
  fi
  row "$key" "$name" "$number" "$seconds" "$(per "$number" "$seconds")" "$ratio" "$cpu" "$(per "$calls" "$each")" \
    "$(per $(($(writes) - w)) "$each")" "$(per $(($(events) - e)) "$each")" "$mib"
}

# Prints the header of a table whose calls, writes and events are $1.
header() {
  columns "" number seconds "a second" ratio "CPU s" "AWS calls" writes events MiB
  columns "" "" "" "" "" "" "$1" "$1" "$1" ""
}

columns() { printf '%-26s %7s %8s %9s %6s %7s %10s %7s %7s %7s\n' "$@"; }

# Keeps a row until all that belong to $1 are there: the rows of operator and floor.
row() { rows[$1]+=$(columns "${@:2}")$'\n'; }

print() {
  local key
  for key; do printf '%s' "${rows[$key]-}"; done
}

# Both ways of $1 claims, by the operator and by the floor, in rows that end with $2.
claims() {
  each=$1
  say "$1 claims$2"
  start_operator
  measure "created$2" "$1" create "$1"
  peak=$(printf '%s\n' "${peak:-0}" "$(memory "$pid" VmHWM)" | sort -n | tail -n 1)
  if [[ ! $2 ]] && wanted restart; then restart "$1"; fi
  each=$1
  if [[ $2 ]] || wanted claims; then measure "deleted$2" "$1" delete; else bench delete; fi
  stop_operator
  check_nothing_left
  if [[ $2 ]] || wanted claims; then
    measure "created$2" "$1" floor create "$1"
    measure "deleted$2" "$1" floor delete
    check_nothing_left
    print "created$2" "deleted$2"
  fi
}

# Starts the operator anew with $1 claims bound. It is ready when a claim that was
# waiting for it is Bound; what this one costs is not counted.
restart() {
  local w began calls floor
  stop_operator
  bench floor restart
  floor=$seconds
  kubectl create --namespace bench -f - >/dev/null <<'END_OF_CLAIM'
{"apiVersion": "objectbucket.io/v1alpha1", "kind": "ObjectBucketClaim", "metadata": {"name": "waiting"},
 "spec": {"storageClassName": "s3-buckets", "generateBucketName": "waiting"}}
END_OF_CLAIM
  w=$(writes)
  "target/$profile/examples/bench" bound >"$state/tmp/moment" &
  helper=$!
  sleep 2
  began=$EPOCHREALTIME
  start_operator
  wait "$helper" || fail "not all claims are Bound after a restart"
  helper=
  seconds=$(awk -v a="$began" -v b="$(<"$state/tmp/moment")" 'BEGIN { printf "%.3f", b - a }')
  calls=$(grep 'AWS call' "$state/logs/operator.log" | grep -vc waiting || true)
  row restarted "restarted, operator" "$1" "$seconds" "" "" "$(per "$(cpu_ticks "$pid")" 100)" "$calls" \
    $(($(writes) - w - writes_a_claim)) "" "$(memory "$pid" VmRSS)"
  row restarted "restarted, floor" "$1" "$floor" "" "$(per "$seconds" "$floor")" "$cpu" 0 0 "" ""
  kubectl delete obc waiting --namespace bench >/dev/null
  settle
}

delayed() {
  local ms=$1
  start delay "$PWD/target/$profile/examples/bench" delay "$ms" "$AWS_ENDPOINT_URL" 2>/dev/null
  wait_for delay 10 grep -q http "$state/logs/delay.log"
  url=$(<"$state/logs/delay.log")
  claims $(($2 < n ? $2 : n)) ", $ms ms"
  url=$AWS_ENDPOINT_URL
  stop_process delay
}

purge() {
  local number=$((objects + objects / 4))
  each=1
  say "a bucket of $number objects and versions"
  start_operator
  bench create 1
  fill
  settle
  measure purged "$number" delete
  stop_operator
  bench floor create 1
  fill
  measure purged "$number" floor delete
  check_nothing_left
}

fill() {
  local bucket
  bucket=$(kubectl get obc c1 --namespace bench --output 'jsonpath={.spec.bucketName}')
  bench fill "$bucket" "$objects" $((objects / 4))
}

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

wanted() { [[ " ${parts[*]} " = *" $1 "* ]]; }

run() {
  url=$AWS_ENDPOINT_URL
  cat <<END_OF_HEAD

$profile build, $(nproc) processors, operator with a lease and with its AWS calls logged
ratio: seconds of the operator to those of the floor

END_OF_HEAD
  if wanted claims || wanted delay; then header "a claim"; fi
  if wanted claims || wanted restart; then claims "$n" ""; fi
  if wanted delay; then
    delayed 50 500
    delayed 300 200
  fi
  if wanted purge; then purge; fi
  if wanted restart || wanted purge; then
    echo
    header "in all"
    print restarted purged
  fi
  cat <<END_OF_AIMS

aims: ratio at most 1.3; 50 claims a second or more (100 times the 0.5 of the Go
provisioner); restarted: no calls, no writes; less than 64 MiB with 10000 bound
END_OF_AIMS
  [[ ! $peak ]] || echo "resident memory of the operator at its most while claims were created: $peak MiB"
}

on_exit() {
  local code=$?
  trap "" INT TERM HUP
  if [[ $helper ]]; then kill "$helper" 2>/dev/null || true; fi
  stop_all
  hack/stack.sh down --name "$stack"
  rm -rf "$state"
  exit "$code"
}

n=1000 objects=20000 profile=release parts=()
while (($#)); do
  case $1 in
    --debug) profile=debug ;;
    --only | --objects)
      (($# > 1)) || fail "$1 needs a value; see $0 --help"
      case $1=$2 in
        --only=claims | --only=restart | --only=delay | --only=purge) parts+=("$2") ;;
        --objects=[1-9]*) objects=$2 ;;
        *) fail "$1 $2 cannot be used; see $0 --help" ;;
      esac
      shift
      ;;
    -h | --help) usage && exit ;;
    *)
      [[ $1 =~ ^[1-9][0-9]*$ ]] || fail "unknown argument: $1; see $0 --help"
      n=$1
      ;;
  esac
  shift
done
((${#parts[@]})) || parts=(claims restart delay purge)

stack=bench-$$ helper='' serving='' peak=''
declare -A of_operator rows
# The folder of hack/stack.sh; no stack can have a name with a dot.
state=${XDG_RUNTIME_DIR:-${TMPDIR:-/tmp}}/aws-s3-provisioner-$UID/$stack.bench
trap on_exit EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

build
start_stack
run
