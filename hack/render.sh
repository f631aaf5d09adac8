#!/usr/bin/env bash
# Renders deploy/kustomize/base/operator.yaml from the chart, for users without Helm, and the table of values in the
# chart's README from the comments in values.yaml.
#
# usage: hack/render.sh [--check|--build]
#
# With --check it changes nothing, and fails where something would change. With --build it only builds the programs that it
# and .ci/deploy need.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source hack/lib/deploy.sh

readonly chart=deploy/helm/aws-s3-provisioner name=aws-s3-provisioner

# The objects of the chart, without what only Helm needs.
manifest() {
  "$deploy_tools/helm" template "$name" "$chart" --namespace "$name" --skip-tests --set "crds.enabled=false,image.repository=$name" |
    sed -E '/^# Source: /d; /^ *(helm\.sh\/chart|app\.kubernetes\.io\/managed-by): /d; /^$/d'
}

# With the restricted Pod Security Standard. Neither Argo CD nor Flux may delete it, because Kubernetes would delete the
# Secret with the AWS keys with it.
namespace() {
  cat <<END
# Everything that the operator needs in a cluster besides the CRDs: kubectl apply -f crds/ -f deploy/.
# Rendered from $chart by hack/render.sh. Do not edit.
apiVersion: v1
kind: Namespace
metadata:
  name: $name
  labels:
    pod-security.kubernetes.io/enforce: restricted
  annotations:
    argocd.argoproj.io/sync-options: Prune=false,Delete=false
    kustomize.toolkit.fluxcd.io/prune: disabled
END
}

new=
finish() {
  local code=$?
  stop_deploy_build
  [[ ! $new ]] || rm -rf "$new"
  exit "$code"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

case ${1-} in
  '' | --check) ;;
  --build) build_deploy_tools && exit ;;
  *) sed -n '/^# usage: /s/^# //p' "$0" >&2 && exit 2 ;;
esac
build_deploy_tools
new=$(mktemp -d)
mkdir -p "$new"/{"$chart",deploy/kustomize/base}
{ namespace && manifest; } >"$new/deploy/kustomize/base/operator.yaml"
hack/lib/deploy.py values "$chart/values.yaml" "$chart/README.md" >"$new/$chart/README.md"

failed=
while IFS= read -r file; do
  if [[ ! ${1-} ]]; then
    cp "$new/$file" "$file"
  else
    diff --unified "$file" "$new/$file" || failed="$failed $file"
  fi
done < <(cd "$new" && find . -type f -printf '%P\n' | sort)
[[ ! $failed ]] || { printf 'error: outdated, run hack/render.sh to renew:%s\n' "$failed" >&2 && exit 1; }
