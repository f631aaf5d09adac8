"""The links of a page: each leads to a file of this repository and, if it names a section, to a heading there."""

import re

from pages import Wrong

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)


def check(page, repository):
    """Uses no network, so links to other sites are not checked."""
    for target in LINK.findall(FENCE.sub("", (repository / page).read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (repository / page).parent / name if name else repository / page
        if not path.exists():
            raise Wrong(f"{page}: {target} is not there")
        if anchor and path.suffix == ".md" and anchor not in anchors(path.read_text()):
            raise Wrong(f"{page}: {target} has no such section")


def anchors(text):
    """As GitHub makes them of headings."""
    found = []
    for heading in re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        found.append(f"{anchor}-{found.count(anchor)}" if anchor in found else anchor)
    return found
