#!/usr/bin/env bash
# A real Kubernetes control plane and an emulated AWS on this machine, for the
# tests, the demo and a developer at the keyboard. No container engine is needed.
set -euo pipefail

usage() {
  cat <<'END'
usage: hack/stack.sh up|down|env|status|build [--name NAME] [--with-other] [--with-seaweedfs]
                                             [--with-moto] [--without-controllers]

  up      starts the stack NAME (`default`) and waits until it is ready; harmless
          if it runs already. With --with-other there is another cluster as well,
          on the same AWS: some tests need one. It is a stack of its own,
          NAME-other; `env` names it in OTHER_KUBECONFIG, `down` takes it along. With
          --with-seaweedfs there is a store beside AWS, SeaweedFS, for tests of stores
          that are not AWS; `env` names it in SEAWEEDFS_URL, with admin credentials.
          With --with-moto there is a second AWS emulator, moto, which checks what the
          first does not; `env` names it in MOTO_URL.
          With --without-controllers there is no kube-controller-manager: nothing
          collects garbage, and namespaces that are deleted stay. Another `up`
          without that option adds it
  env     prints what a shell needs to use it: eval "$(hack/stack.sh env)"
  status  prints what runs; exit code 1 if the stack is not up
  down    stops it and removes its data
  build   makes the programs that `up` with these options would make at its first run

Stacks of different names run side by side. A stack is etcd, kube-apiserver and
kube-controller-manager (garbage collector, namespaces, service accounts), built
from Go modules once, and the AWS emulator ministack (S3, IAM, STS). What service
accounts do there is in a log, which `env` names in KUBERNETES_AUDIT_LOG.

What the user brings is used instead:
  KUBECONFIG          a cluster that runs; no control plane is started
  OTHER_KUBECONFIG    the same for the other cluster
  AWS_ENDPOINT_URL    an AWS or emulator that runs, with your AWS credentials
  SEAWEEDFS_URL       a SeaweedFS that runs, with its S3 and IAM; admin credentials
                      in SEAWEEDFS_ACCESS_KEY_ID and SEAWEEDFS_SECRET_ACCESS_KEY
  MOTO_URL            a moto that runs
  KUBEBUILDER_ASSETS  a folder with programs of the control plane; what it does
                      not have is built

Needs Linux, bash, curl, openssl, and Go and Python 3 for the first run.
END
}

# Whatever is written here may hold a key or a token.
umask 077
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/lib/common.sh"
source "$here/lib/tools.sh"
source "$here/lib/processes.sh"
source "$here/lib/components.sh"

up() {
  need flock "start one stack at a time"
  need curl "see what is ready"
  need openssl "make a key for service accounts"
  if ! is_up || lacks_controllers; then make_tools; fi
  if starts_seaweedfs; then make_seaweedfs; fi
  if starts_moto; then make_moto; fi
  mkdir -p "$root"
  # In a folder that all may write to, anybody could have made it first.
  [[ -O $root && ! -L $root ]] || fail "$root belongs to somebody else"
  chmod 700 "$root"
  exec 8<"$root"
  lock 8
  if is_up; then
    [[ $(<"$state/brought") = "$(what_is_brought)" ]] ||
      fail "stack $stack runs with another KUBECONFIG or AWS_ENDPOINT_URL; stop it first: $0 down --name $stack"
    say "stack $stack is up already"
  else
    [[ ! -e $state ]] || say "replacing what is left of an earlier stack $stack"
    discard
    discard_on_exit=yes
    launch
    discard_on_exit=
    say "stack $stack is up, in $SECONDS s"
  fi
  if starts_seaweedfs && [[ ! -f $state/seaweedfs.env ]]; then
    # One that an earlier run did not wait for.
    stop seaweedfs
    start_seaweedfs "$(free_ports 8)"
  fi
  if starts_moto && [[ ! -f $state/moto.env ]]; then
    stop moto
    start_moto "$(free_ports 1)"
  fi
  if lacks_controllers; then start_controllers; fi
  exec 8<&-
}

# Whether the stack has no kube-controller-manager, but should.
lacks_controllers() { [[ $with_controllers && ! -f $state/run/kube-controller-manager ]] && ! brought KUBECONFIG; }

# Whether the stack has a SeaweedFS of its own to be started.
starts_seaweedfs() { [[ $with_seaweedfs ]] && ! brought SEAWEEDFS_URL; }

starts_moto() { [[ $with_moto ]] && ! brought MOTO_URL; }

# Starts the other cluster: to its stack, the AWS of this one is brought along.
up_other() {
  ! brought OTHER_KUBECONFIG || return 0
  (
    trap on_exit EXIT
    # shellcheck source=/dev/null
    AWS_ENDPOINT_URL=$(source "$state/env" && echo "$AWS_ENDPOINT_URL")
    unset KUBECONFIG AWS_S3_PROVISIONER_STACK
    with_seaweedfs=
    with_moto=
    select_stack "$stack-other"
    up
  )
}

launch() {
  local first
  mkdir -p "$state"/{run,logs,tmp}
  what_is_brought >"$state/brought"
  first=$(free_ports 4)
  if brought KUBECONFIG; then
    use_cluster
  else
    start_control_plane "$first"
    [[ ! $with_controllers ]] || start_controllers
  fi
  if brought AWS_ENDPOINT_URL; then use_endpoint; else start_emulator $((first + 3)); fi
  # Comes last: a stack that has it is complete.
  write_env >"$state/env.partial"
  mv "$state/env.partial" "$state/env"
}

