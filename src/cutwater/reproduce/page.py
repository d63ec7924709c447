"""The page with the paper's claims and our numbers side by side: one file, no scripts, fit for a phone."""

import base64
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from cutwater.reproduce.item import unmet

PAPER = (
    "Wen, Zhang, Wang, Yang: <cite>Training Latency Minimization for Model-Splitting Allowed Federated Edge "
    "Learning</cite>"
)
GIVEN = (
    (
        "Given by the paper",
        "EfficientNetV2 with 59 layers on MNIST; a server of 3,000 GFLOPS; 30 clients with 361 to 3,578 "
        "samples; sessions of 20 epochs, batches of 32; one client in full (Sec. VI-A: 100 GFLOPS, 1,484 "
        "GFLOPS of the server, 3,396 samples, a rate of 4).",
    ),
    (
        "Recovered from its numbers",
        "The model is EfficientNetV2-M with one-channel input (the only reading that gives all three R). Its "
        "“4 Mb/s” are megabytes. A backward pass counts as κ = 4.7 forward passes. A session is I·|D| "
        "samples in the latency figures and I·|B| in the training figure.",
    ),
    (
        "Calibrated by us",
        "The other 29 clients, of which the paper says nothing else: the first nine so that the ten show "
        "what Fig. 8 shows, the other twenty drawn evenly over the same ranges. Each figure says what it "
        "rests on.",
    ),
)


def page(items: Sequence[Mapping[str, Any]], figures: Mapping[str, bytes]) -> str:
    """The whole page, from the items' documents and their figures as SVG."""
    style = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    claims = [claim for item in items for claim in item["claims"]]
    holding = sum(bool(claim["holds"]) for claim in claims)
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
            "style-src 'unsafe-inline'; img-src data:\">",
            f"<title>The paper, reproduced · Cutwater</title><style>{style}</style></head><body><main>",
            "<header><h1>The paper, reproduced</h1>",
            f"<p>Every table and figure of the experiments in {PAPER}, made anew by "
            "<code>cutwater reproduce</code>.</p>",
            f'<p class="tally"><b>{holding}</b> of {len(claims)} claims hold. The others say why not.</p>',
            '<p class="key"><span class="yes"></span> holds <span class="no"></span> does not follow</p>',
            _contents(items),
            "</header>",
            _given(),
            *(_section(item, figures[item["item"]]) for item in items),
            _footer(items),
            "</main></body></html>",
        ]
    )


def _contents(items: Sequence[Mapping[str, Any]]) -> str:
    links = "".join(
        f'<li><a href="#{escape(item["item"])}">{escape(item["title"])}</a> '
        f"<small>{escape(item['source'])}</small> {_marks(item['claims'])}</li>"
        for item in items
    )
    return f"<nav><ol>{links}</ol></nav>"


def _marks(claims: Sequence[Mapping[str, Any]]) -> str:
    """A mark for each claim, so that the contents are the result at a glance."""
    return "".join(f'<span class="{_verdict(c)}" title="{escape(c["claim"])}"></span>' for c in claims)


def _verdict(claim: Mapping[str, Any]) -> str:
    return "yes" if claim["holds"] else "no"


def _given() -> str:
    rows = "".join(f"<dt>{term}</dt><dd>{escape(text)}</dd>" for term, text in GIVEN)
    return f'<section><h2>What is given and what is not</h2><dl class="given">{rows}</dl></section>'


def _section(item: Mapping[str, Any], figure: bytes) -> str:
    image = base64.b64encode(figure).decode()
    missed = [e for e in item["expected"] if not e["met"]]
    warning = "".join(f'<p class="warning">{escape(unmet(e))}.</p>' for e in missed)
    return (
        f'<section id="{escape(item["item"])}"><h2>{escape(item["title"])} '
        f"<small>{escape(item['source'])}</small></h2><p>{escape(item['about'])}</p>"
        f'<figure><img alt="{escape(item["title"])}" src="data:image/svg+xml;base64,{image}">'
        f"<figcaption>{escape(item['reading'])}</figcaption></figure>"
        f'{warning}{_claims(item["claims"])}<p class="basis">{escape(item["basis"])}</p></section>'
    )


def _claims(claims: Sequence[Mapping[str, Any]]) -> str:
    if not claims:
        return ""
    rows = "".join(_claim(claim) for claim in claims)
    head = "<thead><tr><th>Claim</th><th>Paper</th><th>Here</th><th>Holds</th></tr></thead>"
    return f"<table>{head}<tbody>{rows}</tbody></table>"


def _claim(claim: Mapping[str, Any]) -> str:
    return (
        f"<tr><td><b>{escape(claim['claim'])}</b><p>{escape(claim['why'])}</p></td>"
        f'<td data-label="Paper">{escape(claim["paper"])}</td>'
        f'<td data-label="Here">{escape(claim["ours"])}</td>'
        f'<td data-label="Holds" class="{_verdict(claim)}-text">{_verdict(claim)}</td></tr>'
    )


def _footer(items: Sequence[Mapping[str, Any]]) -> str:
    seconds = sum(item["seconds"] for item in items)
    made = items[-1]["made_with"] if items else {}
    with_ = ", ".join(f"{name} {value}" for name, value in made.items() if name != "machine")
    return (
        f"<footer><p>Made in {seconds:,.0f} s on {escape(made.get('machine', 'no machine'))} with "
        f"{escape(with_)}. All numbers are in <code>values/</code>, all claims in <code>claims.json</code>, "
        f"all figures as PNG and SVG in <code>figures/</code>.</p></footer>"
    )
