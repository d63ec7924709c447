"""A page in one file: styles, scripts and data inline, nothing fetched, nothing but its own scripts run."""

import base64
import hashlib
import json
from html import escape
from importlib.resources import files
from typing import Any

from cutwater.report.figures import PHASE_COLOURS
from cutwater.report.run_report import report_data
from cutwater.runs.confined import Folder

STYLES = ("style.css",)
SCRIPTS = ("core.js", "charts.js", "lanes.js", "clients.js", "report-run.js", "report-round.js", "report.js")


def asset(name: str) -> str:
    """A part of the page that ships with the package; the colours of the phases are those of all figures."""
    if name == "phases.css":
        colours = "".join(f"--{phase.replace('_', '-')}:{colour};" for phase, colour in PHASE_COLOURS.items())
        return f":root{{{colours}}}\n"
    return files("cutwater.report").joinpath("assets", name).read_text(encoding="utf-8")


def report_html(folders: "list[tuple[str, Folder]]") -> str:
    """The report of one run, or of several compared, as one file."""
    names = ", ".join(name for name, _ in folders)
    styles = "".join(asset(name) for name in ("phases.css", *STYLES))
    script = "".join(asset(name) for name in SCRIPTS)
    return fill(
        asset("report.html"),
        title=escape(f"{names} · Cutwater"),
        policy=f"default-src 'none'; img-src data: blob:; style-src '{digest(styles)}'; "
        f"script-src '{digest(script)}'; base-uri 'none'; form-action 'none'",
        styles=f"<style>{styles}</style>",
        scripts=f"<script>{script}</script>",
        live="",
        data=embed(report_data(folders)),
    )


def fill(template: str, **values: str) -> str:
    """A template with each {{name}} replaced, in one pass, so that a value is never read as a template."""
    pieces = template.split("{{")
    filled = [pieces[0]]
    for piece in pieces[1:]:
        name, _, rest = piece.partition("}}")
        filled += [values[name], rest]
    return "".join(filled)


def embed(data: Any) -> str:
    """JSON that can stand inside a script element whatever its texts hold."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    return text.replace("<", "\\u003c")


def digest(content: str) -> str:
    """What a content security policy calls an inline script or style by."""
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
