"""The page docs/coverage.md, made from results."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, packages_distributions, version

from cutwater.coverage.case import CLASSES, Result

MEANINGS = {
    "right": "the same bits at the first, middle and last cut, in train and in eval mode, at another batch "
    "size and length or resolution (or that size refused by name); the model untouched; the halves join",
    "few cuts": "right, but with two cuts at most between four blocks or more",
    "refused": "not taken apart, in one sentence that says why",
    "wrong": "anything else",
    "skipped": "the library is not installed, or the model itself does not run here",
}


def page(results: Sequence[Result]) -> str:
    """The page as Markdown."""
    checked = [result for result in results if result.outcome != "skipped"]
    right = sum(result.outcome == "right" for result in checked)
    lines = [
        "# Which models can be cut",
        "",
        "Made by `cutwater coverage --page docs/coverage.md`: tiny configurations of other libraries' "
        "models, with random weights, each taken apart by `cutwater.layered(model, example)` alone.",
        "",
        f"**{right} of {len(checked)} right.** The classes:",
        "",
        *(f"- **{name}**: {MEANINGS[name]}" for name in CLASSES),
        "",
        *_table(results),
        "",
        *_sizes(checked),
        "",
        *_list("Not right", (r for r in checked if r.outcome != "right")),
        *_list("Skipped", (r for r in results if r.outcome == "skipped")),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _table(results: Sequence[Result]) -> list[str]:
    lines = [f"| library | {' | '.join(CLASSES)} |", "| --- |" + " ---: |" * len(CLASSES)]
    for library in dict.fromkeys(result.library for result in results):
        counts = Counter(result.outcome for result in results if result.library == library)
        lines.append(f"| {_named(library)} | {' | '.join(str(counts[name]) for name in CLASSES)} |")
    counts = Counter(result.outcome for result in results)
    return [*lines, f"| all | {' | '.join(str(counts[name]) for name in CLASSES)} |"]


def _sizes(checked: Sequence[Result]) -> list[str]:
    tried = [result for result in checked if result.other_size]
    works = sum(result.other_size == "works" for result in tried)
    inexact = sum(not result.exact for result in checked)
    tied = sum(result.tied for result in checked)
    return [
        f"Of {len(tried)} models that take another length or resolution, {works} do so when cut; the others "
        f"refuse it by name. {inexact} differ from the module's own forward by rounding, and say so: their "
        f"`Layered.exact` is False. {tied} have a weight that learns at both ends: they are cut in three "
        'parts (`labels = "stay"`), and checked so.'
    ]


def _list(title: str, results: Iterable[Result]) -> list[str]:
    rows = [f"- {r.library} {r.name}: {r.outcome}. {_reason(r)}" for r in results]
    return [f"## {title}", "", *rows, ""] if rows else []


def _reason(result: Result) -> str:
    """Why it is not right; where in a library's code, wherever that is installed."""
    text = re.sub(r"\S*/site-packages/", "", result.reason.replace("|", "/"))
    return f"{text} (the remedy: {result.remedy})" if result.remedy else text


def _named(library: str) -> str:
    """A library with its version."""
    packages = packages_distributions().get(library, [library])
    try:
        return f"{library} {version(packages[0])}"
    except PackageNotFoundError:
        return library