what_is_brought() {
  local variable
  for variable in KUBECONFIG AWS_ENDPOINT_URL; do
    ! brought $variable || echo "$variable=${!variable}"
  done
}

write_env() {
  local kubectl assets
  kubectl=$(program kubectl)
  assets=$(dirname "$kubectl")
  printf 'export %s=%q\n' KUBECONFIG "$kubeconfig" KUBEBUILDER_ASSETS "$assets" \
    AWS_ENDPOINT_URL "$endpoint" \
    AWS_S3_PROVISIONER_STACK "KUBECONFIG=$kubeconfig KUBEBUILDER_ASSETS=$assets AWS_ENDPOINT_URL=$endpoint"
  brought KUBECONFIG || printf 'export KUBERNETES_AUDIT_LOG=%q\n' "$state/logs/audit.log"
  if brought AWS_ENDPOINT_URL; then
    printf 'export AWS_REGION=%q AWS_DEFAULT_REGION=%q\n' "${AWS_REGION:-us-west-1}" "${AWS_REGION:-us-west-1}"
  else
    echo 'export AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test AWS_REGION=us-west-1 AWS_DEFAULT_REGION=us-west-1'
    # Each of these would lead an AWS SDK past the emulator, or to other keys.
    echo 'unset AWS_PROFILE AWS_SESSION_TOKEN AWS_IGNORE_CONFIGURED_ENDPOINT_URLS' \
      'AWS_ENDPOINT_URL_S3 AWS_ENDPOINT_URL_IAM AWS_ENDPOINT_URL_STS'
    # It has an AWS SDK.
    printf 'export AWS_EMULATOR_PYTHON=%q\n' "$emulator/bin/python"
  fi
  # A kubectl that the user's PATH has needs no place in front of it.
  # shellcheck disable=SC2016 # expanded where it is used
  [[ $(command -v kubectl) = "$kubectl" ]] || printf 'export PATH=%q:"$PATH"\n' "$assets"
}

# Whether the stack is complete and all of it runs.
is_up() {
  local process
  [[ -f $state/env ]] || return
  for process in $(started); do running "$process" || return; done
}

down() {
  [[ -e $state || -e $state-other ]] || {
    say "stack $stack is not up"
    return
  }
  exec 8<"$root"
  lock 8
  select_stack "$stack-other"
  discard
  select_stack "${stack%-other}"
  discard
  say "stack $stack is stopped and its data removed"
}

discard() {
  stop_all
  rm -rf "$state"
}

environment() {
  is_up || fail "stack $stack is not up; to start it: $0 up --name $stack"
  cat "$state/env"
  [[ ! -f $state/seaweedfs.env ]] || cat "$state/seaweedfs.env"
  [[ ! -f $state/moto.env ]] || cat "$state/moto.env"
  [[ -f $state-other/env ]] || return 0
  printf 'export OTHER_KUBECONFIG=%q\n' "$state-other/kubeconfig"
  # shellcheck disable=SC2016 # expanded where it is used
  printf 'export AWS_S3_PROVISIONER_STACK="$AWS_S3_PROVISIONER_STACK "%q\n' "OTHER_KUBECONFIG=$state-other/kubeconfig"
}

status() {
  local process pid
  for process in $(started); do
    read -r pid _ <"$state/run/$process"
    if running "$process"; then
      echo "$process: runs, process $pid, log $state/logs/$process.log"
    else
      echo "$process: does not run, log $state/logs/$process.log"
    fi
  done
  is_up || {
    echo "stack $stack is not up"
    return 1
  }
  # What the user brought is not among the processes.
  cat "$state/brought"
  echo "stack $stack is up in $state"
}

on_exit() {
  local code=$?
  # A second Ctrl-C would leave behind what the first is clearing away.
  trap "" INT TERM HUP
  stop_build
  [[ -z ${discard_on_exit:-} ]] || discard
  exit "$code"
}

# Makes the functions above work on stack $1.
select_stack() {
  stack=$1
  state=$root/$stack
}

command=
name=default
with_other=
with_seaweedfs=
with_moto=
with_controllers=yes
while (($#)); do
  case $1 in
    up | down | env | status | build) command=$1 ;;
    --name)
      (($# > 1)) || fail "--name needs a name"
      name=$2
      shift
      ;;
    --name=*) name=${1#*=} ;;
    --with-other) with_other=yes ;;
    --with-seaweedfs) with_seaweedfs=yes ;;
    --with-moto) with_moto=yes ;;
    --without-controllers) with_controllers= ;;
    -h | --help) usage && exit ;;
    *) fail "unknown argument: $1; see $0 --help" ;;
  esac
  shift
done
[[ $name =~ ^[a-z0-9][a-z0-9-]{0,39}$ ]] || fail "a name is 1 to 40 of a-z, 0-9 and -: '$name'"
root=${XDG_RUNTIME_DIR:-${TMPDIR:-/tmp}}/aws-s3-provisioner-$UID
select_stack "$name"

trap on_exit EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

case $command in
  up)
    up
    [[ ! $with_other ]] || up_other
    say "to use it:  eval \"\$($0 env --name $stack)\""
    say "to stop it: $0 down --name $stack"
    ;;
  down) down ;;
  env) environment ;;
  status) status ;;
  build)
    make_tools
    if starts_seaweedfs; then make_seaweedfs; fi
    if starts_moto; then make_moto; fi
    ;;
  *) usage >&2 && exit 2 ;;
esac
