# The scripts of this repository under short names: `just` lists them. Everything here runs without `just`, too.
# Arguments go to the script: `just test lifecycle::`, `just bench --only claims 200`.

set positional-arguments := true

# Lists what there is.
default:
    @just --list

# The demo: claims, an app and an undone deletion; --keep leaves it running.
demo *arguments:
    hack/demo.sh "$@"

# The tests; --full for all cases. Other arguments select tests of tests/it.
test *arguments:
    hack/test.sh "$@"

# The conformance kit against somebody's operator.
conformance *arguments:
    hack/conformance.sh "$@"

# What every change has to pass; arguments are jobs.
ci *arguments:
    .ci/run "$@"

# Everything, as root.
full:
    .ci/full

# The local cluster and the emulated AWS: up, down, env, status or build.
stack *arguments:
    hack/stack.sh "$@"

# How fast claims are served, and what that costs.
bench *arguments:
    hack/bench.sh "$@"

# Anything fails at any time; --rounds N, --seed S.
chaos *arguments:
    hack/chaos.sh "$@"

# Licences, advisories and duplicates of the dependencies; needs cargo-deny.
deny *arguments:
    cargo deny --locked check "$@"
