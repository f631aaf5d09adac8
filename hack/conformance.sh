#!/usr/bin/env bash
# The conformance kit against somebody's operator, a program made with this
# library: in the cluster of KUBECONFIG, or on a local stack that is removed
# afterwards.
#
# usage: hack/conformance.sh [OPTION]... PROGRAM [-- ARGUMENT OF `cargo test`...]
#
# The operator:
#   --parameter NAME=VALUE  a parameter of its classes; {url} in it stands for
#                           the proxy in front of the store
#   --owner NAME=VALUE      an entry of the Secret with the provisioning
#                           credentials; @FILE as VALUE: the content of that file
#   --env NAME=VALUE        a variable of the program, which has no others
#   --arg ARGUMENT          an argument of the program
#   --store http://...      where the store listens, if operators reach it over
#                           HTTP: calls to it are made to fail
#   --can LIST              greenfield,brownfield,tags,rotation,persistence:
#                           what the store can; default: greenfield
#
# In values, {dir} stands for a folder and {address} for an address such as
# 127.8.7.6:4321 that only one check has; commands have them as CHECK_DIR and
# CHECK_ADDRESS.
#
# The store, past the operator: commands of bash. What has no command is skipped.
#   --inventory COMMAND     prints all with $ID in its name, a line each:
#                           bucket BUCKET, object BUCKET OBJECT, user USER,
#                           key USER ID
#   --remove COMMAND        reads such lines, and removes buckets with their
#                           objects, and users with their keys
#   --create-bucket COMMAND creates $BUCKET with one object, called "theirs"
#   --put COMMAND           writes $OBJECT, with the claim's outputs as variables
#   --list COMMAND          prints the names of the objects, likewise
#
# The five commands go together: --inventory with --remove and --create-bucket,
# --put with --list. Whether users of others are left alone only a Backend in
# Rust checks (create_user, remove_marks, rename_user).
set -euo pipefail

fail() {
  echo "hack/conformance.sh: $1" >&2
  exit 2
}

can=greenfield parameters='' owner='' variables='' arguments='' program=''
while (($#)) && [[ $1 != -- ]]; do
  [[ $1 == --help || $1 == -h ]] && { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0"; exit; }
  if [[ $1 != --* ]]; then
    [[ -z $program ]] || fail "more than one program: $program and $1"
    program=$1
    shift
    continue
  fi
  (($# > 1)) || fail "$1 needs a value; see hack/conformance.sh --help"
  case $1 in
    --parameter) parameters+=$2$'\n' ;;
    --owner) owner+=$2$'\n' ;;
    --env) variables+=$2$'\n' ;;
    --arg) arguments+=$2$'\n' ;;
    --store) export CONFORMANCE_STORE=$2 ;;
    --can) can=$2 ;;
    --inventory) export CONFORMANCE_INVENTORY=$2 ;;
    --remove) export CONFORMANCE_REMOVE=$2 ;;
    --create-bucket) export CONFORMANCE_CREATE_BUCKET=$2 ;;
    --put) export CONFORMANCE_PUT=$2 ;;
    --list) export CONFORMANCE_LIST=$2 ;;
    *) fail "$1 is not an option; see hack/conformance.sh --help" ;;
  esac
  shift 2
done
[[ ${1-} != -- ]] || shift
[[ -n $program ]] || fail "which program? See hack/conformance.sh --help"
[[ -x $program && ! -d $program ]] || fail "$program is not a program"
together() {
  local first=$1 option
  for option in "$@"; do
    [[ -n ${!option-} || -z ${!first-} ]] || fail "some options go together: $*; see hack/conformance.sh --help"
  done
}
together CONFORMANCE_INVENTORY CONFORMANCE_REMOVE CONFORMANCE_CREATE_BUCKET
together CONFORMANCE_PUT CONFORMANCE_LIST
CONFORMANCE_PROGRAM=$(realpath "$program")
export CONFORMANCE_PROGRAM CONFORMANCE_CAN=$can CONFORMANCE_PARAMETERS=$parameters CONFORMANCE_OWNER=$owner
export CONFORMANCE_ENV=$variables CONFORMANCE_ARGS=$arguments
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [[ -z ${KUBECONFIG-} ]]; then
  stack=conformance-$$
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  trap 'hack/stack.sh down --name "$stack"' EXIT
  hack/stack.sh up --name "$stack"
  environment=$(hack/stack.sh env --name "$stack")
  eval "$environment"
fi
# More tests at a time than cargo would run: most of them wait most of the time.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-$((3 * $(nproc)))}
cargo test --locked --package provisioner-conformance --test program -- "$@"
