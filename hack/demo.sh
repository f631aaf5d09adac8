#!/usr/bin/env bash
# The main job from end to end, for people who watch and for machines that check:
# claims become buckets, an app uses them, a deletion is undone, and everything is cleaned up.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'END'
usage: hack/demo.sh [--keep] [--programs FOLDER]
       hack/demo.sh --stop NAME

Builds the operator, starts a Kubernetes API server and an emulated AWS on this
machine, and shows how claims become buckets, how an app uses them, how a deletion
is undone, and how everything is cleaned up. Every step is checked: exit code 0
means that all of it is true.

  --keep      ends while the claims are bound and leaves everything running, to be
              tried out; prints how to use it
  --stop      stops what --keep left running, by the name that it printed
  --programs  uses the programs aws-s3-provisioner, app and owner in FOLDER instead
              of building them

A KUBECONFIG or AWS_ENDPOINT_URL that is set in this shell is used instead of a
cluster or an AWS of the demo's own. There the demo touches nothing that it did not
make, and removes all that it made.
END
}

umask 077
source hack/lib/common.sh
source hack/lib/processes.sh
source hack/lib/stage.sh
source hack/lib/guest.sh

readonly namespace=demo
# What must be true soon is true within this many seconds.
readonly patience=60
say() { printf '  %s\n' "$*"; }
fail() { printf '\nerror: %s\n' "$*" >&2 && exit 1; }
heading() { printf '\n== %s\n' "$*"; }
# Runs a command and shows both, the command as a reader would type it.
show() { printf '  $ %s\n' "$*" && "$@" | sed 's/^/  /; s/ *$//'; }
owner() { "$built/owner" "$@" | sed 's/^/  /'; }

admin_prepares() {
  heading "The admin: custom resources, provisioning credentials, StorageClasses"
  [[ -n ${AWS_ACCESS_KEY_ID:-} && -n ${AWS_SECRET_ACCESS_KEY:-} ]] ||
    fail "AWS_ENDPOINT_URL is set, but not AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY: set the provisioning credentials, too"
  if kubectl get crd objectbucketclaims.objectbucket.io &>/dev/null; then
    say "the cluster has the custom resources already; they are left as they are"
  else
    create <crds/objectbucketclaims.yaml
    create <crds/objectbuckets.yaml
    kubectl wait --for condition=established --timeout "${patience}s" --filename crds/ >/dev/null
  fi
  kubectl create namespace "$namespace" --dry-run=client --output yaml | create
  owner_secret | create
  example storageclass-greenfield | create
  example storageclass-brownfield | sed "s/allowedNamespaces: .*/allowedNamespaces: $namespace/" | create
  example storageclass-managed | sed 's/onDelete: .*/onDelete: purge/' | create
  if [[ $keyless ]]; then
    local issuer
    issuer=$(kubectl get --raw /.well-known/openid-configuration | sed -n 's|.*"issuer":"https://\([^"]*\)".*|\1|p')
    example storageclass-keyless |
      sed "s|onDelete: .*|onDelete: purge|; s|oidcProvider: .*|oidcProvider: arn:aws:iam::000000000000:oidc-provider/$issuer|" | create
  fi
  owner create "$archive"
  bucket_made=yes
  say "class s3-buckets makes a bucket for each claim, and s3-managed one with settings; s3-existing opens the bucket $archive"
  [[ ! $keyless ]] || say "class s3-keyless gives no keys: pods have access as a ServiceAccount"
}

# It gets no keys: it works with those of the class's Secret. It serves one namespace and has its lease there.
operator_starts() {
  heading "The operator"
  start operator KUBECONFIG="$KUBECONFIG" AWS_ENDPOINT_URL="$AWS_ENDPOINT_URL" "$built/aws-s3-provisioner" \
    --provisioner-name "$provisioner" --namespace "$namespace" --lease-namespace "$namespace"
  wait_for operator "$patience" grep -q 'serving claims' "$log"
  say "it serves claims; its log is $log"
}

