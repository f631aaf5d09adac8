#!/usr/bin/env bash
# The image of the operator, from a program that is built on this machine.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'END'
usage: hack/image.sh [--builder docker|podman|buildah] [--profile release|dev] [--tag NAME]

Builds the operator as a static program, puts it into an empty image together with
this machine's CA certificates, and prints what became of it. Pulls no image. The
image is for the processor of this machine; `docker buildx build` with the Dockerfile
makes it for others, too.

  --builder  builds the image; by default the first of them that works here
  --profile  dev is built faster, and is much larger (default: release)
  --tag      name of the image (default: aws-s3-provisioner:VERSION)

SOURCE, REVISION and CREATED of the environment become labels of the image: where the
source is (remedies of doctor link to its pages), the commit (default: that of this
folder), and the time (default: that of the commit). With SOURCE_DATE_EPOCH, podman
and buildah give all files this time.
END
}

source hack/lib/common.sh
source hack/lib/cargo.sh
say() { printf 'image: %s\n' "$*"; }
fail() { printf 'error: %s\n' "$*" >&2 && exit 1; }

# The builder that works here.
find_builder() {
  local name
  for name in docker podman buildah; do
    ! "$name" info &>/dev/null || { echo "$name" && return; }
  done
  fail "none of docker, podman and buildah works here; on Debian: apt-get install buildah"
}

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml)
builder='' profile=release tag=aws-s3-provisioner:$version
while (($#)); do
  case $1 in
    --builder | --profile | --tag)
      (($# > 1)) || fail "$1 needs a value; see $0 --help"
      printf -v "${1#--}" %s "$2" && shift
      ;;
    -h | --help) usage && exit ;;
    *) fail "unknown argument: $1; see $0 --help" ;;
  esac
  shift
done
[[ $profile =~ ^(release|dev)$ ]] || fail "--profile is release or dev, and not $profile"
[[ $(uname -s) = Linux ]] || fail "a program for Linux is built on Linux; use the Dockerfile: docker build ."
builder=${builder:-$(find_builder)}
readonly limit=18000000 certificates=/etc/ssl/certs/ca-certificates.crt
[[ -s $certificates ]] || fail "$certificates is missing; on Debian: apt-get install ca-certificates"

cargo_tool cargo-auditable 0.7.7
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

say "building the program ($profile)"
# Scanners read the dependencies from the program itself. Packed relocations make it a megabyte smaller.
PATH="$tool/bin:$PATH" cargo auditable rustc --locked --profile "$profile" --bin aws-s3-provisioner -- \
  -C target-feature=+crt-static -C link-arg=-Wl,-z,pack-relative-relocs
program=${CARGO_TARGET_DIR:-target}/${profile/dev/debug}/aws-s3-provisioner
"$program" --version >/dev/null || fail "the program does not run; an old linker or C library may not support its form"
size=$(stat --format %s "$program")
[[ $profile = dev ]] || ((size < limit)) || fail "the program has $size bytes; it may have $limit"
install -D "$program" "$folder/image/aws-s3-provisioner"
install -D --mode 0644 "$certificates" "$folder/image$certificates"
# The last stage of the Dockerfile, which takes from this folder what it would take from the first.
sed -n '/^FROM scratch$/,$p' Dockerfile | sed 's|--from=build /image|image|' >"$folder/Dockerfile"

say "building $tag with $builder"
REVISION=${REVISION-$(git rev-parse HEAD 2>/dev/null || true)}
CREATED=${CREATED-$(TZ=UTC git log -1 --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd 2>/dev/null || true)}
# With it, the same program makes the same image.
timestamp=()
[[ $builder = docker || ! ${SOURCE_DATE_EPOCH-} ]] || timestamp=(--timestamp "$SOURCE_DATE_EPOCH")
env -u SOURCE_DATE_EPOCH "$builder" build "${timestamp[@]}" --build-arg REVISION="$REVISION" --build-arg CREATED="$CREATED" --build-arg SOURCE="${SOURCE-}" \
  --tag "$tag" "$folder"
say "$tag is built; the program in it has $size bytes"
