"""Tries what the documentation says: see .ci/docs, which starts this.

Each page that has something to run gets a cluster and an AWS of its own, as a reader who begins with it. Its blocks run
one after the other in one shell, so that what one sets the next can use."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

import kubelet
import links
import pages

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
COLUMNS = ("run", "dry-run", "compared", "parsed", "elsewhere", "reason", "shown")
# A block that hangs must not hang the machine.
SECONDS_FOR_A_PAGE = 300
# Beside `kubectl`: what asks a kubelet is answered by the stand-in.
KUBECTL = """#!/usr/bin/env bash
set -euo pipefail
if [[ $1 = exec || $1 = logs ]]; then
  verb=$1 namespace=default name=''
  shift
  while (($#)); do
    case $1 in
      --) shift && break ;;
      -n | --namespace) namespace=$2 && shift ;;
      --*) ;;
      deploy/* | deployment/* | deployments/*) name=${1#*/} ;;
    esac
    shift
  done
  pod=$PODS/$namespace.$name
  [[ -d $pod ]] || { echo "there is no pod of Deployment $namespace/$name" >&2 && exit 1; }
  if [[ $verb = logs ]]; then exec cat "$pod/log"; fi
  source "$pod/environment"
  exec "${1##*/}" "${@:2}"
fi
exec %s "$@"
"""
# Scripts of a virtual environment name the folder in which it was made, which has been renamed since.
SCRIPTS = ("aws", "node", "npm", "pip")
SCRIPT = """#!/usr/bin/env bash
exec %s %s "$@"
"""
SHELL = """set -Eeuo pipefail
trap 'echo "FAILED $at" >&3' ERR
"""


def main():
    # So that what was started is stopped, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    names = sys.argv[1:] or tracked("*.md")
    failed, table, skipped = [], [], []
    for name in names:
        try:
            text = (REPOSITORY / name).read_text()
            links.check(name, REPOSITORY)
            found, options = pages.blocks(name, text), pages.OPTIONS.search(text)
            counts, reasons = try_page(name, found, options[1].split() if options else [])
        except pages.Wrong as wrong:
            failed.append(str(wrong))
            continue
        skipped += reasons
        if found:
            table.append((name, counts))
    report(table, skipped)
    for wrong in failed:
        print(f"error: {wrong}", file=sys.stderr)
    sys.exit(1 if failed else 0)


def tracked(pattern):
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", pattern]
    listed = subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout.split("\n")
    return [name for name in listed if name and (REPOSITORY / name).exists()]


def try_page(name, blocks, options):
    """Returns how many blocks count in each column, and what is not run and why."""
    counts, reasons, steps = dict.fromkeys(COLUMNS, 0), [], []
    for block in blocks:
        how = pages.looked_at(block, REPOSITORY)
        if how and block.language == "sh":
            check_syntax(block)
        if how == "reason":
            reasons.append(f"{block.place}: {block.reason}")
        if how:
            counts[how] += 1
        if (not how or "save as" in block.markers) and not runs_elsewhere(block, how):
            steps.append((block, how))
    if any(block.language in ("sh", "yaml") and not how for block, how in steps):
        run_page(name, steps, counts, reasons, options)
    return counts, reasons


def runs_elsewhere(block, how):
    return how == "elsewhere" and "save as" not in block.markers


def check_syntax(block):
    """Of commands that are not run: that a shell can read them, and what shellcheck says."""
    # Variables of earlier blocks, and a reader's names in capitals.
    options = ["--shell", "bash", "--exclude", "SC2154,SC2034", "-"]
    for command in (["bash", "-n"], ["shellcheck", *options]):
        result = subprocess.run(command, input=block.text, text=True, capture_output=True, check=False)
        if result.returncode:
            raise pages.Wrong(f"{block.place}: {command[0]}: {result.stdout}{result.stderr}")


def run_page(name, steps, counts, reasons, options):
    print(f"=== {name}", flush=True)
    stack = f"docs-{os.getpid()}"
    with tempfile.TemporaryDirectory(prefix="aws-s3-provisioner-docs-") as scratch:
        scratch = pathlib.Path(scratch)
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        try:
            subprocess.run(["hack/stack.sh", "up", "--name", stack, *options], cwd=REPOSITORY, check=True, **quiet)
            follow(name, steps, counts, reasons, environment(stack, scratch), scratch)
        finally:
            subprocess.run(["hack/stack.sh", "down", "--name", stack], cwd=REPOSITORY, check=True, **quiet)


def environment(stack, scratch):
    """What the shell of a reader has: the tools, a kubeconfig, and AWS keys."""
    shown = subprocess.run(
        ["bash", "-c", f'eval "$(hack/stack.sh env --name {stack})"; env -0'],
        cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout
    found = dict(entry.split("=", 1) for entry in shown.split("\0") if entry)
    programs = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target")) / "debug"
    tools = scratch / "bin"
    tools.mkdir()
    venv = pathlib.Path(os.environ["DOCS_TOOLS"])
    scripts = {name: SCRIPT % (venv / "python", venv / name) for name in SCRIPTS}
    scripts["kubectl"] = KUBECTL % shutil.which("kubectl", path=found["PATH"])
    for script, text in scripts.items():
        (tools / script).write_text(text)
        (tools / script).chmod(0o755)
    for program in (kubelet.PROGRAM, "sdk-rust"):
        (tools / program).symlink_to(programs / program)
    (tools / "kubectl-obc").symlink_to(programs / kubelet.PROGRAM)
    found["PODS"] = str(scratch / "pods")
    (scratch / "pods").mkdir()
    found["PATH"] = f"{tools}:{found['PATH']}"
    # Version 1 of the CLI knows only this name.
    found["AWS_DEFAULT_REGION"] = found["AWS_REGION"]
    found["TMPDIR"] = str(scratch)
    return found


def follow(name, steps, counts, reasons, variables, scratch):
    folder = scratch / "repository"
    copy_repository(folder)
    script = SHELL + "".join(step(block, how, scratch) for block, how in steps)
    (scratch / "script").write_text(script)
    network = {key: variables[key] for key in ("AWS_ENDPOINT_URL", "AWS_REGION")}
    pods = kubelet.Kubelet(variables["KUBECONFIG"], scratch / "bin", scratch / "pods", network)
    pods.start()
    done, process = scratch / "done", None
    try:
        with open(done, "w") as notes, open(scratch / "log", "w") as log:
            process = subprocess.Popen(
                ["bash", "-c", 'exec 3>&"$1"; source "$2"', "docs", str(notes.fileno()), str(scratch / "script")],
                cwd=folder, env=variables, pass_fds=[notes.fileno()], stdout=log, stderr=log,
                stdin=subprocess.DEVNULL, start_new_session=True)
            code = wait(process)
    finally:
        stop(process)
        pods.stop()
    lines = done.read_text().splitlines()
    if code:
        tail(scratch / "log")
        for log in (scratch / "pods").glob("*/log"):
            tail(log)
        raise pages.Wrong(f"{name}: {code} after {lines[-1] if lines else 'nothing'}")
    for line in lines:
        what, rest = line.split(" ", 1)
        if what == "reason":
            reasons.append(rest)
        counts[what] += 1


def wait(process):
    try:
        return process.wait(SECONDS_FOR_A_PAGE)
    except subprocess.TimeoutExpired:
        return "timeout"


def stop(process):
    """With all that it has started."""
    if process and process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def tail(path):
    print(f"--- the end of {path.parent.name}/{path.name}", file=sys.stderr)
    print("\n".join(path.read_text(errors="replace").splitlines()[-60:]), file=sys.stderr)


def copy_repository(folder):
    """What a reader has cloned; the page may write into it."""
    for name in tracked("."):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(REPOSITORY / name, target, follow_symlinks=False)


def step(block, how, scratch):
    """The commands that try a block."""
    file = scratch / f"block-{block.line}"
    file.write_text(block.text)
    text = f"at={block.place}\nprintf '%s\\n' '--- {block.place}'\n"
    saved = block.markers.get("save as")
    if saved:
        text += f"mkdir -p \"$(dirname {saved})\"; cp {file} {saved}\n"
    if how:
        return text
    if block.language == "yaml":
        if "kind: Kustomization" in block.text:
            folder = f"overlay-{block.line}"
            return (f"{text}mkdir {folder}; cp {file} {folder}/kustomization.yaml; kubectl kustomize {folder} >/dev/null\n"
                    f"printf 'run %s\\n' {block.place} >&3\n")
        # Values of a chart are no object; the command that uses the file tries them.
        if saved and "apiVersion:" not in block.text:
            return f"{text}printf 'run %s\\n' {block.place} >&3\n"
        return f"{text}kubectl apply --dry-run=server --filename {file}\nprintf 'dry-run %s\\n' {block.place} >&3\n"
    if block.language == "prepare":
        return f"{text}{block.text}\n"
    body = f"{block.text}\nprintf 'run %s\\n' {block.place} >&3\n"
    if condition := block.markers.get("run if"):
        note = f"printf '%s\\n' 'reason {block.place}: not on this machine: {condition}' >&3"
        return f"{text}if {condition} >/dev/null 2>&1; then\n{body}else\n{note}\nfi\n"
    return text + body


def report(table, skipped):
    for why in skipped:
        print(f"not run: {why}")
    width = max((len(name) for name, _ in table), default=4)
    print(f"{'page':{width}}", *(f"{column:>9}" for column in COLUMNS))
    for name, counts in table:
        print(f"{name:{width}}", *(f"{counts[column]:>9}" for column in COLUMNS))
    sums = [sum(counts[column] for _, counts in table) for column in COLUMNS]
    print(f"{'in all':{width}}", *(f"{number:>9}" for number in sums))
    print(f"{sum(sums)} blocks; {sums[0]} run here, {sums[4]} by other steps, {sums[1]} by a dry run of the server")


if __name__ == "__main__":
    main()
