#!/usr/bin/env bash
# The first day in a real AWS account: runs the conformance kit there, and twelve
# experiments about what emulators cannot show, and prints a report. Needs an
# account for tests: it makes buckets, users and policies, and removes them.
# The cluster is that of KUBECONFIG, or a local one that is removed afterwards.
#
# usage: hack/aws-check.sh --account ID --region REGION [OPTION]...
#
#   --account ID      the account of the credentials in the environment
#                     (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN),
#                     so that no other one is taken by mistake
#   --region REGION   where buckets are made
#   --skip-kit        runs the experiments only
#   --kit CHECK       runs only the checks of the kit with this in their names
#   --only N,...      runs only these experiments, by their numbers
#   --operator FILE   a program that is built already
#   --regions R,...   for experiment 2; default: --region and us-east-1
#   --claims N        claims at once, experiment 3; default: 200
#   --early N         claims that are deleted early, experiment 4; default: 100
#   --spread SECONDS  within which they are deleted; default: 60
#   --versions N      versions to be deleted, experiment 10; default: 10000
#   --patience SECONDS  how long a claim may take; default: 600
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

umask 077
kit=all account='' region='' operator='' regions='' options=()
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
    --only | --claims | --early | --spread | --versions | --patience | --kms-key | --sts-endpoint | --iam-endpoint | --imported-bucket)
      options+=("$1" "$2")
      ;;
    *) fail "$1 is not an option; see hack/aws-check.sh --help" ;;
  esac
  shift 2
done
[[ $account && $region ]] || fail "--account and --region are needed; see hack/aws-check.sh --help"
[[ ${AWS_ACCESS_KEY_ID-} && ${AWS_SECRET_ACCESS_KEY-} ]] || fail "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
export AWS_REGION=$region AWS_DEFAULT_REGION=$region PYTHONDONTWRITEBYTECODE=1
cd "$here/.."

requirements=$here/requirements-aws-check.txt
tools=$cache/aws-check-tools-$(fingerprint "$requirements")
python=$tools/bin/python
tools_work() { "$python" -c 'import boto3' &>/dev/null; }
mkdir -p "$cache"
exec 9<"$cache"
lock 9
tools_work || install "the AWS SDK for Python" "$tools" "$requirements" "nothing else will do"
exec 9<&-

found=$("$python" -c 'import boto3; print(boto3.client("sts").get_caller_identity()["Account"])') ||
  fail "AWS refuses these credentials"
[[ $found = "$account" ]] || fail "these credentials are of account $found, not $account"

if [[ -z $operator ]]; then
  cargo build --locked --release
  operator=${CARGO_TARGET_DIR:-target}/release/aws-s3-provisioner
fi

if [[ -z ${KUBECONFIG-} ]]; then
  stack=aws-check-$$
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  trap 'hack/stack.sh down --name "$stack"' EXIT
  # The stack starts no emulator if there is an AWS.
  AWS_ENDPOINT_URL=${AWS_ENDPOINT_URL:-https://s3.$region.amazonaws.com} hack/stack.sh up --name "$stack"
  KUBECONFIG=$(hack/stack.sh env --name "$stack" | sed -n 's/^export KUBECONFIG=\([^ ]*\).*/\1/p')
  PATH=$(hack/stack.sh env --name "$stack" | sed -n 's/^.*KUBEBUILDER_ASSETS=\([^ ]*\).*/\1/p' | head -n 1):$PATH
  export KUBECONFIG PATH
fi

failed=''
if [[ $kit ]]; then
  say "the conformance kit"
  keys=$(mktemp -d)
  printf %s "$AWS_ACCESS_KEY_ID" >"$keys/id"
  printf %s "$AWS_SECRET_ACCESS_KEY" >"$keys/secret"
  owner=(--owner "AWS_ACCESS_KEY_ID=@$keys/id" --owner "AWS_SECRET_ACCESS_KEY=@$keys/secret")
  if [[ ${AWS_SESSION_TOKEN-} ]]; then
    printf %s "$AWS_SESSION_TOKEN" >"$keys/token"
    owner+=(--owner "AWS_SESSION_TOKEN=@$keys/token")
  fi
  [[ ! ${AWS_ENDPOINT_URL-} ]] || owner+=(--env "AWS_ENDPOINT_URL=$AWS_ENDPOINT_URL")
  checks=()
  [[ $kit == all ]] || checks=(-- "$kit")
  store="$python $here/aws-check/store.py"
  hack/conformance.sh --parameter "region=$region" "${owner[@]}" \
    --can greenfield,brownfield,tags,rotation,persistence \
    --inventory "$store inventory" --remove "$store remove" --create-bucket "$store create-bucket" \
    --put "$store put" --list "$store list" "$operator" "${checks[@]}" || failed=yes
  rm -rf "$keys"
fi

"$python" "$here/aws-check/main.py" --operator "$operator" --region "$region" \
  --regions "${regions:-$region,us-east-1}" "${options[@]}" || failed=yes
[[ ! $failed ]]
