#!/usr/bin/env bash
# The first day in a real AWS account: runs the conformance kit there, and twelve
# experiments about what emulators cannot show, and prints a report. Needs an
# account for tests: it makes buckets, users and policies, and removes them, also
# after Ctrl-C. Needs a cluster of its own, too, because it starts operators: a
# local one, which is removed afterwards.
#
# usage: hack/aws-check.sh --account ID --region REGION [OPTION]...
#
#   --account ID      the account of the credentials in the environment
#                     (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN),
#                     so that no other one is taken by mistake
#   --region REGION   where buckets are made
#   --clean-up RUN    only removes what a run that was killed has left in the
#                     account: check-XXXXXXXX, or t-XXXXXXXX of a check of the kit
#   --kubeconfig FILE  use this cluster instead of a local one, which is removed
#                     afterwards; the CRDs are installed if they are missing, and
#                     stay. KUBECONFIG is not read
#   --operator FILE   use this binary instead of building one
#   --skip-kit        runs the experiments only
#   --kit CHECK       runs only the checks of the kit with this in their names
#   --only N,...      runs only these experiments, by their numbers: 1,3-5
#   --regions R,...   for experiment 2; default: --region and us-east-1
#   --claims N        claims at once, experiment 3; default: 200
#   --early N         claims that are deleted early, experiment 4; default: 100
#   --within SECONDS  spread the deletions over this time; default: 60
#   --versions N      versions to be deleted, experiment 10; default: 10000
#   --timeout SECONDS  how long a claim may take; default: 600
#   --kms-key ARN     a customer managed key, for experiment 6
#   --sts-endpoint URL, --iam-endpoint URL
#                     such as those of PrivateLink, for experiment 7
#   --imported-bucket NAME
#                     a bucket of a CloudFormation stack, for experiment 8
#
# Exit code 0: all is as expected. An AWS_ENDPOINT_URL is used, if it is set.
set -euo pipefail

usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0"; }
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/lib/common.sh"
source "$here/lib/tools.sh"
# As the scripts of the stack do.
say() { printf 'aws-check: %s\n' "$*" >&2; }

child='' folder='' stack='' kit_runs=''

# Runs a command as a session of its own: a signal reaches it only from here.
attend() {
  local code=0
  setsid "$@" &
  child=$!
  wait "$child" || code=$?
  child=
  return "$code"
}

# Ends the child, and waits: main.py removes what it has made. Exit code $1.
interrupted() {
  trap '' INT TERM HUP
  if [[ $child ]]; then
    say "interrupted; waiting until what was made is removed"
    # The kit's children, too. main.py needs its own ones to clean up.
    if [[ $kit_runs ]]; then kill -TERM -- "-$child"; else kill -TERM "$child"; fi 2>/dev/null || true
    wait "$child" || true
  fi
  [[ ! $kit_runs ]] || left_by_kit . || true
  exit "$1"
}

tidy_up() {
  local code=$?
  trap '' INT TERM HUP
  [[ ! $stack ]] || hack/stack.sh down --name "$stack" || code=1
  [[ ! $folder ]] || rm -rf "$folder"
  exit "$code"
}

# Prints what the kit has left in the account, of checks that pattern $1 matches. Fails if there is something.
left_by_kit() {
  local left
  left=$("$python" "$store" names | LC_ALL=C comm -13 "$folder/before" - | grep -e "$1" || true)
  [[ $left ]] || return 0
  say "left by the kit:"
  echo "$left"
  sed -n 's|^\(t-[0-9a-f]*\)-.*|to remove it: hack/aws-check.sh --account '"$account --region $region"' --clean-up \1|p' \
    <<<"$left" | sort -u >&2
  return 1
}

umask 077
kit=all account='' region='' operator='' kubeconfig='' regions='' options=() clean_up=()
while (($#)); do
  case $1 in
    --help | -h) usage && exit ;;
    --skip-kit) kit='' && shift && continue ;;
  esac
  (($# > 1)) || fail "$1 is not an option, or needs a value; see hack/aws-check.sh --help"
  case $1 in
    --account) account=$2 ;;
    --region) region=$2 ;;
    --regions) regions=$2 ;;
    --kit) kit=$2 ;;
    --operator) operator=$(realpath "$2") ;;
    --kubeconfig) kubeconfig=$(realpath "$2") ;;
    --clean-up) clean_up=("$1" "$2") ;;
    --only | --claims | --early | --within | --versions | --timeout | --kms-key | --sts-endpoint | --iam-endpoint | --imported-bucket)
      options+=("$1" "$2")
      ;;
    *) fail "$1 is not an option; see hack/aws-check.sh --help" ;;
  esac
  shift 2
