#!/usr/bin/env bash
# The volume provisioner from end to end, for people who watch and for machines that check: claims become directories,
# something is written there, and deletion removes all of it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

usage() {
  cat <<'END'
usage: examples/hostpath-provisioner/demo.sh [--programs FOLDER]

Builds the provisioner, starts a Kubernetes API server with its volume controllers on
this machine, and shows how claims become directories and go again. Every step is
checked: exit code 0 means that all of it is true. There is no kubelet, so the file
that a pod would write is written by this script. It needs root, because directories
are given to a group.

  --programs  uses the program hostpath-provisioner in FOLDER instead of building it
END
}

umask 022
source hack/lib/common.sh
source hack/lib/processes.sh
source hack/lib/stage.sh

readonly example=examples/hostpath-provisioner
# What must be true soon is true within this many seconds.
readonly patience=60
say() { printf '  %s\n' "$*"; }
fail() { printf '\nerror: %s\n' "$*" >&2 && exit 1; }
heading() { printf '\n== %s\n' "$*"; }
# Runs a command and shows both, the command as a reader would type it.
show() { printf '  $ %s\n' "$*" && "$@" | sed 's/^/  /; s/ *$//'; }
clean_up() { :; }

admin_prepares() {
  heading "The admin: permissions and StorageClasses"
  show kubectl apply -f "$example/rbac.yaml" -f "$example/class.yaml"
  sed 's/name: example-hostpath/name: kept-hostpath/; $a reclaimPolicy: Retain' "$example/class.yaml" | kubectl apply -f - | sed 's/^/  /'
}

# The provisioner of node $1 has the rights of its ServiceAccount, and no others. More arguments are its own.
provisioner_starts() {
  local node=$1 kubeconfig=$state/$1.kubeconfig
  shift
  mkdir -p "$state/$node"
  if [[ ! -f $kubeconfig ]]; then
    (
      umask 077
      kubectl config view --minify --raw >"$kubeconfig"
      kubectl --kubeconfig "$kubeconfig" config set-credentials provisioner \
        --token "$(kubectl create token hostpath-provisioner --namespace hostpath-provisioner)" >/dev/null
      kubectl --kubeconfig "$kubeconfig" config set-context --current --user provisioner >/dev/null
    )
  fi
  start "$node" NODE_NAME="$node" PV_DIR="$state/$node" KUBECONFIG="$kubeconfig" "$built/hostpath-provisioner" \
    --lease-namespace hostpath-provisioner "$@"
  wait_for "$node" "$patience" grep -q 'serving claims' "$state/logs/$node.log"
  say "it serves claims; its log is $state/logs/$node.log"
}

# A claim as in claim.yaml, with name $1 and class $2; waits until it is bound, and sets $volume and $directory.
user_claims() {
  sed "s/name: hostpath/name: $1/; s/storageClassName: .*/storageClassName: $2/" "$example/claim.yaml" | kubectl create -f - | sed 's/^/  /'
  show kubectl wait --for 'jsonpath={.status.phase}=Bound' --timeout "${patience}s" "pvc/$1"
  volume=$(kubectl get pvc "$1" --output 'jsonpath={.spec.volumeName}')
  directory=$(kubectl get pv "$volume" --output 'jsonpath={.spec.hostPath.path}')
  [[ -d $directory ]] || fail "$directory is not a directory"
}

volume_lives_and_goes() {
  heading "A user: a claim, and a directory for it"
  user_claims hostpath example-hostpath
  show kubectl get pv
  show kubectl get events --field-selector involvedObject.name=hostpath --output 'custom-columns=REASON:.reason,MESSAGE:.message'
  say "a pod would see $directory; this script writes there instead"
  touch "$directory/SUCCESS"
  show ls "$state/node-1" "$directory"
  heading "The user deletes the claim"
  show kubectl delete pvc hostpath --timeout "${patience}s"
  show kubectl wait --for delete --timeout "${patience}s" "pv/$volume"
  [[ ! -e $directory ]] || fail "$directory is still there"
  say "gone   the claim, the volume and its directory"
}

volume_is_retained() {
  heading "A class that retains volumes"
  user_claims kept kept-hostpath
  touch "$directory/SUCCESS"
  show kubectl delete pvc kept --timeout "${patience}s"
  show kubectl wait --for 'jsonpath={.status.phase}=Released' --timeout "${patience}s" "pv/$volume"
  [[ -e $directory/SUCCESS ]] || fail "$directory/SUCCESS no longer exists"
  say "kept   $directory/SUCCESS"
}

two_identities() {
  heading "A provisioner of another node beside it"
  provisioner_starts node-2
  local claim owner nodes=()
  for claim in one two three four; do
    user_claims "$claim" example-hostpath
    owner=$(kubectl get pv "$volume" --output 'jsonpath={.metadata.annotations.hostPathProvisionerIdentity}')
    [[ $directory = "$state/$owner/"* ]] || fail "$directory is not on $owner"
    say "claim $claim has a directory on $owner"
    nodes+=("$volume")
  done
  show kubectl delete pvc one two three four --timeout "${patience}s"
  show kubectl wait --for delete --timeout "${patience}s" "${nodes[@]/#/pv/}"
  [[ ! $(ls -A "$state/node-2") ]] || fail "something is left on node-2"
  say "gone   all of them, each by the provisioner of its node"
}

programs=
while (($#)); do
  case $1 in
    --programs)
      (($# > 1)) || fail "--programs needs a folder; see $0 --help"
      programs=$(from_outside "$2") && shift
      ;;
    -h | --help) usage && exit ;;
    *) fail "unknown argument: $1; see $0 --help" ;;
  esac
  shift
done
stack=volumes-$$ volume='' directory=''
set_stage
enter_stage
unset KUBECONFIG AWS_ENDPOINT_URL AWS_S3_PROVISIONER_STACK
readonly built=${programs:-${CARGO_TARGET_DIR:-$PWD/target}/debug}

if [[ $programs ]]; then
  [[ -x $built/hostpath-provisioner ]] || fail "--programs: there is no program hostpath-provisioner in $programs"
else
  heading "Building the provisioner and, unless you have it, a Kubernetes API server"
  build_with_stack --package hostpath-provisioner
fi
heading "Starting a Kubernetes API server"
begin_stack
environment=$(hack/stack.sh env --name "$stack")
eval "$environment"
admin_prepares
heading "The provisioner of node-1"
provisioner_starts node-1
volume_lives_and_goes
volume_is_retained
two_identities
for node in node-1 node-2; do running "$node" || fail "the provisioner of $node has ended by itself"; done
heading "All of this was seen to be true, in $SECONDS s."
