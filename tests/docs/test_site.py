"""The documentation site is built without a warning, and what is wrong with a page ends the build."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("mkdocs", reason="mkdocs is not installed: pip install 'cutwater[docs]'")
pytest.importorskip("latex2mathml", reason="latex2mathml is not installed: pip install 'cutwater[docs]'")
ROOT = Path(__file__).parents[2]


def build(root: Path, site: Path) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join(filter(None, [str(root / "src"), os.environ.get("PYTHONPATH", "")]))
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": paths, "NO_COLOR": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built of the pages as they are."""
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT, folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_nothing_of_the_site_is_fetched_from_elsewhere(site):
    loaded = re.compile(r'<(?:script|link|img|iframe)\b[^>]*(?:src|href)="?(https?:)?//', re.IGNORECASE)
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not loaded.search(text), page
        assert "fonts.g" not in text, page


def test_every_command_section_and_public_name_is_in_the_reference(site):
    import click
    import typer.main

    import cutwater
    import cutwater.extend
    from cutwater.cli.main import app
    from cutwater.scenario.sections import SECTIONS

    group = typer.main.get_command(app)
    assert isinstance(group, click.Group)
    commands = (site / "reference" / "commands.html").read_text(encoding="utf-8")
    assert all(f'id="cutwater-{name}"' in commands for name in group.commands)
    keys = (site / "reference" / "scenario.html").read_text(encoding="utf-8")
    assert all(f'id="{name}"' in keys for name in SECTIONS)
    names = (site / "api.html").read_text(encoding="utf-8")
    for module in (cutwater, cutwater.extend):
        assert all(f'id="{home}.{name}"' in names for name, home in module._HOME.items())


def test_equations_are_drawn_without_a_script(site):
    page = (site / "how" / "planner.html").read_text(encoding="utf-8")
    assert "<math" in page
    assert "arithmatex" not in page


BROKEN = {
    "a link to a page": ("[there](nowhere.md)", "nowhere.md"),
    "a link to a place in a page": ("[there](index.md#nowhere)", "nowhere"),
    "a key that no scenario has": ("```toml\n[train]\nround = 3\n```", "'round'"),
    "a key in a sentence": ("Set `[train] quorums`.", "'quorums'"),
    "a key before its section": ("Set `roundes = 3` in `[train]`.", "'roundes'"),
    "a key before its section, on another line": ("Each has `rats` of its\n`[[client]]` table.", "'rats'"),
    "a section in a sentence": ("Set `rounds` of `[trains]`.", "[trains]"),
    "indented TOML": ('So:\n\n    [server]\n    computes = "3 GFLOPS"\n\nand on.', "'computes'"),
    "indented TOML that is none": ("So:\n\n    [server]\n    compute = 3 GFLOPS\n", "can't be read"),
    "a file of jobs": ('```toml\nobjectives = "sum"\n[[job]]\nname = "a"\n```', "'objectives'"),
    "a key of a job": ("```toml\n[[job]]\nweights = 2\n```", "'weights'"),
    "a key of a job's section": ("```toml\n[[job]]\n[job.session]\nepoch = 2\n```", "'epoch'"),
    "the server of jobs": ("```toml\n[server]\ncpu = 3\n[[job]]\nweight = 2\n```", "'cpu'"),
    "a section that no scenario has": ("```toml\n[trian]\nrounds = 3\n```", "'trian'"),
    "an equation that can't be read": ("$$\\frac{a}{$$", "equation"),
}


