#!/usr/bin/env bash
# Prints the public items of the library, with all its features: what a change can break for authors of provisioners.
# What the compiler adds to each type by itself is left out. It replaces what `cargo doc` has written for the library.
#
# usage: hack/public-api.sh >docs/public-api.txt
set -euo pipefail
[[ ${1-} == --help || ${1-} == -h ]] && { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0"; exit; }
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# JSON is an unstable output of rustdoc. Only rustdoc gets the permission: in cargo's environment it would be an input of
# build scripts, and the dependencies would be built again.
cat >"$scratch/rustdoc" <<'END'
#!/bin/sh
RUSTC_BOOTSTRAP=1 exec rustdoc "$@"
END
chmod +x "$scratch/rustdoc"

RUSTDOC=$scratch/rustdoc RUSTDOCFLAGS='-Z unstable-options --output-format json' \
  cargo doc --quiet --locked --no-deps --package bucket-provisioner --lib
cargo run --quiet --locked --package list-public-api -- "${CARGO_TARGET_DIR:-target}/doc/bucket_provisioner.json"
