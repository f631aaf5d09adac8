#!/usr/bin/env bash
# The main job from end to end, for people who watch and for machines that check:
# claims become buckets, an app uses them, and what is deleted is gone.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'END'
usage: hack/demo.sh [--keep]
       hack/demo.sh --stop NAME

Builds the operator, starts a Kubernetes control plane and an emulated AWS on this
machine, and shows how claims become buckets, how an app uses them, and how all of
it goes again. Every step is checked: exit code 0 means that all of it is true.

  --keep  ends while the claims are bound and leaves everything running, to be
          tried out; says how to use it
  --stop  stops what --keep left running, by the name that it said

A KUBECONFIG or AWS_ENDPOINT_URL that is set in this shell is used instead of a
cluster or an AWS of the demo's own. There the demo touches nothing that it did not
make, and removes all that it made.
END
}

umask 077
source hack/lib/common.sh
source hack/lib/processes.sh

# The messages of this script go with its story, on standard output.
say() { printf '  %s\n' "$*"; }
fail() {
  printf '\nerror: %s\n' "$*" >&2
  exit 1
}
heading() { printf '\n%s== %s%s\n' "${bold-}" "$*" "${plain-}"; }
[[ ! -t 1 ]] || bold=$'\e[1m' plain=$'\e[0m'

readonly app=target/debug/examples/app operator=target/debug/aws-s3-provisioner
readonly namespace=demo greenfield=photos brownfield=archive
# What must be true soon is true within this many seconds.
readonly limit=60

# --- What is there to work with ------------------------------------------------

build() {
  heading "Building the operator and the example app"
  cargo build --locked --bin aws-s3-provisioner --example app
}

start_stack() {
  heading "Starting a cluster and an AWS"
  # Without it, what a running stack gave to this shell counts as the user's own.
  unset AWS_S3_PROVISIONER_STACK
  cluster_is_ours=yes
  aws_is_ours=yes
  ! brought KUBECONFIG || cluster_is_ours=
  ! brought AWS_ENDPOINT_URL || aws_is_ours=
  stack_begun=yes
  hack/stack.sh up --name "$stack"
  local environment
  environment=$(hack/stack.sh env --name "$stack")
  eval "$environment"
  mkdir -p "$state"/{run,logs,tmp}
  if [[ ! $aws_is_ours ]]; then
    [[ -n ${AWS_ACCESS_KEY_ID:-} && -n ${AWS_SECRET_ACCESS_KEY:-} ]] ||
      fail "AWS_ENDPOINT_URL is set, but AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not: the demo needs an owner's keys there"
    # Names of buckets are shared by all who use a store.
    archive=company-archive-$$-$RANDOM
  fi
  # A cluster of the user may have an operator of the usual name.
  [[ $cluster_is_ours ]] || provisioner=aws-s3.io/$stack
}

# Prints an example as it is, save for what differs where the user's own cluster
# or AWS is used.
example() {
  sed -e "s|company-archive|$archive|; s|aws-s3.io/bucket|$provisioner|; s|region: .*|region: $AWS_REGION|" \
    "examples/$1.yaml"
}

kube() { kubectl --request-timeout 20s "$@"; }
in_namespace() { kube --namespace "$namespace" "$@"; }

# Creates what comes on standard input, and remembers that it is ours: $1.
create() {
  local problem
  if ! problem=$(kube create -f - 2>&1 >/dev/null); then
    fail "cannot create $1: $problem"
  fi
  made+=("$1")
  say "created $1"
}

# --- The admin's part ----------------------------------------------------------

prepare() {
  heading "The admin: custom resources, owner's keys, two StorageClasses"
  if kube get crd objectbucketclaims.objectbucket.io &>/dev/null; then
    say "the cluster has the custom resources already; they are left as they are"
  else
    create "crd/objectbucketclaims.objectbucket.io" <crds/objectbucketclaims.yaml
    create "crd/objectbuckets.objectbucket.io" <crds/objectbuckets.yaml
    kube wait --for condition=established --timeout "${limit}s" crd/objectbucketclaims.objectbucket.io \
      crd/objectbuckets.objectbucket.io >/dev/null
  fi
  create "secret/s3-owner --namespace default" < <(owner_secret)
  create storageclass/s3-buckets < <(example storageclass-greenfield)
  create storageclass/s3-existing < <(example storageclass-brownfield)
  kube create namespace "$namespace" >/dev/null || fail "the demo needs a namespace $namespace of its own"
  made+=("namespace/$namespace")

  s3 PUT "/$archive" --data-binary @- <<<"$(bucket_configuration)"
  expect 200 "create bucket $archive"
  bucket_made=yes
  s3 PUT "/$archive/report.txt" --data-binary "$report"
  expect 200 "put an object into bucket $archive"
  say "bucket $archive, which the class s3-existing names, exists and holds report.txt"
}

