#!/usr/bin/env bash
# What a release has, from a clean clone: nothing is pulled or pushed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'END'
usage: hack/release.sh --output FOLDER [--image REPOSITORY] [--profile release|dev]
       hack/release.sh --finish FOLDER --url URL

Makes in FOLDER, for the processor of this machine:

  image-ARCH/                    image, as an OCI layout
  kubectl-obc-linux-ARCH.tar.gz  program, as a plugin of kubectl
  aws-s3-provisioner-VERSION.tgz chart, whose image is REPOSITORY
  crds.yaml, operator.yaml       what `kubectl apply --server-side` takes
  cloudformation.yaml, terraform.tar.gz
  sbom-linux-ARCH.cdx.json       dependencies, as CycloneDX
  built-with-linux-ARCH.txt      compilers, and checksum of the CA certificates

--finish writes the krew manifest obc.yaml for the archives of all platforms that
are in FOLDER, and then SHA256SUMS.

  --image    repository of the image, without a tag (default: aws-s3-provisioner)
  --url      where the files of the release can be downloaded
  --profile  dev is built faster, and is no release

SOURCE of the environment is where the source is, such as https://example.com/team/repository:
the chart, the alerts and the remedies of the program then link to the pages of this version there.

The same commit, compilers and CA certificates make the same files, byte by byte.
END
}

[[ $(uname -s) = Linux ]] || { echo "error: releases are made on Linux" >&2 && exit 1; }
export LC_ALL=C
source hack/lib/common.sh
source hack/lib/cargo.sh
source hack/lib/deploy.sh
say() { printf 'release: %s\n' "$*"; }
fail() { printf 'error: %s\n' "$*" >&2 && exit 1; }

output='' finish='' image=aws-s3-provisioner url='' profile=release
while (($#)); do
  case $1 in
    --output | --finish | --image | --url | --profile)
      (($# > 1)) || fail "$1 needs a value; see $0 --help"
      printf -v "${1#--}" %s "$2" && shift
      ;;
    -h | --help) usage && exit ;;
    *) fail "unknown argument: $1; see $0 --help" ;;
  esac
  shift
done
[[ $output || $finish ]] || { usage >&2 && exit 2; }
[[ ! $finish || $url ]] || fail "--finish needs --url; see $0 --help"
[[ ! $output ]] || output=$(from_outside "$output")
[[ ! $finish ]] || finish=$(from_outside "$finish")

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml)
readonly version chart=deploy/helm/aws-s3-provisioner name=aws-s3-provisioner

# An archive of $2... in folder $1 whose bytes depend on nothing else.
archive() {
  tar --create --directory "$1" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
    --mode=u+rwX,go+rX,go-w --format=ustar "${@:2}" | gzip --no-name
}

