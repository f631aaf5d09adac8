#!/usr/bin/env bash
# The tests: first those that need nothing, then those in tests/it and the
# conformance kit of examples/http-provisioner, on stacks of their own that are
# removed afterwards. What this shell has in KUBECONFIG, OTHER_KUBECONFIG,
# AWS_ENDPOINT_URL, SEAWEEDFS_URL and MOTO_URL is used instead, be it clusters and stores
# of yours or a stack that runs:
#
#   hack/stack.sh up --with-other --with-seaweedfs --with-moto; eval "$(hack/stack.sh env)"; hack/test.sh
#
# Of the calls at which operators are killed, and of those that are made to fail,
# one in eight is tried, and SeaweedFS and the mutants of the conformance kit
# (hack/mutants) are left out. With --full nothing is, which takes twice as long.
# With --core only those run that show what an operator needs of Kubernetes, for
# another version of it: with CONTROL_PLANE=oldest, the oldest that is supported.
# Arguments select tests, and leave nothing out of them.
#
# usage: hack/test.sh [--full | --core | ARGUMENT OF `cargo test`...]
set -euo pipefail
[[ ${1-} == --help || ${1-} == -h ]] && { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0"; exit; }

stores=(--with-moto --with-seaweedfs) core='' mutants='' all='' arguments=("$@")
if [[ ${1-} == --full ]]; then
  all=yes mutants=yes arguments=(--)
elif [[ ${1-} == --core ]]; then
  export TEST_SAMPLE=${TEST_SAMPLE:-8}
  core=yes stores=()
  arguments=(-- {access,admission,bad_input,bucket_claims,classes,crds,leader,lifecycle,namespaces,outputs,permissions}::
    {repair,status,takeover,tenants,volumes,waiting}::)
elif (($# == 0)); then
  export TEST_SAMPLE=${TEST_SAMPLE:-8}
  all=yes stores=(--with-moto) arguments=(-- --skip seaweedfs)
fi
cd "$(dirname "${BASH_SOURCE[0]}")/.."

[[ $core ]] || cargo test --locked

stack=test-$$
trap 'exit 130' INT
trap 'exit 143' TERM HUP
trap 'hack/stack.sh down --name "$stack"' EXIT
# Without it, what a running stack gave to this shell counts as the user's own.
unset AWS_S3_PROVISIONER_STACK
hack/stack.sh up --name "$stack" --with-other "${stores[@]}"
environment=$(hack/stack.sh env --name "$stack")
eval "$environment"

# More tests at a time than cargo would run: most of them wait most of the time.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-$((5 * $(nproc)))}
# `cargo test --test it` does not build what its tests start.
cargo build --locked --bins --test program --test mutants
# An earlier run may have used the same cluster.
[[ ! -f ${KUBERNETES_AUDIT_LOG:-} ]] || logged=$(wc -c <"$KUBERNETES_AUDIT_LOG")
if [[ $all ]]; then
  # Each operator reads all that is in the cluster. The first start hundreds of them and leave nothing there; the last leave
  # more than all others.
  first=(conformance:: crash::) last=(faults::)
  cargo test --locked --test it "${arguments[@]}" "${first[@]}"
  cargo test --locked --test conformance "${arguments[@]}"
  [[ ! $mutants ]] || cargo test --locked --test mutants -- each_mutant
  cargo test --locked --test it "${arguments[@]}" "${first[@]/#/--skip=}" "${last[@]/#/--skip=}"
  cargo test --locked --test it "${arguments[@]}" "${last[@]}"
else
  tests=(--test it)
  [[ $core ]] || tests+=(--test conformance)
  cargo test --locked "${tests[@]}" "${arguments[@]}"
fi

# An operator logs little about some refusals, such as that of an event.
if [[ -f ${KUBERNETES_AUDIT_LOG:-} ]]; then
  by_operators='"username":"system:serviceaccount:t-[0-9a-f]*-operators:.*decision":"forbid"'
  call='.*"requestURI":"\([^"?]*\)[^"]*","verb":"\([^"]*\)".*'
  refused=$(tail -c "+$((logged + 1))" "$KUBERNETES_AUDIT_LOG" | sed -n "/$by_operators/s/$call/\2 \1/p" | sort -u)
  [[ ! $refused ]] || {
    printf 'error: deploy/operator.yaml does not allow what operators need:\n%s\n' "$refused" >&2
    exit 1
  }
fi
