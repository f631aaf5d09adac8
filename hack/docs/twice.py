"""Checks that no fact is explained twice: no two paragraphs of the documentation share a run of words.

usage: hack/docs/twice.py [WORDS]   the length of such a run; default: 15
"""

import pathlib
import re
import subprocess
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^ *```.*?^ *```$|<!--.*?-->", re.MULTILINE | re.DOTALL)
# A release's notes repeat what has become true with it.
LEFT_OUT = {"CHANGELOG.md"}


def paragraphs(page):
    text = FENCE.sub("\n\n", (REPOSITORY / page).read_text())
    # A row of a table, and an item of a list, is a paragraph.
    return re.split(r"\n\s*\n|\n(?=\||\s*[-*] |\s*\d+\. )", text)


def words(paragraph):
    plain = re.sub(r"\]\([^)]*\)", "]", paragraph)
    return re.findall(r"[\w./:{}$-]+", plain.lower())


def main():
    length = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", "*.md"]
    pages = subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout.split()
    seen, twice = {}, {}
    for page in sorted(set(pages) - LEFT_OUT):
        if not (REPOSITORY / page).exists():
            continue
        for number, paragraph in enumerate(paragraphs(page)):
            found = words(paragraph)
            for start in range(len(found) - length + 1):
                run = tuple(found[start:start + length])
                other = seen.setdefault(run, (page, number))
                if other != (page, number):
                    twice.setdefault((other, (page, number)), " ".join(run))
    for ((one, _), (other, _)), run in twice.items():
        print(f"{one} and {other}: {run} …")
    return bool(twice)


if __name__ == "__main__":
    sys.exit(main())
