# shellcheck shell=bash
# The programs with which deploy/ is rendered and checked: helm 4, helm 3 and kubeconform, built from their Go modules
# once and kept in the user's cache, in a folder named by what they are made from.

deploy_modules=$PWD/hack/deploy-tools
deploy_tools=${XDG_CACHE_HOME:-$HOME/.cache}/aws-s3-provisioner/deploy-tools-$(cat "$deploy_modules"/go.{mod,sum} | sha256sum | cut -c1-8)

# Builds what is not built yet. Its libraries have the versions of the control plane's, and are compiled with the same
# options, so that Go compiles them once for both.
build_deploy_tools() {
  local new
  mkdir -p "$deploy_tools"
  exec 7<"$deploy_tools"
  flock 7
  if [[ ! -x $deploy_tools/helm3 ]]; then
    printf 'building helm and kubeconform once, into %s\n' "$deploy_tools" >&2
    new=$(mktemp -d "$deploy_tools/build.XXXXXX")
    go_build "$new/" helm.sh/helm/v4/cmd/helm github.com/yannh/kubeconform/cmd/kubeconform
    go_build "$new/helm3" helm.sh/helm/v3/cmd/helm
    # Comes last: whoever has it has all.
    mv "$new"/{helm,kubeconform} "$deploy_tools/"
    mv "$new/helm3" "$deploy_tools/"
    rm -rf "$new"
  fi
  exec 7<&-
}

# Go packages $2… as program, or programs in folder, $1.
go_build() {
  CGO_ENABLED=0 GOWORK=off GOFLAGS='' go build -C "$deploy_modules" -trimpath -gcflags all=-dwarf=false -ldflags "-s -w" \
    -o "$@" 7<&-
}
