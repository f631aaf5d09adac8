"""Tries the documentation: see .ci/docs, which starts this.

Each page that has something to run gets a cluster and an AWS of its own, as a reader who begins with it. Its blocks run
one after the other in one shell, so that what one sets the next can use; once in bash and once in zsh."""

import concurrent.futures
import dataclasses
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import kubelet
import pages

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
COLUMNS = ("run", "dry-run", "compared", "parsed", "elsewhere", "reason", "shown")
PAGES_AT_A_TIME = 3
STOPPING = threading.Event()
# A block that hangs must not hang the machine. The SDKs of the user guide are downloaded and compiled first.
SECONDS_FOR_A_PAGE = 600
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
      --selector=app.kubernetes.io/name=*) name=${1##*=} ;;
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
# The options of each shell, and what its scripts begin with.
SHELLS = {
    "bash": ([], "set -Eeuo pipefail\ntrap 'echo \"FAILED $at\" >&3' ERR\n"),
    "zsh": (["-f"], "set -euo pipefail\ntrap 'echo \"FAILED $at\" >&3' ZERR\n"),
}


def main():
    # So that what was started is stopped, too.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: STOPPING.set())
    names = sys.argv[1:] or tracked("*.md")
    # Most of the time a page waits. The longest begin first.
    names.sort(key=lambda name: -(REPOSITORY / name).read_text().count("```sh"))
    with concurrent.futures.ThreadPoolExecutor(PAGES_AT_A_TIME) as pool:
        tries = [(name, shell) for name in names for shell in SHELLS]
        results = list(pool.map(try_page, *zip(*tries), range(len(tries))))
    report([result for result in results if result.blocks])
    wrong = [result.wrong for result in results if result.wrong]
    for problem in wrong:
        print(f"error: {problem}", file=sys.stderr)
    sys.exit(143 if STOPPING.is_set() else 1 if wrong else 0)


def tracked(pattern):
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", pattern]
    listed = subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout.split("\n")
    return [name for name in listed if name and (REPOSITORY / name).exists()]


@dataclasses.dataclass
class Result:
    """What was done with a page."""

    page: str
    shell: str
    blocks: int = 0
    seconds: float = 0
    wrong: str = ""
    counts: dict = dataclasses.field(default_factory=lambda: dict.fromkeys(COLUMNS, 0))
    reasons: list = dataclasses.field(default_factory=list)


def try_page(name, shell, number):
    result, began = Result(name, shell), time.monotonic()
    try:
        text = (REPOSITORY / name).read_text()
        found, options = pages.blocks(name, text), pages.OPTIONS.search(text)
        result.blocks = sum(block.language != "prepare" for block in found)
        steps = look_at(found, result)
        if shell != "bash":
            # What needs no shell was counted already.
            result = Result(name, shell, blocks=sum(block.language == "sh" and not how for block, how in steps))
        if any(block.language in ("sh", "yaml") and not how for block, how in steps) and result.blocks:
            run_page(steps, result, f"docs-{os.getpid()}-{number}", options[1].split() if options else [])
    except pages.Wrong as wrong:
        result.wrong = str(wrong)
    result.seconds = time.monotonic() - began
    return result


def look_at(blocks, result):
    """Counts what needs no cluster. Returns what does, and what later blocks use."""
    steps = []
    for block in blocks:
        how = pages.looked_at(block, REPOSITORY)
        # What another step runs needs no second opinion.
        if how == "reason" and block.language == "sh":
            check_syntax(block)
        if how == "reason":
            result.reasons.append(f"{block.place}: {block.reason}")
        if how:
            result.counts[how] += 1
        if (not how or "save as" in block.markers) and not runs_elsewhere(block, how):
            steps.append((block, how))
    return steps


def runs_elsewhere(block, how):
    return how == "elsewhere" and "save as" not in block.markers


def check_syntax(block):
    """Of commands that are not run: that shells can parse them, and that shellcheck finds nothing."""
    # Variables of earlier blocks, and a reader's names in capitals.
    options = ["--shell", "bash", "--exclude", "SC2154,SC2034", "-"]
    for command in (["bash", "-n"], ["zsh", "-n"], ["shellcheck", *options]):
        result = subprocess.run(command, input=block.text, text=True, capture_output=True, check=False)
        if result.returncode:
            raise pages.Wrong(f"{block.place}: {command[0]}: {result.stdout}{result.stderr}")


def run_page(steps, result, stack, options):
    with tempfile.TemporaryDirectory(prefix="aws-s3-provisioner-docs-") as scratch:
        scratch = pathlib.Path(scratch)
        try:
            stack_command("up", "--name", stack, *options)
            follow(steps, result, environment(stack, scratch), scratch)
        finally:
            stack_command("down", "--name", stack)


def stack_command(*arguments):
    done = subprocess.run(["hack/stack.sh", *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if done.returncode:
        raise pages.Wrong(f"hack/stack.sh {' '.join(arguments)}: {done.stderr}")


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


def follow(steps, result, variables, scratch):
    folder = scratch / "repository"
    copy_repository(folder)
    options, beginning = SHELLS[result.shell]
    (scratch / "script").write_text(beginning + "".join(step(block, how, scratch) for block, how in steps))
    network = {key: variables[key] for key in ("AWS_ENDPOINT_URL", "AWS_REGION")}
    pods = kubelet.Kubelet(variables["KUBECONFIG"], scratch / "bin", scratch / "pods", network)
    pods.start()
    done, process = scratch / "done", None
    try:
        with open(done, "w") as notes, open(scratch / "log", "w") as log:
            process = subprocess.Popen(
                [result.shell, *options, "-c", 'exec 3>&"$1"; source "$2"', "docs", str(notes.fileno()), str(scratch / "script")],
                cwd=folder, env=variables, pass_fds=[notes.fileno()], stdout=log, stderr=log,
                stdin=subprocess.DEVNULL, start_new_session=True)
            code = wait(process)
    finally:
        stop(process)
        pods.stop()
    lines = done.read_text().splitlines()
    if code:
        ends = [tail(scratch / "log"), *(tail(log) for log in (scratch / "pods").glob("*/log"))]
        raise pages.Wrong(f"{result.page} in {result.shell}: {code} after {lines[-1] if lines else 'nothing'}\n" + "\n".join(ends))
    for line in lines:
        what, rest = line.split(" ", 1)
        if what == "reason":
            result.reasons.append(rest)
        result.counts[what] += 1


def wait(process):
    """Returns the exit code, or why there is none."""
    end = time.monotonic() + SECONDS_FOR_A_PAGE
    while time.monotonic() < end and not STOPPING.is_set():
        try:
            return process.wait(0.5)
        except subprocess.TimeoutExpired:
            continue
    return "stopped" if STOPPING.is_set() else f"no end in {SECONDS_FOR_A_PAGE} s"


def stop(process):
    """With all that it has started."""
    if process and process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def tail(path):
    end = path.read_text(errors="replace").splitlines()[-40:]
    return "\n".join([f"--- the end of {path.parent.name}/{path.name}", *end])


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


def report(results):
    for why in (why for result in results for why in result.reasons):
        print(f"not run: {why}")
    width = max((len(result.page) for result in results), default=4)
    print(f"{'page':{width}} shell", *(f"{column:>9}" for column in (*COLUMNS, "seconds")))
    for result in sorted(results, key=lambda result: result.page):
        numbers = [*result.counts.values(), round(result.seconds)]
        print(f"{result.page:{width}} {result.shell:5}", *(f"{number:>9}" for number in numbers), " WRONG" if result.wrong else "")
    sums = {column: sum(result.counts[column] for result in results) for column in COLUMNS}
    print(f"{'in all':{width}}      ", *(f"{number:>9}" for number in sums.values()))
    print(f"{sum(sums.values())} blocks: {sums['run']} run, {sums['dry-run']} by a dry run of the server, "
          f"{sums['elsewhere']} by other steps of CI; {sums['reason']} not run, with the reason above")


if __name__ == "__main__":
    main()
