# shellcheck shell=bash
# The processes of one stack. Each has a file $state/run/NAME with its id and its
# start time, and a log $state/logs/NAME.log.

# Prints the start time of process $1, in clock ticks since the machine's start;
# fails if there is no such process, or only its zombie.
start_time() {
  local stat fields
  { stat=$(<"/proc/$1/stat"); } 2>/dev/null || return
  # The second field, the program's name, may hold blanks and ends with a ")".
  read -ra fields <<<"${stat##*) }"
  [[ ${fields[0]} != Z ]] && echo "${fields[19]}"
}

# Starts process $1 with the command that follows, so that it outlives this
# script and the terminal. It sees nothing of the user's environment: etcd and
# ministack would take settings from there, and AWS keys have no place in them.
start() {
  local name=$1
  shift
  say "starting $name"
  setsid env -i PATH="$PATH" HOME="$state" TMPDIR="$state/tmp" "$@" \
    >"$state/logs/$name.log" 2>&1 </dev/null 8<&- &
  printf '%s %s\n' $! "$(start_time $! || echo 0)" >"$state/run/$name"
  # Not a job of this shell any more, which would report its end.
  disown $!
}

# Whether process $1 runs. An id alone proves nothing: it may have been given to
# a process of somebody else since.
running() {
  local pid began
  read -r pid began <"$state/run/$1" && [[ $(start_time "$pid") = "$began" ]]
}

# Waits until the command that follows succeeds, at most $2 seconds, or until
# process $1 ends.
wait_for() {
  local name=$1 limit=$2 deadline=$((SECONDS + $2)) problem=
  shift 2
  until "$@" &>/dev/null; do
    if ! running "$name"; then
      problem="$name ended"
    elif ((SECONDS >= deadline)); then
      problem="$name is not ready after $limit s"
    fi
    if [[ $problem ]]; then
      say "the last lines of the log of $name:"
      tail -n 25 "$state/logs/$name.log" >&2
      fail "$problem"
    fi
    sleep 0.1
  done
}

# Prints the names of all processes that were started.
started() { [[ ! -d $state/run ]] || ls "$state/run"; }

# Stops all processes, and what they started, at once: their data is removed, too.
stop_all() {
  local name
  for name in $(started); do send_kill "$name"; done
  for name in $(started); do
    while running "$name"; do sleep 0.05; done
  done
}

# Stops process $1, if it was started.
stop() {
  [[ -f $state/run/$1 ]] || return 0
  send_kill "$1"
  while running "$1"; do sleep 0.05; done
}

send_kill() {
  local pid
  running "$1" || return 0
  read -r pid _ <"$state/run/$1"
  kill -KILL -- "-$pid" "$pid" 2>/dev/null || true
}