def test_every_mistake_of_a_page_ends_the_build(tmp_path):
    """One build of a few pages, each with a mistake: every one of them is named."""
    root = tmp_path / "root"
    shutil.copytree(ROOT / "scripts", root / "scripts")
    # With the modules that Python has compiled, but not with what others may be writing there right now.
    passing = shutil.ignore_patterns("*.pyc.*", "*.nb[ci]*")
    copied = shutil.copytree(ROOT / "src", root / "src", ignore=passing)
    source = copied / "cutwater" / "plan" / "fleet.py"
    text, described = (
        source.read_text(encoding="utf-8"),
        re.compile(r'(def replace\(.*?:\n) +""".*?"""\n', re.DOTALL),
    )
    assert described.search(text)
    source.write_text(described.sub(r"\1", text, count=1), encoding="utf-8")
    shutil.copytree(ROOT / "docs" / "assets", root / "docs" / "assets")
    shutil.copy(ROOT / "docs" / "api.md", root / "docs")
    (root / "examples").symlink_to(ROOT / "examples")
    shutil.copy(ROOT / "CHANGELOG.md", root)
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    # Docstrings are checked by a hook; drawing all of them is the whole site's part.
    drawing = re.compile(r"\n  - mkdocstrings:\n(?: {4}.*\n)+")
    assert drawing.search(settings)
    settings = drawing.sub("\n", settings)
    (root / "mkdocs.yml").write_text(settings[: settings.index("\nnav:")], encoding="utf-8")
    (root / "docs" / "index.md").write_text("# Start\n", encoding="utf-8")
    for place, (text, _) in enumerate(BROKEN.values()):
        (root / "docs" / f"broken-{place}.md").write_text(f"# Broken\n\n{text}\n", encoding="utf-8")
    done = build(root, tmp_path / "site")
    assert done.returncode != 0
    lines = done.stderr.splitlines()
    for place, (what, (_, said)) in enumerate(BROKEN.items()):
        named = [line for line in lines if f"broken-{place}.md" in line and said in line]
        assert named, f"{what} (broken-{place}.md) is not named:\n{done.stderr}"
    assert any("cutwater.plan.fleet.Fleet.replace has no docstring" in line for line in lines), done.stderr


def test_an_inherited_member_without_a_docstring_is_named(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "scripts" / "site")
    import made_pages

    class Base:
        __module__ = "cutwater.here"

        def told(self):
            """What it is."""

        def untold(self):
            pass

    class Foreign:
        __module__ = "elsewhere"

        def theirs(self):
            pass

    class Derived(Base, Foreign):
        """One of ours."""

        __module__ = "cutwater.here"

    monkeypatch.setattr(made_pages, "import_module", lambda _: SimpleNamespace(Derived=Derived))
    assert list(made_pages._undescribed("cutwater.here", "Derived", lambda *_: "")) == [
        "cutwater.here.Derived.untold"
    ]


def test_what_is_right_in_a_page_is_not_complained_about(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "scripts" / "site")
    import keys

    right = """
`rounds` of `[train]`, `labels = "stay"` in `[session]`, `compute` of its `[server]`, `weight` of a `[[job]]`.

    [server]
    compute = "3 GFLOPS"

Then:

    $ cutwater plan [what].toml

```toml
objective = "sum"
[server]
compute = "3 GFLOPS"
[[job]]
weight = 2
scenario = "a.toml"
[[job]]
[job.session]
epochs = 2
[[job.client]]
rate = "4 MB/s"
```

```toml title="pyproject.toml"
[tool.flwr.app]
publisher = "me"
```
"""
    assert list(keys.unknown(right)) == []


def test_every_page_fits_a_phone_nothing_is_fetched_and_search_works_from_files(site, browser):
    fetched, wider = [], {}
    for width in (1280, 390):
        page = browser.new_page(viewport={"width": width, "height": 844})
        page.on("request", lambda request: fetched.append(request.url))
        for path in sorted(site.rglob("*.html")):
            page.goto(path.as_uri(), wait_until="domcontentloaded")
            over = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            if over > 1:
                wider[f"{path.relative_to(site)} at {width} px"] = over
    assert wider == {}, "pixels that pages are too wide"
    if not page.is_visible(".md-search__input"):
        page.click("label[for='__search']:visible")
    page.fill(".md-search__input", "micro_batches")
    page.wait_for_selector(".md-search-result__link", timeout=30_000)
    assert [url for url in fetched if not url.startswith(("file:", "data:", "blob:"))] == []
