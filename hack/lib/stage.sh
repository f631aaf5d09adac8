# shellcheck shell=bash
# What the demo and the bench share: a stack of their own, $stack, a folder beside it, $state, and an end that leaves
# nothing behind, whatever the cause. `clean_up` of the script removes what is its own.

# The folder of hack/stack.sh; no stack can have a name with a dot.
set_stage() { state=${XDG_RUNTIME_DIR:-${TMPDIR:-/tmp}}/aws-s3-provisioner-$UID/$stack.stage; }

enter_stage() {
  trap leave_stage EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
}

begin_stack() {
  mkdir -p "$state"/{run,logs,tmp}
  hack/stack.sh up --name "$stack" "${stack_options[@]}"
}

leave_stage() {
  local code=$?
  # A second Ctrl-C would leave behind what the first is clearing away.
  trap "" INT TERM HUP
  if [[ $code = 0 && ${keep-} ]]; then return; fi
  set +e
  stop_builds
  # Not `log`, which is one file to the demo.
  local ended
  for ended in "$state"/logs/*.log; do
    ((code == 0)) || [[ ! -f $ended ]] || printf '\nthe end of %s:\n%s\n' "${ended##*/}" "$(tail -n 25 "$ended")" >&2
  done
  strike_stage
  ((code == 0)) || printf '\n%s FAILED (exit code %s).\n' "$0" "$code" >&2
  exit "$code"
}

# Stops and removes all of it.
strike_stage() {
  clean_up
  stop_all
  hack/stack.sh down --name "$stack"
  rm -rf "$state"
}

# Builds what cargo makes of the arguments and, at the same time, what `stack.sh up` needs with the options in
# $stack_options. Fails as soon as one of them fails. Each is a group of processes, which `stop_builds` ends.
build_with_stack() {
  local i ended
  # No terminal for its messages: a line that is drawn again and again would be torn by those of cargo.
  setsid hack/stack.sh build "${stack_options[@]}" </dev/null 2> >(cat >&2) &
  builds=($!)
  setsid cargo build --locked "$@" </dev/null &
  builds+=($!)
  while ((${#builds[@]})); do
    wait -n -p ended "${builds[@]}" || fail "the build failed"
    for i in "${!builds[@]}"; do [[ ${builds[i]} != "$ended" ]] || unset "builds[i]"; done
  done
}

stack_options=() builds=()
stop_builds() {
  local pid
  for pid in "${builds[@]}"; do kill -TERM -- "-$pid" 2>/dev/null || true; done
  for pid in "${builds[@]}"; do wait "$pid" 2>/dev/null || true; done
}
