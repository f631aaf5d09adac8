"""Checks the links of all pages: each leads to a file of this repository and, if it names a section, to a heading there.
Uses no network, so links to other sites are not checked.

usage: hack/docs/links.py
"""

import pathlib
import re
import subprocess
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)


def broken(page):
    """What is wrong with the links of a page."""
    for target in LINK.findall(FENCE.sub("", page.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = page.parent / name if name else page
        if not path.exists():
            yield f"{target} is not there"
        elif anchor and path.suffix == ".md" and anchor not in anchors(path.read_text()):
            yield f"{target} has no such section"


def anchors(text):
    """As GitHub makes them of headings."""
    found = []
    for heading in re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        found.append(f"{anchor}-{found.count(anchor)}" if anchor in found else anchor)
    return found


def main():
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", "*.md"]
    pages = subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout.split("\n")
    problems = [f"{page}: {what}" for page in pages if page for what in broken(REPOSITORY / page)]
    print("\n".join(problems), end="\n" if problems else "")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
