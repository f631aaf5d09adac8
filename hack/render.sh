#!/usr/bin/env bash
# Renders what is made from something else: the plain manifest and the bases of kustomize from the chart, the chart's CRDs
# from crds/, its alerts and dashboard from deploy/monitoring, and the table of its values from the comments in values.yaml.
#
# usage: hack/render.sh [--check|--build]
#
# With --check it changes nothing, and fails where something would change. With --build it only makes the programs that it,
# and .ci/deploy, need.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source hack/lib/deploy.sh

readonly chart=deploy/helm/aws-s3-provisioner name=aws-s3-provisioner

# The chart with values $1…, without what only helm needs.
manifest() {
  "$deploy_tools/helm" template "$name" "$chart" --namespace "$name" --set "crds.enabled=false,image.repository=$name" "$@" |
    sed -E '/^# Source: /d; /^ *(helm\.sh\/chart|app\.kubernetes\.io\/managed-by): /d; /^$/d'
}

# Where Pod Security lets nothing else in. With the namespace, the owner's Secret would go that admins made there, so that
# neither Argo CD nor Flux may delete it.
namespace() {
  cat <<END
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

rendered() { printf '# Rendered from %s by hack/render.sh. Do not edit.\n' "$chart"; }

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
mkdir -p "$new"/{"$chart"/files/crds,deploy/kustomize/{base,crds,overlays/namespaced}}

cp crds/*.yaml "$new/$chart/files/crds/"
cp crds/*.yaml "$new/deploy/kustomize/crds/"
# Before deploy/monitoring is there, the chart's own files count.
for file in rules.yaml dashboard.json; do
  source=deploy/monitoring/$file
  [[ -f $source ]] || source=$chart/files/$file
  cp "$source" "$new/$chart/files/"
done
{
  # shellcheck disable=SC2016 # as it is to be written
  printf '# Everything the operator needs in a cluster besides the CRDs: `kubectl apply -f crds/ -f deploy/`.\n'
  rendered
  namespace
  manifest
} >"$new/deploy/operator.yaml"
{ rendered && namespace && manifest; } >"$new/deploy/kustomize/base/operator.yaml"
{
  rendered
  namespace
  manifest --set provisionerName=example.com/buckets,watchNamespace=team-a --set 'ownerSecrets[0].name=s3-owner'
} >"$new/deploy/kustomize/overlays/namespaced/operator.yaml"
hack/lib/deploy.py values "$chart/values.yaml" "$chart/README.md" >"$new/$chart/README.md"

failed=
while IFS= read -r file; do
  if [[ ! ${1-} ]]; then
    cp "$new/$file" "$file"
  else
    diff --unified "$file" "$new/$file" || failed="$failed $file"
  fi
done < <(cd "$new" && find . -type f -printf '%P\n' | sort)
[[ ! $failed ]] || { printf 'error: not what it is made from; to renew it, hack/render.sh:%s\n' "$failed" >&2 && exit 1; }
