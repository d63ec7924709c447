"""What mkdocs does besides: pages made from the code, equations without JavaScript, keys that must exist.

A warning from here ends the build, as any other does (`strict` in mkdocs.yml).
"""

import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
# The package may not be installed where the site is built, and mkdocs reads a hook as a lone file.
sys.path[:0] = [str(ROOT / "src"), str(Path(__file__).parent)]

import keys  # noqa: E402
import made_pages  # noqa: E402
import mathml  # noqa: E402

log = get_plugin_logger("cutwater")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made from the code."""
    for path, content in made_pages.pages(ROOT).items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Look for keys that no scenario has; let every name of the package follow its table."""
    for sentence in keys.unknown(markdown):
        log.warning("%s: %s", page.file.src_uri, sentence)
    if page.file.src_uri == "api.md":
        markdown += made_pages.details_of_names(log.warning)
    return markdown


def on_page_content(html: str, page: Page, **_: object) -> str:
    """Equations as MathML, which browsers draw by themselves."""
    try:
        return mathml.drawn(html)
    except mathml.EquationError as error:
        log.warning("%s: %s", page.file.src_uri, error)
        return html
