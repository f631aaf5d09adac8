"""The pages of the documentation, and what there is to try in them.

A block of code is run, applied or compared by its language. A comment right before it changes that:

    <!-- not run: needs EKS -->      why it is not run; of `sh`, its syntax is checked
    <!-- run by: hack/test.sh -->    who runs it instead
    <!-- run if: command -v mvn -->  run only where the command succeeds
    <!-- save as: class.yaml -->     written to that file, which later blocks use
    <!-- same as: examples/a.py -->  is the text of that file

A page that begins with `<!-- stack: --with-seaweedfs -->` gets a stack with these options. What a reader has and the runner does not, it makes
by commands that readers do not see:

    <!-- prepare:
    kubectl apply --filename crds/
    -->
"""

import dataclasses
import json
import re

OPTIONS = re.compile(r"^<!-- stack: (.+) -->$", re.MULTILINE)
MARKER = re.compile(r"^<!-- (not run|run by|run if|run|save as|same as): (.+) -->$")
COMMAND = re.compile(
    r"(?:^|[|;&(])[ \t]*(?:(?:do|then|else|if|while|env|sudo|!|\w+=\S*)[ \t]+)*([a-z0-9]+)((?:[ \t][^|;&()\n]*)?)",
    re.MULTILINE,
)
# Options that differ or are missing in the tools of BSD, which a Mac has.
NOT_BSD = {
    "base64": r"-w|--wrap",
    "date": r"-d|--",
    "find": r"-printf|--",
    "grep": r"-[A-Za-z]*P|--perl",
    "head": r"-n -\d|--",
    "readlink": r"-f|--",
    "sed": r"-[A-Za-z]*[irz]|--",
    "stat": r"-[A-Za-z]*c|--",
    "xargs": r"-[0-9A-Za-z]*[dr]|--",
} | dict.fromkeys("cp cut ln mkdir mktemp mv rm sort tail touch tr uniq wc".split(), r"--\w")
GNU_ONLY = ("md5sum", "numfmt", "sha256sum", "shuf", "tac", "timeout")
# Pages whose blocks have names and are run by a test of their own, which fails if it leaves one out.
ELSEWHERE = {
    "docs/deploying-a-provisioner.md": ".ci/guide",
    "docs/disaster-recovery.md": "tests/it/guides.rs",
    "docs/writing-a-provisioner.md": ".ci/guide",
    "docs/writing-a-volume-provisioner.md": "tests/it/volumes/guide.rs",
}


class Wrong(Exception):
    """A block of a page does not work."""


@dataclasses.dataclass
class Block:
    page: str
    line: int
    language: str
    text: str
    markers: dict

    @property
    def place(self):
        return f"{self.page}:{self.line}"

    @property
    def reason(self):
        """Why the block is not run here, if it is not."""
        by = self.markers.get("run by") or ("run" in self.markers and ELSEWHERE.get(self.page))
        return f"run by {by}" if by else self.markers.get("not run")


def blocks(page, text):
    """The blocks of a page in their order; what is prepared has the language `prepare`."""
    found, markers, start, fence = [], {}, None, None
    for number, line in enumerate(text.splitlines(), 1):
        if start is not None:
            if line.strip() == fence:
                line_of_fence, language, body = start
                found.append(Block(page, line_of_fence, language, "".join(cut(row, indent) for row in body), markers))
                start, markers = None, {}
            else:
                start[2].append(line + "\n")
        elif line.strip() == "<!-- prepare:":
            start, fence, indent = (number, "prepare", []), "-->", len(line) - len(line.lstrip())
        elif line.lstrip().startswith("```"):
            start, fence, indent = (number, line.strip()[3:].strip(), []), "```", len(line) - len(line.lstrip())
        elif match := MARKER.match(line.strip()):
            markers[match[1]] = match[2]
        elif line.strip():
            if markers:
                raise Wrong(f"{page}:{number - 1}: a comment for a block, and no block after it")
    if start is not None:
        raise Wrong(f"{page}:{start[0]}: a block that does not end")
    return found


def cut(row, indent):
    """A row of a block that is indented, because it belongs to a list."""
    return row[indent:] if row[:indent].isspace() else row


def looked_at(block, repository):
    """Checks a block without a cluster. Returns how: the column of the table in which it counts."""
    if name := block.markers.get("same as"):
        if (repository / name).read_text() != block.text:
            raise Wrong(f"{block.place}: this is not the text of {name}")
        return "compared"
    if block.language == "json":
        try:
            json.loads(block.text)
        except ValueError as error:
            raise Wrong(f"{block.place}: {error}") from error
        return "parsed"
    # What is in a heredoc the shell does not read.
    commands = re.sub(r"<<'?(\w+)'?(.*)\n(?:.*\n)*?\1\n", r"\2\n", block.text)
    if block.language == "sh" and re.search(r"^\s*#|\s#\s", commands, re.MULTILINE):
        raise Wrong(f"{block.place}: a comment, which zsh does not understand at its prompt; say it before the block")
    if block.language == "sh":
        check_portable(block, commands)
    if block.reason:
        return "elsewhere" if block.reason.startswith("run by ") else "reason"
    if block.page in ELSEWHERE:
        return "elsewhere"
    if block.language == "console" and any(not row.startswith("$ ") for row in block.text.splitlines()):
        # A session, with what the programs printed.
        return "shown"
    if block.language in ("", "text"):
        # Pictures, and what programs print. Commands do not hide there.
        if re.search(r"^\s*(\$ |kubectl |helm |aws )", block.text, re.MULTILINE):
            raise Wrong(f"{block.place}: commands in a block without a language; say sh")
        return "shown"
    if block.language in ("sh", "yaml", "prepare"):
        return None
    raise Wrong(f"{block.place}: nothing tries a block of {block.language}; it needs `same as` or `not run`")


def check_portable(block, commands):
    """That the commands work with the tools of GNU and of BSD."""
    for tool, arguments in COMMAND.findall(commands.replace("\\\n", " ")):
        option = tool in NOT_BSD and re.search(rf"(?<=\s)({NOT_BSD[tool]})\S*", arguments)
        if option or tool in GNU_ONLY:
            used = f"{tool} {option[0]}" if option else tool
            raise Wrong(f"{block.place}: `{used}` does not work with the tools of a Mac; use what GNU and BSD both have")
