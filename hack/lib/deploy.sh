# shellcheck shell=bash
# The programs with which deploy/ is rendered and checked: helm 4, helm 3 and kubeconform, built from their Go modules
# once and kept in the user's cache, in a folder named by what they are made from.

deploy_modules=$PWD/hack/deploy-tools
deploy_cache=${XDG_CACHE_HOME:-$HOME/.cache}/aws-s3-provisioner
deploy_tools=$deploy_cache/deploy-tools-$(cat "$deploy_modules"/go.{mod,sum} | sha256sum | cut -c1-8)
deploy_build=

# Builds what is not built yet. The libraries of Kubernetes have the versions and the options of the control plane's, so
# that Go compiles them once for both; the lock is that of hack/stack.sh, because at the same time both would.
build_deploy_tools() {
  mkdir -p "$deploy_tools"
  exec 7<"$deploy_cache"
  flock 7
  if [[ ! -x $deploy_tools/helm3 ]]; then
    printf 'building helm and kubeconform once, into %s\n' "$deploy_tools" >&2
    rm -rf "$deploy_tools/build"
    mkdir "$deploy_tools/build"
    go_build "$deploy_tools/build/" helm.sh/helm/v4/cmd/helm github.com/yannh/kubeconform/cmd/kubeconform
    go_build "$deploy_tools/build/helm3" helm.sh/helm/v3/cmd/helm
    # In this order: whoever has the last one has all.
    mv "$deploy_tools/build"/{helm,kubeconform} "$deploy_tools/"
    mv "$deploy_tools/build/helm3" "$deploy_tools/"
    rm -rf "$deploy_tools/build"
  fi
  exec 7<&-
}

# Go packages $2… as program, or programs in folder, $1.
go_build() {
  CGO_ENABLED=0 GOWORK=off GOFLAGS='' GOTMPDIR=$deploy_tools/build setsid go build -C "$deploy_modules" -trimpath \
    -gcflags all=-dwarf=false -ldflags "-s -w" -o "$@" 7<&- &
  deploy_build=$!
  wait "$deploy_build"
  deploy_build=
}

# For whoever ends before the build does. After SIGINT, Go continues for minutes.
stop_deploy_build() {
  [[ $deploy_build ]] || return 0
  kill -KILL -- "-$deploy_build" 2>/dev/null || true
  wait "$deploy_build" || true
  rm -rf "$deploy_tools/build"
}
