# shellcheck shell=bash
# Programs that come as crates.

# Makes sure that version $2 of crate $1 is installed, in a folder of the user's cache, and sets $tool to that folder.
# Built once and unoptimised, which is fast enough here; more arguments are for `cargo install`.
cargo_tool() {
  tool=${XDG_CACHE_HOME:-$HOME/.cache}/aws-s3-provisioner/$1-$2
  [[ -x $tool/bin/$1 ]] || env -u CARGO_TARGET_DIR cargo install --quiet --locked --debug --root "$tool" "${@:3}" "$1@$2"
}
