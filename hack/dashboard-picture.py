#!/usr/bin/env python3
"""Draws the panels of deploy/monitoring/dashboard.json from what Prometheus has scraped, for docs/images/dashboard.png.

Needs matplotlib, which brings Pillow:
    python3 -m venv venv && venv/bin/pip install matplotlib==3.11.2
    .ci/monitoring --record panels.json
    venv/bin/python hack/dashboard-picture.py panels.json docs/images/dashboard.png

usage: hack/dashboard-picture.py FILE PICTURE
"""
import io
import json
import math
import re
import sys
from pathlib import Path

import matplotlib
from PIL import Image
from matplotlib.ticker import FuncFormatter, MaxNLocator

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # after the choice of the backend

BACK, PANEL, TEXT, FAINT = "#111217", "#181b1f", "#d8d9da", "#8e9297"
COLORS = ["#73bf69", "#f2cc0c", "#8ab8ff", "#ff9830", "#f2495c", "#b877d9", "#5794f2", "#ca95e5", "#96d98d", "#ffb357"]
COLUMNS = 24
# Inches of a unit of Grafana's grid.
WIDTH, HEIGHT = 0.62, 0.30


def shown(unit):
    """A value as Grafana writes it."""
    def seconds(value):
        for size, word in ((86400, "d"), (3600, "h"), (60, "min")):
            if abs(value) >= size:
                return f"{value / size:.3g} {word}"
        return f"{value * 1000:.3g} ms" if 0 < abs(value) < 1 else f"{value:.3g} s"

    def size(value):
        return f"{value / 2**20:.3g} MiB"

    return {"s": seconds, "bytes": size, "percentunit": lambda value: f"{value * 100:.3g} %",
            "ops": lambda value: f"{value:.2g}/s"}.get(unit, lambda value: f"{value:.4g}")


def series(panel):
    """The lines of a panel: name, times and values."""
    for line in panel["lines"]:
        for result in line["result"]:
            labels = result["metric"]
            name = re.sub(r"\{\{(\w+)\}\}", lambda match: labels.get(match[1], ""), line["legend"]).strip()
            values = [(time, float(value)) for time, value in result["values"] if not math.isnan(float(value))]
            if values:
                yield name or "(none)", values


def draw_number(axes, panel):
    lines = [values for _, values in series(panel)]
    value = lines[0][-1][1] if lines else 0
    bad = panel["title"] in ("Failed", "Orphans", "Unavailable stores") and value > 0
    text = {"Leader": "serves" if value else "none"}.get(panel["title"], shown(panel["unit"])(value))
    axes.text(0.5, 0.42, text, color="#ff9830" if bad else "#73bf69", size=17, ha="center", va="center", weight="bold",
              transform=axes.transAxes)
    axes.set_xticks([])
    axes.set_yticks([])


def draw_lines(axes, panel, span):
    lines = sorted(series(panel))[:10]
    seconds = [time - span["start"] for time in span["times"]]
    tables = [dict(values) for _, values in lines]
    if panel["stacked"]:
        below = [0.0] * len(seconds)
        for number, table in enumerate(tables):
            above = [low + table.get(time, 0.0) for low, time in zip(below, span["times"])]
            axes.fill_between(seconds, below, above, color=COLORS[number % len(COLORS)], alpha=0.35, linewidth=0)
            axes.plot(seconds, above, color=COLORS[number % len(COLORS)], linewidth=0.9)
            below = above
    else:
        for number, table in enumerate(tables):
            values = [table.get(time, math.nan) for time in span["times"]]
            axes.plot(seconds, values, color=COLORS[number % len(COLORS)], linewidth=1.1)
    handles = [plt.Line2D([], [], color=COLORS[n % len(COLORS)], linewidth=2) for n in range(len(lines))]
    axes.legend(handles, [name[:34] for name, _ in lines], loc="upper left", bbox_to_anchor=(-0.02, -0.13), ncols=3,
                frameon=False, fontsize=5.2, labelcolor=FAINT, handlelength=1.2, columnspacing=1.0, labelspacing=0.25)
    axes.set_xlim(0, seconds[-1])
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: shown("s")(value)))
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: shown(panel["unit"])(value)))
    axes.grid(color="#2c3235", linewidth=0.5)
    axes.tick_params(colors=FAINT, labelsize=5.5, length=0)


def main(file, picture):
    recorded = json.loads(Path(file).read_text())
    span = recorded["span"]
    span["times"] = sorted({time for panel in recorded["panels"] for _, values in series(panel) for time, _ in values})
    bottom = max(panel["at"]["y"] + panel["at"]["h"] for panel in recorded["panels"])
    plt.rcParams["font.family"] = "DejaVu Sans"
    figure = plt.figure(figsize=(COLUMNS * WIDTH, bottom * HEIGHT), facecolor=BACK)

    def area(at, left, right, top, low):
        """A part of a place in Grafana's grid, in parts of the figure; the margins are in units of the grid."""
        return [(at["x"] + left) / COLUMNS, 1 - (at["y"] + at["h"] - low) / bottom,
                (at["w"] - left - right) / COLUMNS, (at["h"] - top - low) / bottom]

    for row in recorded["rows"]:
        figure.text(0.006, 1 - (row["at"]["y"] + 0.6) / bottom, row["title"], color=TEXT, size=9, weight="bold", va="center")
    for panel in recorded["panels"]:
        at = panel["at"]
        figure.add_artist(plt.Rectangle(area(at, 0.1, 0.1, 0.12, 0.12)[:2], *area(at, 0.1, 0.1, 0.12, 0.12)[2:],
                                        facecolor=PANEL, edgecolor="#2c3235", linewidth=0.6, zorder=-1, transform=figure.transFigure))
        figure.text((at["x"] + 0.3) / COLUMNS, 1 - (at["y"] + 0.75) / bottom, panel["title"], color=TEXT, size=7, va="center")
        is_number = panel["type"] == "stat"
        axes = figure.add_axes(area(at, *((0.2, 0.2, 1, 0.4) if is_number else (1.0, 0.35, 1.5, 2.1))), facecolor=PANEL)
        for spine in axes.spines.values():
            spine.set_visible(False)
        if is_number:
            draw_number(axes, panel)
        else:
            draw_lines(axes, panel, span)
    Path(picture).parent.mkdir(parents=True, exist_ok=True)
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=100, facecolor=BACK)
    # Half the size, for few colours.
    Image.open(drawn).convert("RGB").quantize(64).save(picture, optimize=True)


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    main(*sys.argv[1:])
