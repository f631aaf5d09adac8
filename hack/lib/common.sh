# shellcheck shell=bash
# What the scripts of the local stack share: messages, time, locks.

# Messages go to stderr: the standard output of `stack.sh env` is for eval.
say() { printf 'stack: %s\n' "$*" >&2; }

fail() {
  say "error: $*"
  exit 1
}

# A path that the user gave, who is in another folder than the script.
from_outside() { (cd "$OLDPWD" && realpath --canonicalize-missing "$1"); }

# Fails unless program $1 is installed; $2 is its purpose, for the message.
need() { command -v "$1" >/dev/null || fail "$1 is not installed; it is needed to $2"; }

# Whether the user set variable $1, rather than the `env` of one of our stacks:
# in a shell that uses stack `a`, stack `b` can still be started.
brought() {
  [[ -n ${!1:-} && " ${AWS_S3_PROVISIONER_STACK:-} " != *" $1=${!1} "* ]]
}

# Takes the lock on the folder that is open as descriptor $1. A folder is locked
# rather than a file, so that nothing is left behind. Whatever is started under
# a lock has to close the descriptor, or it keeps the lock.
lock() {
  flock -n "$1" && return
  say "waiting for another run of this script"
  until flock -w 30 "$1"; do say "still waiting, $SECONDS s"; done
}

# Waits for process $1 and prints its progress: what it does, $2, and how many packages, lines of file $3, it has
# finished. Fails as it fails.
follow() {
  local pid=$1 what=$2 log=$3 began=$SECONDS elapsed=0 next=0 done=0
  while kill -0 "$pid" 2>/dev/null; do
    done=$(wc -l <"$log")
    if [[ -t 2 ]]; then
      printf '\rstack: %s, %s packages, %s s ' "$what" "$done" "$elapsed" >&2
    elif ((elapsed >= next)); then
      say "$what, $done packages, $elapsed s"
      next=$((next + 30))
    fi
    sleep 1
    elapsed=$((SECONDS - began))
  done
  [[ ! -t 2 ]] || printf '\r\033[K' >&2
  wait "$pid" || return
  say "$what: done, $elapsed s"
}
