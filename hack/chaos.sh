#!/usr/bin/env bash
# Anything at any time, for as long as one likes: tests/it/chaos.rs on a stack of
# its own.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'END'
usage: hack/chaos.sh [--seed S] [--rounds N]

Claims are created, edited and deleted, and their outputs harmed, while the
operator is killed and started again, both servers fail, watches end, permissions
are withdrawn and classes go and come back. After each of N rounds (20 by default)
all of that stops, and each claim has to be usable, or gone without a trace.

  --seed S  where the dice begin; the seed of a run is printed when it begins and
            when it fails
END
}

source hack/lib/common.sh

seed=$(od -An -N4 -tu4 /dev/urandom) rounds=20
seed=${seed// /}
while (($#)); do
  case $1 in
    --seed | --rounds)
      [[ ${2-} =~ ^[0-9]+$ ]] || fail "$1 needs a number"
      printf -v "${1#--}" '%s' "$2"
      shift
      ;;
    -h | --help) usage && exit ;;
    *) fail "unknown argument: $1; see $0 --help" ;;
  esac
  shift
done

stack=chaos-$$
finish() {
  local code=$?
  trap "" INT TERM HUP
  hack/stack.sh down --name "$stack"
  ((code == 0)) || say "again: hack/chaos.sh --seed $seed --rounds $rounds"
  exit "$code"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

say "chaos with seed $seed, $rounds rounds"
# What this shell has is not to be put into chaos.
unset KUBECONFIG AWS_ENDPOINT_URL AWS_S3_PROVISIONER_STACK
hack/stack.sh up --name "$stack"
environment=$(hack/stack.sh env --name "$stack")
eval "$environment"
CHAOS_SEED=$seed CHAOS_ROUNDS=$rounds cargo test --locked --package aws-s3-provisioner --test it -- --nocapture chaos::