krew() {
  local file platform
  cat <<END
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: obc
spec:
  version: v$version
  shortDescription: Show and repair ObjectBucketClaims
  description: |
    Lists ObjectBucketClaims with what they wait for, checks the installation of
    aws-s3-provisioner and prints a fix for each problem, finds orphaned buckets
    and users, and adopts restored claims.
  caveats: |
    To complete \`kubectl obc\` in your shell, link the plugin under this name in a folder of your PATH:
      ln -s "\${KREW_ROOT:-\$HOME/.krew}/bin/kubectl-obc" ~/.local/bin/kubectl_complete-obc
  platforms:
END
  for file in "$finish"/kubectl-obc-*.tar.gz; do
    platform=${file##*/kubectl-obc-} platform=${platform%.tar.gz}
    cat <<END
    - selector:
        matchLabels:
          os: ${platform%-*}
          arch: ${platform#*-}
      uri: $url/${file##*/}
      sha256: $(sha256sum "$file" | cut -d ' ' -f 1)
      bin: kubectl-obc$([[ $platform != windows-* ]] || echo .exe)
END
  done
}

if [[ $finish ]]; then
  compgen -G "$finish/kubectl-obc-*.tar.gz" >/dev/null || fail "$finish has no kubectl-obc-OS-ARCH.tar.gz"
  for file in crds.yaml operator.yaml cloudformation.yaml terraform.tar.gz; do
    [[ -s $finish/$file ]] || fail "$finish has no $file"
  done
  krew >"$finish/obc.yaml"
  rm -f "$finish/SHA256SUMS"
  sums=$(cd "$finish" && find . -type f -printf '%P\0' | sort --zero-terminated | xargs -0 sha256sum)
  printf '%s\n' "$sums" >"$finish/SHA256SUMS"
  say "$(wc -l <"$finish/SHA256SUMS") files are in $finish/SHA256SUMS"
  exit
fi

[[ ! -e $output ]] || fail "$output exists"
[[ ! $(git status --porcelain) && ! $(git status --porcelain --ignored -- deploy docs crds) ]] ||
  fail "this clone has changes, or ignored files in deploy, docs or crds; release from a clean clone"
[[ $(sed -n 's/^appVersion: //p' "$chart/Chart.yaml") = "$version" ]] || fail "appVersion of $chart/Chart.yaml is not $version"
grep -qF "image.version=\"$version\"" Dockerfile || fail "the label of the version in the Dockerfile is not $version"
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
case $(uname -m) in
  x86_64) arch=amd64 ;;
  aarch64) arch=arm64 ;;
  *) fail "there is no image for $(uname -m)" ;;
esac
scratch=$(mktemp -d)
trap 'stop_deploy_build; rm -rf "$scratch"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
build_deploy_tools
export CONTAINERS_STORAGE_CONF=$scratch/storage.conf
printf '[storage]\ndriver = "vfs"\ngraphroot = "%s/images"\nrunroot = "%s/run"\n' "$scratch" "$scratch" \
  >"$CONTAINERS_STORAGE_CONF"
mkdir -p "$output"
output=$(cd "$output" && pwd)

# Where the clone and the crates are is no part of the program.
cargo_home=${CARGO_HOME:-$HOME/.cargo}
prefixes="--remap-path-prefix=$PWD=/src --remap-path-prefix=$cargo_home=/cargo"
export CARGO_ENCODED_RUSTFLAGS=${prefixes// --/$'\x1f'--}
export CFLAGS="-ffile-prefix-map=$PWD=/src -ffile-prefix-map=$cargo_home=/cargo"
export SOURCE=${SOURCE-}
hack/image.sh --builder buildah --profile "$profile" --tag "$name:$version"
unset CARGO_ENCODED_RUSTFLAGS CFLAGS
buildah push --quiet "$name:$version" "oci:$output/image-$arch:$version"

program=${CARGO_TARGET_DIR:-target}/${profile/dev/debug}/$name
mkdir "$scratch/plugin"
cp "$program" "$scratch/plugin/kubectl-obc"
cp LICENSE "$scratch/plugin/"
"$program" man --output-dir "$scratch/plugin" >/dev/null
archive "$scratch/plugin" . >"$output/kubectl-obc-linux-$arch.tar.gz"

say "packaging the chart"
cp -rL "$chart" "$scratch/$name"
sed -i "s|^  repository: \"\"|  repository: $image|" "$scratch/$name/values.yaml"
grep -qF "  repository: $image" "$scratch/$name/values.yaml" || fail "the values of the chart have no image.repository to set"
# The annotations are its last entry.
printf '  artifacthub.io/images: |\n    - {name: %s, image: %s}\n' "$name" "$image:$version" >>"$scratch/$name/Chart.yaml"
if [[ $SOURCE ]]; then
  pages=$SOURCE/blob/v$version
  printf '  artifacthub.io/links: |\n    - {name: Changes, url: %s}\n' "$pages/CHANGELOG.md" >>"$scratch/$name/Chart.yaml"
  sed -i "s|](../../../|]($pages/|g; s|](examples/|]($pages/$chart/examples/|g" "$scratch/$name/README.md"
  # The registry of the release has the image.
  sed -i '/^No public registry has the image/,/^$/d' "$scratch/$name/README.md"
  sed -i "s|^  runbookUrl: \"\"|  runbookUrl: $pages/|" "$scratch/$name/values.yaml"
  grep -qF "  runbookUrl: $pages/" "$scratch/$name/values.yaml" || fail "the values of the chart have no runbookUrl to set"
  printf 'home: %s\nsources: [%s]\n' "$SOURCE" "$SOURCE" >>"$scratch/$name/Chart.yaml"
fi
"$deploy_tools/helm" lint --quiet "$scratch/$name"
archive "$scratch" "$name" >"$output/$name-$version.tgz"

for file in crds/*.yaml; do printf -- '---\n' && cat "$file"; done >"$output/crds.yaml"
sed "s|image: $name:$version|image: $image:$version|" deploy/kustomize/base/operator.yaml >"$output/operator.yaml"
grep -qF "image: $image:$version" "$output/operator.yaml" || fail "operator.yaml does not have the image"
cp deploy/aws/cloudformation.yaml "$output/"
mkdir "$scratch/terraform"
# The module reads the policies of docs/.
cp -r --parents deploy/aws docs/*.json "$scratch/terraform/"
archive "$scratch/terraform" . >"$output/terraform.tar.gz"

say "listing dependencies"
cargo_tool cargo-cyclonedx 0.5.9
"$tool/bin/cargo-cyclonedx" cyclonedx --quiet --format json --manifest-path Cargo.toml --override-filename sbom.cdx
sed "s|file://$PWD|file:///src|g" sbom.cdx.json >"$output/sbom-linux-$arch.cdx.json"
# One of each package.
git ls-files --others -z -- '*sbom.cdx.json' | xargs -0 rm -f --
{ rustc -vV && cc --version | head -n 1 && sha256sum /etc/ssl/certs/ca-certificates.crt; } >"$output/built-with-linux-$arch.txt"
say "$(find "$output" -type f | wc -l) files are in $output"
