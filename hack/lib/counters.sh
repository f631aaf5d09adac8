# shellcheck shell=bash
# What is counted of a process and of the API server, and a quotient of two counts.

# Processor time of process $1, in ticks of 10 ms.
cpu_ticks() {
  local stat fields
  stat=$(<"/proc/$1/stat")
  read -ra fields <<<"${stat##*) }"
  echo $((fields[11] + fields[12]))
}

# Line $2 of /proc/PID/status of process $1, in MiB: VmRSS is resident memory, VmHWM the most it was.
memory() { awk -v key="$2:" '$1 == key { printf "%.1f", $2 / 1024 }' "/proc/$1/status"; }

# The sum of the API server's counters of requests whose labels match $1.
requests() {
  kubectl get --raw /metrics |
    awk -v wanted="$1" '/^apiserver_request_total/ && $0 ~ wanted { sum += $NF } END { print sum + 0 }'
}

# Requests that changed something of what the operator writes. What was created and
# deleted for it to do is not among them, and these are the only such requests.
writes() {
  local all made
  all=$(requests 'resource="(objectbucketclaims|objectbuckets|secrets|configmaps)".*verb="(POST|PUT|PATCH|APPLY|DELETE)"')
  made=$(requests 'resource="objectbucketclaims".*verb="(POST|DELETE)"')
  echo $((all - made))
}

events() { requests 'group="events.k8s.io".*resource="events".*verb="POST"'; }

per() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", b == 0 ? 0 : a / b }'; }