# In an emulator of our own the example's keys are the owner's.
owner_secret() {
  if [[ $aws_is_ours ]]; then
    example owner-secret
  else
    example owner-secret | sed '/^stringData:/,$d'
    printf 'stringData:\n  AWS_ACCESS_KEY_ID: "%s"\n  AWS_SECRET_ACCESS_KEY: "%s"\n' \
      "$AWS_ACCESS_KEY_ID" "$AWS_SECRET_ACCESS_KEY"
    [[ -z ${AWS_SESSION_TOKEN:-} ]] || printf '  AWS_SESSION_TOKEN: "%s"\n' "$AWS_SESSION_TOKEN"
  fi
}

bucket_configuration() {
  [[ $AWS_REGION = us-east-1 ]] ||
    printf '<CreateBucketConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><LocationConstraint>%s</LocationConstraint></CreateBucketConfiguration>' "$AWS_REGION"
}

# A signed request; leaves the answer's status in $status and its body in $body.
# The keys go to curl by its standard input, where no list of processes shows them.
signed() {
  local scope=$1 answer token=
  shift
  [[ -z ${AWS_SESSION_TOKEN:-} ]] || token="header = \"x-amz-security-token: $AWS_SESSION_TOKEN\""
  answer=$(curl --silent --show-error --max-time 20 --aws-sigv4 "aws:amz:$scope" --write-out '\n%{http_code}' \
    --config <(printf 'user = "%s:%s"\n%s\n' "$AWS_ACCESS_KEY_ID" "$AWS_SECRET_ACCESS_KEY" "$token") "$@") ||
    fail "$AWS_ENDPOINT_URL does not answer"
  status=${answer##*$'\n'}
  body=${answer%$'\n'*}
}

s3() {
  local method=$1 path=$2
  shift 2
  signed "$AWS_REGION:s3" --request "$method" "$@" "${AWS_ENDPOINT_URL%/}$path"
}

iam() {
  signed us-east-1:iam --data "Version=2010-05-08&Action=$1" "${AWS_ENDPOINT_URL%/}/"
}

expect() { [[ $status = "$1" ]] || fail "$2: the store answered $status instead of $1: $body"; }

start_operator() {
  heading "The operator starts"
  run_operator
  wait_until "the operator serves claims" grep -q 'serving claims' "$log"
  say "it runs as process $(operator_pid); its log is $log"
}

run_operator() {
  # The keys that it works with are those of the class's Secret: it is given none.
  # Of other claims in the user's cluster it knows nothing. Its lease goes with the
  # demo's namespace.
  start operator KUBECONFIG="$KUBECONFIG" AWS_ENDPOINT_URL="$AWS_ENDPOINT_URL" \
    "$PWD/$operator" --provisioner-name "$provisioner" --namespace "$namespace" --lease-namespace "$namespace" >/dev/null
}

operator_pid() { cut -d' ' -f1 "$state/run/operator"; }

# Waits until the command that follows $1 succeeds, but not for an operator that
# does not run any more.
wait_until() {
  local what=$1 deadline=$((SECONDS + limit))
  shift
  until "$@" &>/dev/null; do
    running operator || fail "the operator has ended while waiting: $what"
    ((SECONDS < deadline)) || fail "not true within $limit s: $what"
    sleep 0.1
  done
}

# --- The user's part -----------------------------------------------------------

claim_buckets() {
  heading "A user: two claims, and how they become Bound"
  sed 's/^/      /' examples/claim-greenfield.yaml - examples/claim-brownfield.yaml <<<---
  echo
  watch_claims
  in_namespace create -f examples/claim-greenfield.yaml -f examples/claim-brownfield.yaml >/dev/null ||
    fail "the claims cannot be created"
  local claim
  for claim in $greenfield $brownfield; do
    wait_until "claim $claim is Bound" in_namespace wait --for jsonpath='{.status.phase}'=Bound --timeout 2s "obc/$claim"
    # What is shown comes by watches of its own, a moment later.
    wait_until "claim $claim is shown as Bound" grep -Eq "claim +$claim +Bound" "$state/story"
    wait_until "claim $claim has an event that says so" grep -Eq "event +$claim +Normal Bound" "$state/story"
  done
  remember
}

# Shows phases and events of claims as they come, and notes down what was shown.
watch_claims() {
  : >"$state/story"
  watch obc '{.metadata.name}|{.status.phase}|{.status.conditions[?(@.type=="Ready")].reason}{"\n"}' > >(show_claims) &
  watchers+=($!)
  watch events '{.involvedObject.name}|{.type}|{.reason}|{.message}{"\n"}' > >(show_events) &
  watchers+=($!)
}

watch() { exec kubectl --namespace "$namespace" get "$1" --watch --output "jsonpath=$2" 2>/dev/null; }

show_claims() {
  local claim phase reason line
  local -A last
  while IFS='|' read -r claim phase reason; do
    [[ $reason != "$phase" ]] || reason=
    printf -v line '  claim  %-8s %s' "$claim" "${phase:-(new)}${reason:+ $reason}"
    [[ $line = "${last[$claim]-}" ]] || tee -a "$state/story" <<<"$line"
    last[$claim]=$line
  done
}

show_events() {
  local claim type reason message
  while IFS='|' read -r claim type reason message; do
    printf '  event  %-8s %s %s: %s\n' "$claim" "$type" "$reason" "$message" | tee -a "$state/story"
  done
}

# What has to be known later of what is deleted by then.
remember() {
  local record claim
  for claim in $greenfield $brownfield; do
    record=$(in_namespace get obc "$claim" --output 'jsonpath={.spec.objectBucketName}')
    records[$claim]=$record
    users[$claim]=$(kube get ob "$record" --output 'jsonpath={.spec.additionalState.UserName}')
    buckets[$claim]=$(in_namespace get configmap "$claim" --output 'jsonpath={.data.BUCKET_NAME}')
    environments[$claim]=$(environment_of "$claim")
    [[ -n $record && -n ${users[$claim]} && -n ${buckets[$claim]} ]] || fail "claim $claim is Bound, but its outputs are not complete"
  done
  echo
  in_namespace get obc,ob,secret,configmap --selector bucket-provisioner --show-kind 2>/dev/null |
    sed 's/^/  /; s/ *$//' | cut -c1-150
}

# What `envFrom` of the claim's Secret and ConfigMap gives to a container.
# shellcheck disable=SC2016 # expanded by kubectl
environment_of() {
  in_namespace get secret "$1" --output \
    go-template='{{range $key, $value := .data}}{{$key}}={{base64decode $value}}{{"\n"}}{{end}}'
  in_namespace get configmap "$1" --output \
    go-template='{{range $key, $value := .data}}{{$key}}={{$value}}{{"\n"}}{{end}}'
}

# --- The app's part ------------------------------------------------------------

use_buckets() {
  use_bucket $greenfield "${buckets[$brownfield]}"
  use_bucket $brownfield "${buckets[$greenfield]}"
}

use_bucket() {
  local claim=$1 other=$2
  heading "The app of claim $claim"
  say "its environment holds these, from the claim's Secret and ConfigMap, and nothing else:"
  cut -d= -f1 <<<"${environments[$claim]}" | paste -sd' ' | fold -sw 76 | sed 's/^/      /; s/ *$//'
  run_app "$claim" "$other" || fail "the app of claim $claim cannot use its bucket as it should"
  grep -q "^refused s3://$other/" "$state/app" || fail "the app of claim $claim was not refused on bucket $other"
}

# The app says what it does; the shell that sets its environment adds nothing.
run_app() {
  local claim=$1 other=$2
  # shellcheck disable=SC2016 # expanded by the shell that is started
  env -i "$(type -P bash)" -c '
    while IFS= read -r entry; do export "$entry"; done
    unset PWD OLDPWD SHLVL
    exec "$@"' app "$PWD/$app" "$other" <<<"${environments[$claim]}" 2>&1 | tee "$state/app" | sed 's/^/  /'
}

# --- The way back --------------------------------------------------------------

delete_claims() {
  heading "The user deletes both claims"
  s3 PUT "/${buckets[$greenfield]}/left-behind.txt" --data-binary "deleted with its bucket"
  expect 200 "put an object into bucket ${buckets[$greenfield]}"
  say "bucket ${buckets[$greenfield]} still holds an object: left-behind.txt"
  in_namespace delete obc $greenfield $brownfield --wait=false >/dev/null
  local claim
  for claim in $greenfield $brownfield; do
    wait_until "claim $claim is gone" in_namespace wait --for delete --timeout 2s "obc/$claim"
    wait_until "claim $claim has an event that says so" grep -Eq "event +$claim +Normal Removed" "$state/story"
  done
}

check_removal() {
  heading "What is left: asked in the cluster and in AWS"
  local claim
  for claim in $greenfield $brownfield; do
    gone "Secret $claim" in_namespace get secret "$claim"
    gone "ConfigMap $claim" in_namespace get configmap "$claim"
    gone "ObjectBucket ${records[$claim]}" kube get ob "${records[$claim]}"
    check_user "${users[$claim]}"
    check_key "$claim"
  done
  s3 GET "/${buckets[$greenfield]}"
  expect 404 "look for bucket ${buckets[$greenfield]}"
  say "gone   bucket ${buckets[$greenfield]}"

  s3 GET "/$archive/report.txt"
  expect 200 "get report.txt from bucket $archive, which must still be there"
  [[ $body = "$report" ]] || fail "report.txt in bucket $archive is not what it was: $body"
  s3 GET "/$archive"
  expect 200 "list bucket $archive"
  [[ $(grep -o '<Key>' <<<"$body" | wc -l) = 1 ]] || fail "bucket $archive holds something else than report.txt: $body"
  say "there  bucket $archive with report.txt, as before"
}

gone() {
  local what=$1 answer
  shift
  answer=$("$@" --ignore-not-found --output name) || fail "cannot look for $what"
  [[ -z $answer ]] || fail "$what is still there"
  say "gone   $what"
}

check_user() {
  local user=$1
  iam "GetUser&UserName=$user"
  expect 404 "look for IAM user $user"
  iam "ListAccessKeys&UserName=$user"
  [[ $body != *"<AccessKeyId>"* ]] || fail "IAM user $user still has an access key"
  iam "ListUserPolicies&UserName=$user"
  [[ $body != *"<member>"* ]] || fail "IAM user $user still has a policy"
  say "gone   IAM user $user, its key and its policy"
}

# The proof of the pudding: an app that still has the key gets nowhere.
check_key() {
  local claim=$1
  ! run_app "$claim" "${buckets[$claim]}" >/dev/null || fail "the key of claim $claim still works"
  grep -Eq 'InvalidAccessKeyId|AccessDenied|InvalidClientTokenId' "$state/app" ||
    fail "the key of claim $claim fails for another reason than being refused: $(tail -n 5 "$state/app")"
  say "gone   access with the key that claim $claim had: refused"
}

stop_operator() {
  heading "The operator is stopped"
  local pid deadline=$((SECONDS + 12))
  pid=$(operator_pid)
  running operator || fail "the operator has ended by itself"
  kill -TERM "$pid"
  while running operator; do
    ((SECONDS < deadline)) || fail "the operator does not stop within 10 s of SIGTERM"
    sleep 0.05
  done
  grep -q 'stopped' "$log" || fail "the operator did not end as it should"
  no_secrets_in "$log"
  say "it stopped when it was told to; no secret key is in its log"
}

no_secrets_in() {
  local claim secret
  for claim in $greenfield $brownfield; do
    secret=$(sed -n 's/^AWS_SECRET_ACCESS_KEY=//p' <<<"${environments[$claim]}")
    ! grep -qF -e "$secret" "$1" || fail "the secret key of claim $claim is in $1"
  done
}

# --- The end -------------------------------------------------------------------

summary() {
  heading "Summary: all of this was seen to be true, in $SECONDS s"
  say "claim $greenfield got a new bucket, and claim $brownfield access to one that existed"
  say "an app with nothing but its claim's environment used its bucket, and was refused on the other"
  say "with the claims went bucket, users, keys, policies, ObjectBuckets, Secrets and ConfigMaps"
  say "the bucket that existed before, and its object, are as they were"
}

how_to_use() {
  # What --stop needs to know.
  stop_watching
  declare -p cluster_is_ours aws_is_ours archive provisioner made bucket_made stack_begun >"$state/kept"
  heading "Everything is left running (after $SECONDS s)"
  cat <<END
  to use it in another shell:
      eval "\$(hack/stack.sh env --name $stack)"
      kubectl get obc,secret,configmap --namespace $namespace
      kubectl describe obc $greenfield --namespace $namespace
      kubectl delete obc $greenfield --namespace $namespace
  the operator's log:
      tail -f $log
  to stop all of it:
      hack/demo.sh --stop $stack
END
}

# Removes all that was made. A stack of our own goes as a whole; in the user's
# cluster or AWS each thing goes by itself, claims first, for as long as there is
# an operator.
clean_up() {
  stop_watching
  if [[ ! $cluster_is_ours || ! $aws_is_ours ]] && ((${#made[@]})); then remove_what_was_made; fi
  stop_all
  [[ ! $stack_begun ]] || hack/stack.sh down --name "$stack"
  rm -rf "$state"
}

stop_watching() {
  local watcher
  for watcher in "${watchers[@]}"; do
    if kill "$watcher" 2>/dev/null; then wait "$watcher" 2>/dev/null || true; fi
  done
  watchers=()
}

remove_what_was_made() {
  local i left=()
  if [[ -n $(in_namespace get obc --output name 2>/dev/null) ]]; then
    running operator || run_operator
    in_namespace delete obc --all --timeout "${limit}s" --request-timeout 0 >/dev/null || {
      # The rest is what an operator needs to remove them.
      printf 'left behind: %s\n' "the claims in namespace $namespace, of provisioner $provisioner" "${made[@]}" >&2
      return
    }
  fi
  for ((i = ${#made[@]} - 1; i >= 0; i--)); do
    # shellcheck disable=SC2086 # a name and, for some, a namespace
    kube delete ${made[i]} --ignore-not-found --request-timeout 0 --timeout "${limit}s" >/dev/null || left+=("${made[i]}")
  done
  if [[ $bucket_made ]]; then
    (s3 DELETE "/$archive/report.txt" && s3 DELETE "/$archive" && expect 204 "delete bucket $archive") || left+=("bucket $archive")
  fi
  ((${#left[@]} == 0)) || printf 'left behind: %s\n' "${left[@]}" >&2
}

on_exit() {
  local code=$?
  # A second Ctrl-C would leave behind what the first is clearing away.
  trap "" INT TERM HUP
  if [[ $code = 0 && $keep ]]; then return; fi
  set +e
  if ((code)) && [[ -f $log ]]; then
    printf '\nthe last lines of the operator'\''s log:\n' >&2
    tail -n 25 "$log" >&2
  fi
  clean_up
  ((code == 0)) || printf '\nThe demo FAILED (exit code %s).\n' "$code" >&2
  exit "$code"
}

keep='' stack=demo-$$ stop=''
while (($#)); do
  case $1 in
    --keep) keep=yes ;;
    --stop)
      (($# > 1)) || fail "--stop needs the name that --keep said"
      stop=yes stack=$2
      shift
      ;;
    -h | --help) usage && exit ;;
    *) fail "unknown argument: $1; see $0 --help" ;;
  esac
  shift
done
[[ $stack =~ ^demo-[0-9]+$ ]] || fail "not a name of a demo: $stack"

# The folder of hack/stack.sh; no stack can have a name with a dot.
state=${XDG_RUNTIME_DIR:-${TMPDIR:-/tmp}}/aws-s3-provisioner-$UID/$stack.demo
readonly log=$state/logs/operator.log report='the report of last year'
archive=company-archive provisioner=aws-s3.io/bucket
cluster_is_ours=yes aws_is_ours=yes stack_begun='' bucket_made=''
made=() watchers=()
declare -A records users buckets environments

if [[ $stop ]]; then
  [[ -O $state/kept ]] || fail "$stack does not run"
  # shellcheck source=/dev/null # written by how_to_use
  source "$state/kept"
  environment=$(hack/stack.sh env --name "$stack") && eval "$environment"
  clean_up
  exit
fi

trap on_exit EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

build
start_stack
prepare
start_operator
claim_buckets
use_buckets
if [[ $keep ]]; then
  how_to_use
  exit
fi
delete_claims
check_removal
stop_operator
summary
