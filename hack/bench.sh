#!/usr/bin/env bash
# How fast claims become buckets and go again, what that costs, and how far it is
# from the floor: the same calls and writes without an operator.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'END'
usage: hack/bench.sh [--debug] [--only PART]... [--objects M] [--bound B] [N]

Measures the operator on a stack of its own, and beside it the floor. PARTs:

  claims   N claims (1000 by default), from creation to all Bound and from deletion
           to all gone
  settings N claims of a class with five settings of buckets, as `claims`; and with 50 ms
           added to each answer of AWS
  keyless  N claims of 200 ServiceAccounts, without keys, as `claims`; the ratio is to as many
           with keys
  restart  the operator starts again with N claims bound, and one that waits
  latency  up to 100 claims one after another, from creation to Bound and from deletion
           to gone, with 0, 50 and 300 ms for each call to AWS; and with keys that work
           after 1, 5, 10 and 30 s
  limits   up to 500 claims where an account may make 15, 5 or 50 calls to IAM a second,
           and where that changes halfway; the claims of another account meanwhile
  delay    as `claims`, with 50 ms and with 300 ms added to each answer of AWS, and
           with at most 500 and 200 claims
  purge    a claim is deleted whose bucket holds M objects (20000 by default) and
           M / 4 further versions; with at most 40000 objects the same in folders, with
           150 ms for each call to AWS, and where S3 asks to slow down for the first half
  queue    the buckets of up to 500 claims of one tenant are due to be deleted, and then that
           of another tenant: the time that one takes, beside them and alone
  volumes  N claims for volumes, from creation to all Bound and from deletion to all gone,
           and 50 one after another: the provisioner of directories of examples/, and
           one on the Go library; here the floor only creates and deletes volumes
  many     the operator starts three times with B claims bound (50000 by default) that
           the bench made without AWS; then 1000 of them change, and its metrics are read
           20 times

  --debug  measures debug builds, which are there sooner and run slower

The floor (hack/bench/) makes the same AWS calls and the same Kubernetes writes,
events among them, in the same order for each claim and for 32 claims at once; it
reads and watches nothing. Its processor time is that of creating or deleting the
claims, too. For a restart it lists once what the operator watches, and binds a claim.
END
}

umask 077
source hack/lib/common.sh
source hack/lib/processes.sh
source hack/lib/stage.sh
say() { printf 'bench: %s\n' "$*" >&2; }

n=1000 objects=20000 bound=50000 profile=release parts=()
while (($#)); do
  case $1 in
    --debug) profile=debug ;;
    --only | --objects | --bound)
      (($# > 1)) || fail "$1 needs a value; see $0 --help"
      case $1=$2 in
        --only=claims | --only=settings | --only=keyless | --only=restart | --only=latency | --only=limits | --only=delay | --only=purge | --only=queue | --only=volumes | --only=many) parts+=("$2") ;;
        --objects=[1-9]*) objects=$2 ;;
        --bound=[1-9]*) bound=$2 ;;
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
((${#parts[@]})) || parts=(claims settings keyless restart latency limits delay purge queue volumes many)

# On SIGTERM it stops the operator that it runs.
clean_up() {
  [[ $bench ]] && kill "$bench" 2>/dev/null && wait "$bench"
}

stack=bench-$$ bench=
set_stage
enter_stage
# A cluster or AWS that is elsewhere would add its network to what is measured.
unset KUBECONFIG AWS_ENDPOINT_URL AWS_S3_PROVISIONER_STACK

say "building the operator and the floor ($profile)"
arguments=(--package aws-s3-provisioner --package bench --bins)
[[ $profile = debug ]] || arguments+=(--release)
# One build for both: the floor asks for no feature of a dependency that the operator does not have.
build_with_stack "${arguments[@]}"
target=$(realpath --canonicalize-missing "${CARGO_TARGET_DIR:-target}")/$profile
if [[ " ${parts[*]} " = *' volumes '* ]]; then
  say "building the provisioners of volumes, one with cargo and one with go"
  arguments=(--package hostpath-provisioner)
  [[ $profile = debug ]] || arguments+=(--release)
  cargo build --locked "${arguments[@]}"
  CGO_ENABLED=0 GOWORK=off GOFLAGS='' go build -C hack/bench/go-library -trimpath -ldflags '-s -w' \
    -o "$target/hostpath-provisioner-go" .
fi
begin_stack
environment=$(hack/stack.sh env --name "$stack")
eval "$environment"
# Buckets that stay after their claims would grow in number with each row.
kubectl create namespace aws-s3-provisioner >/dev/null
sed 's/onDelete: .*/onDelete: purge/' examples/storageclass-greenfield.yaml |
  kubectl create -f crds/ -f examples/owner-secret.yaml -f - >/dev/null
kubectl create namespace bench >/dev/null
kubectl wait --for condition=established --timeout 60s -f crds/ >/dev/null

# The operator's log is where it is looked for if something fails.
TMPDIR=$state/logs "$target/bench" "$n" "$objects" "$bound" "${parts[@]}" &
bench=$!
wait "$bench"
bench=