user_claims() {
  heading "A user: claims, and how they become Bound"
  cat examples/claim-greenfield.yaml - examples/claim-brownfield.yaml <<<--- | sed 's/^/      /'
  show kubectl create --namespace "$namespace" -f examples/claim-greenfield.yaml -f examples/claim-brownfield.yaml
  say "one whose bucket keeps versions, and one whose keys only read:"
  show kubectl create --namespace "$namespace" -f examples/claim-managed.yaml -f examples/claim-reader.yaml
  if [[ $keyless ]]; then
    say "and one for pods of a ServiceAccount, which need no keys:"
    show kubectl create --namespace "$namespace" serviceaccount thumbnails
    show kubectl create --namespace "$namespace" -f examples/claim-keyless.yaml
  fi
  show kubectl wait --namespace "$namespace" --for 'jsonpath={.status.phase}=Bound' --timeout "${patience}s" "${claims[@]/#/obc/}"
  show kubectl get --namespace "$namespace" obc,ob,secret,configmap --selector bucket-provisioner
  local claim
  for claim in "${claims[@]}"; do read_outputs "$claim"; done
}

# What the app of claim $1 gets, and what stands for the claim in the cluster and in AWS.
read_outputs() {
  # shellcheck disable=SC2016 # expanded by kubectl
  environments[$1]=$(kubectl get --namespace "$namespace" "secret/$1" "configmap/$1" --output go-template='
    {{- range .items}}{{$secret := eq .kind "Secret"}}{{range $key, $value := .data -}}
    {{$key}}={{if $secret}}{{base64decode $value}}{{else}}{{$value}}{{end}}{{"\n"}}{{end}}{{end}}')
  buckets[$1]=$(sed -n 's/^BUCKET_NAME=//p' <<<"${environments[$1]}")
  records[$1]=$(kubectl get --namespace "$namespace" obc "$1" --output 'jsonpath={.spec.objectBucketName}')
  users[$1]=$(kubectl get ob "${records[$1]}" --output 'jsonpath={.spec.additionalState.UserName}')
  [[ ${buckets[$1]} && ${records[$1]} && ${users[$1]} ]] || fail "claim $1 is Bound without all of its outputs"
}

# The app of claim $1, with nothing in its environment but what `envFrom` of the claim's Secret and ConfigMap gives.
app() {
  # shellcheck disable=SC2016 # expanded by the shell that is started
  env -i "$BASH" -c 'while IFS= read -r entry; do export "$entry"; done; unset PWD OLDPWD SHLVL; exec "$@"' app \
    "$built/app" "${@:2}" <<<"${environments[$1]}" 2>&1 | sed 's/^/  /'
}

apps_use_buckets() {
  local claim
  for claim in photos archive; do
    heading "The app of claim $claim"
    say "its environment: $(cut -d= -f1 <<<"${environments[$claim]}" | paste -sd' ')"
    if [[ $claim = photos ]]; then app photos "${buckets[archive]}"; else app archive "${buckets[photos]}"; fi
  done
  heading "What class and claim have set"
  owner managed "${buckets[reports]}" "$namespace"
  app archive-reader --read-only
  if [[ $keyless ]]; then
    heading "The app of claim thumbnails, which has no keys"
    ! grep -q ACCESS_KEY <<<"${environments[thumbnails]}" || fail "claim thumbnails has keys"
    say "its environment: $(cut -d= -f1 <<<"${environments[thumbnails]}" | paste -sd' ')"
    # As the kubelet mounts it into a pod.
    kubectl create token thumbnails --namespace "$namespace" --audience sts.amazonaws.com >"$state/tmp/token"
    environments[thumbnails]+=$'\n'AWS_WEB_IDENTITY_TOKEN_FILE=$state/tmp/token
    app thumbnails "${buckets[photos]}"
  fi
}

user_deletes() {
  heading "The user deletes the claims"
  owner put "${buckets[photos]}" left-behind.txt
  show kubectl delete --namespace "$namespace" obc "${claims[@]}" --timeout "${patience}s"
  show kubectl get --namespace "$namespace" events --field-selector involvedObject.kind=ObjectBucketClaim --output \
    'custom-columns=CLAIM:.involvedObject.name,REASON:.reason,MESSAGE:.message'
}

user_undoes() {
  heading "The user needs the photos after all: the same claim again, and it has its bucket"
  local bucket=${buckets[photos]}
  app photos --refused
  show kubectl get ob "${records[photos]}" --output \
    'custom-columns=OBJECTBUCKET:.metadata.name,PHASE:.status.phase,DELETE-AT:.spec.additionalState.deleteAt'
  say "\$ kubectl annotate --local -f examples/claim-greenfield.yaml objectbucket.io/undo-delete=yes --output yaml | kubectl create --namespace $namespace -f -"
  kubectl annotate --local -f examples/claim-greenfield.yaml objectbucket.io/undo-delete=yes --output yaml |
    kubectl create --namespace "$namespace" -f - | sed 's/^/  /'
  show kubectl wait --namespace "$namespace" --for 'jsonpath={.status.phase}=Bound' --timeout "${patience}s" obc/photos
  read_outputs photos
  [[ ${buckets[photos]} = "$bucket" ]] || fail "claim photos has another bucket than before"
  app photos "${buckets[archive]}"
}

admin_deletes() {
  heading "The user deletes it again, and the admin does not wait for 7 days"
  show kubectl delete --namespace "$namespace" obc photos --timeout "${patience}s"
  show kubectl annotate ob "${records[photos]}" objectbucket.io/orphan=remove
  show kubectl wait --for delete --timeout "${patience}s" ob "${records[photos]}"
}

all_is_gone() {
  heading "What is left: asked in the cluster and in AWS"
  local left claim
  left=$(kubectl get --ignore-not-found --output name ob "${records[@]}" &&
    kubectl get --namespace "$namespace" --ignore-not-found --output name obc,secret,configmap --selector bucket-provisioner)
  [[ ! $left ]] || fail "still in the cluster: $left"
  say "gone   claims, ObjectBuckets, Secrets and ConfigMaps"
  owner gone "${buckets[reports]}"
  owner gone "${buckets[photos]}" "${users[@]}"
  [[ ! $keyless ]] || owner gone "${buckets[thumbnails]}"
  for claim in "${claims[@]}"; do [[ $claim = thumbnails ]] || app "$claim" --refused; done
  owner unchanged "$archive"
  running operator || fail "the operator has ended by itself"
  # Patterns on a command line could be seen by others.
  ! grep -qFf <(printf '%s\n' "${environments[@]}" | sed -n 's/^AWS_SECRET_ACCESS_KEY=//p') "$log" ||
    fail "a secret key is in $log"
  heading "All of this was seen to be true, in $SECONDS s. No secret key is in the operator's log."
}

how_to_use() {
  heading "Everything is left running (after $SECONDS s)"
  cat <<END
  to use it in another shell:
      eval "\$(hack/stack.sh env --name $stack)"
      kubectl get obc,secret,configmap --namespace $namespace
      kubectl delete obc photos --namespace $namespace
  to have garbage collected and namespaces deleted, too: hack/stack.sh up --name $stack
  the operator's log: tail -f $log
  to stop all of it:  hack/demo.sh --stop $stack
END
}

keep='' stop='' stack=demo-$$ programs=''
while (($#)); do
  case $1 in
    --keep) keep=yes ;;
    --stop)
      (($# > 1)) || fail "--stop needs the name that --keep printed"
      stop=yes stack=$2 && shift
      ;;
    --programs)
      (($# > 1)) || fail "--programs needs a folder; see $0 --help"
      programs=$(from_outside "$2") && shift
      ;;
    -h | --help) usage && exit ;;
    *) fail "unknown argument: $1; see $0 --help" ;;
  esac
  shift
done
[[ $stack =~ ^demo-[0-9]+$ ]] || fail "--stop needs the name that --keep printed"

set_stage
readonly log=$state/logs/operator.log label=aws-s3-provisioner-demo=$stack
archive=company-archive provisioner=aws-s3.io/bucket bucket_made='' stack_used='' keyless=''
claims=(photos archive reports archive-reader)
declare -A environments buckets records users
if [[ $stop ]]; then
  [[ -O $state ]] || fail "$stack does not run"
  use_stack
  bucket_made=yes
  strike_stage
  exit
fi
enter_stage
# Without it, what a running stack gave to this shell counts as the user's own.
unset AWS_S3_PROVISIONER_STACK
# The operator cleans up itself what it made, so there are no controllers to do so.
stack_options=(--without-controllers)

readonly built=${programs:-${CARGO_TARGET_DIR:-$PWD/target}/debug}
if [[ $programs ]]; then
  for program in aws-s3-provisioner app owner; do
    [[ -x $programs/$program ]] || fail "--programs: there is no program $program in $programs"
  done
else
  heading "Building the operator and the app and, unless you have them, a Kubernetes API server and an AWS"
  build_with_stack --package aws-s3-provisioner --package app --bins
fi
heading "Starting a Kubernetes API server and an AWS"
begin_stack
use_stack
# Another AWS knows nothing of this cluster's tokens.
if ! brought_to_stack KUBECONFIG && ! brought_to_stack AWS_ENDPOINT_URL; then keyless=yes claims+=(thumbnails); fi
admin_prepares
operator_starts
user_claims
apps_use_buckets
if [[ $keep ]]; then how_to_use && exit; fi
user_deletes
user_undoes
admin_deletes
all_is_gone