done
[[ $account && $region ]] || fail "--account and --region are needed; see hack/aws-check.sh --help"
[[ ! $kubeconfig || -f $kubeconfig ]] || fail "--kubeconfig $kubeconfig: there is no such file"
[[ ! $operator || -x $operator ]] || fail "--operator $operator is not a program"
[[ ${AWS_ACCESS_KEY_ID-} && ${AWS_SECRET_ACCESS_KEY-} ]] || fail "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
export AWS_REGION=$region AWS_DEFAULT_REGION=$region PYTHONDONTWRITEBYTECODE=1
# Those of a stack in this shell would be used by mistake.
unset KUBECONFIG OTHER_KUBECONFIG AWS_S3_PROVISIONER_STACK
cd "$here/.."

requirements=$here/requirements-aws-check.txt
tools=$cache/aws-check-tools-$(fingerprint "$requirements")
python=$tools/bin/python
store=$here/aws-check/store.py
tools_work() { "$python" -c 'import boto3' &>/dev/null; }
mkdir -p "$cache"
exec 9<"$cache"
lock 9
tools_work || install "the AWS SDK for Python" "$tools" "$requirements" "nothing else will do"
exec 9<&-

found=$("$python" -c 'import boto3; print(boto3.client("sts").get_caller_identity()["Account"])') ||
  fail "cannot read the account of these credentials"
[[ $found = "$account" ]] || fail "these credentials are of account $found, not $account"

trap tidy_up EXIT
trap 'interrupted 130' INT
trap 'interrupted 143' TERM
trap 'interrupted 129' HUP

experiments=("$python" "$here/aws-check/main.py" --region "$region")
if ((${#clean_up[@]})); then
  attend "${experiments[@]}" "${clean_up[@]}"
  exit
fi
# Before hours of the kit: whether the options are valid.
"${experiments[@]}" "${options[@]}" --check-options

if [[ -z $operator ]]; then
  attend cargo build --locked --release
  operator=$(realpath "${CARGO_TARGET_DIR:-target}/release/aws-s3-provisioner")
fi

if [[ $kubeconfig ]]; then
  need kubectl "use the cluster of $kubeconfig"
else
  stack=aws-check-$$
  # The stack starts no emulator if there is an AWS.
  aws=$("$python" -c 'import boto3; print(boto3.client("s3").meta.endpoint_url)')
  AWS_ENDPOINT_URL=$aws attend hack/stack.sh up --name "$stack"
  environment=$(hack/stack.sh env --name "$stack")
  # Only these: the others name an AWS.
  kubeconfig=$(eval "$environment" && printf %s "$KUBECONFIG")
  assets=$(eval "$environment" && printf %s "$KUBEBUILDER_ASSETS")
  export PATH=$assets:$PATH
fi
export KUBECONFIG=$kubeconfig

failed=''
if [[ $kit ]]; then
  say "the conformance kit"
  folder=$(mktemp -d)
  printf %s "$AWS_ACCESS_KEY_ID" >"$folder/id"
  printf %s "$AWS_SECRET_ACCESS_KEY" >"$folder/secret"
  owner=(--owner "AWS_ACCESS_KEY_ID=@$folder/id" --owner "AWS_SECRET_ACCESS_KEY=@$folder/secret")
  if [[ ${AWS_SESSION_TOKEN-} ]]; then
    printf %s "$AWS_SESSION_TOKEN" >"$folder/token"
    owner+=(--owner "AWS_SESSION_TOKEN=@$folder/token")
  fi
  [[ ! ${AWS_ENDPOINT_URL-} ]] || owner+=(--env "AWS_ENDPOINT_URL=$AWS_ENDPOINT_URL")
  checks=()
  [[ $kit == all ]] || checks=(-- "$kit")
  commands="$python $store"
  "$python" "$store" names >"$folder/before"
  : >"$folder/ids"
  kit_runs=yes
  # Each check of the kit takes an inventory at its end. AWS is slower than an emulator, and limits the rate of calls.
  CONFORMANCE_PATIENCE=${CONFORMANCE_PATIENCE:-300} RUST_TEST_THREADS=${RUST_TEST_THREADS:-4} attend \
    hack/conformance.sh --parameter "region=$region" "${owner[@]}" \
    --can greenfield,brownfield,tags,rotation,persistence \
    --inventory "echo ^t-\$ID- >>$folder/ids; $commands inventory" --remove "$commands remove" \
    --create-bucket "$commands create-bucket" --put "$commands put" --list "$commands list" \
    "$operator" "${checks[@]}" || failed=yes
  kit_runs=
  left_by_kit "$(cat "$folder/ids")" || failed=yes
  rm -rf "$folder"
fi

attend "${experiments[@]}" --operator "$operator" --regions "${regions:-$region,us-east-1}" "${options[@]}" ||
  failed=yes
[[ ! $failed ]]
