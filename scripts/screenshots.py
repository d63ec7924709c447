"""The pictures in docs/screenshots, taken of the real pages: `make screenshots`.

It trains the digits twice (with the plan's cuts and as FedAvg), serves the planner page, and takes pictures.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "docs" / "screenshots"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
ARGUMENTS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
]
WIDE, LARGE, PHONE = (1280, 940), (1920, 1080), (390, 844)
PATIENCE = 300_000
"""Milliseconds for an answer: the first counts a model, and other programs may be running."""


def cutwater(*arguments: str) -> None:
    """One command to its end."""
    subprocess.run([Path(sys.executable).with_name("cutwater"), *arguments], check=True, cwd=ROOT)


def take(page: Page, name: str) -> None:
    """A picture of what is on the screen, in few colours, so that the repository stays small."""
    path = TARGET / f"{name}.png"
    page.screenshot(path=path)
    Image.open(path).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path.relative_to(ROOT)}  {path.stat().st_size // 1024} kB")


def planner(page: Page, url: str) -> None:
    """The page with its plan and all figures drawn."""
    page.goto(url)
    page.wait_for_selector("html[data-settled]", timeout=PATIENCE)
    page.wait_for_timeout(300)


def after(page: Page, act: Callable[[], object]) -> None:
    """Do something, and wait for its answer on all panels."""
    before = page.evaluate("document.documentElement.dataset.settled")
    act()
    page.wait_for_selector(f"html:not([data-settled='{before}'])", timeout=PATIENCE)


def enter(page: Page, field: str, text: str) -> None:
    """Type into a field, and wait for the answer."""
    after(page, lambda: (page.fill(field, text), page.press(field, "Tab")))


def scroll(page: Page, top: str) -> None:
    """So that a panel is at the top."""
    page.evaluate("document.activeElement.blur()")
    page.evaluate("document.querySelectorAll('.scroll').forEach((one) => one.scrollTo(0, 0))")
    page.mouse.move(0, 0)
    place = f"document.getElementById('{top}').getBoundingClientRect().top"
    page.evaluate(f"window.scrollBy(0, {place} - 14)")
    page.wait_for_timeout(300)


def step(page: Page, url: str, top: str) -> None:
    """One step in four parts that overlap, its smashed data in eight bits."""
    planner(page, url)
    enter(page, "#parts", "4")
    after(page, lambda: page.select_option("#codec-up", "int8"))
    enter(page, "[aria-label='round trip of c10']", "20 ms")
    scroll(page, top)


def band(page: Page, url: str) -> None:
    """The ten clients behind one line, with what each gets of it."""
    planner(page, url)
    enter(page, "#uplink", "12 MB/s")
    enter(page, "#downlink", "24 MB/s")
    page.evaluate("document.getElementById('controls').scrollTo(0, 1e6)")
    scroll(page, "plan" if page.viewport_size and page.viewport_size["width"] == WIDE[0] else "band-title")


def size(page: Page, url: str) -> None:
    """What a shorter round takes, at what price."""
    planner(page, url)
    enter(page, "#price-compute", "0.02 EUR / GFLOPS / h")
    enter(page, "#price-link", "0.50 EUR / MB/s / h")
    page.fill("#size-round", "400 s")
    page.press("#size-round", "Enter")
    page.wait_for_selector("#mix-use", timeout=PATIENCE)
    scroll(page, "size")


def jobs(page: Page, url: str) -> None:
    """Two models on one server."""
    planner(page, url)
    after(page, lambda: page.click("#job-add"))
    enter(page, "[aria-label='name of job efficientnet_v2_m']", "digits")
    after(page, lambda: page.select_option("#model", "resnet50"))
    enter(page, "#input", "3x64x64")
    enter(page, "#amount", "5")
    after(page, lambda: page.click("#job-add"))
    enter(page, "[aria-label='name of job resnet50']", "cameras")
    enter(page, "[aria-label='weight of job cameras']", "2")
    scroll(page, "planners")


def fleet(page: Page, url: str) -> None:
    """Ten thousand clients, those with slow links of them, the last to finish first."""
    planner(page, url)
    page.click("#draw")
    page.fill("#draw-clients", "10000")
    after(page, lambda: page.click("#draw-apply"))
    page.fill("#fleet-where", "rate < 3 MB/s")
    page.press("#fleet-where", "Enter")
    page.fill("#group-value", "x1.2")
    for _ in range(2):
        page.click("#fleet thead button:has-text('session')")
    scroll(page, "fleet")


SCREENS = {
    "light": (WIDE, "light"),
    "dark": (WIDE, "dark"),
    "large": (LARGE, "light"),
    "phone": (PHONE, "light"),
}
PANELS = {"band": band, "size": size, "jobs": jobs, "fleet": fleet}


def shoot(url: str, report: Path) -> None:
    """Every picture."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        for name, ((width, height), scheme) in SCREENS.items():
            context = browser.new_context(
                viewport={"width": width, "height": height}, color_scheme=scheme, device_scale_factor=1
            )
            page = context.new_page()
            shoot_planner(page, url, name)
            if name != "large":
                shoot_report(page, report, name)
            context.close()
        browser.close()


def shoot_planner(page: Page, url: str, name: str) -> None:
    """The planner page on one screen."""
    planner(page, url)
    take(page, f"planner-{name}")
    if name == "light":
        scroll(page, "level")
        take(page, "planner-level")
    if name in ("light", "phone"):
        for panel, show in PANELS.items():
            show(page, url)
            take(page, f"planner-{panel}-{name}")
    if name != "large":
        step(page, url, "step" if name == "phone" else "phases")
        take(page, f"planner-step-{name}")


def shoot_report(page: Page, report: Path, name: str) -> None:
    """The report on one screen."""
    page.goto(report.as_uri())
    page.click("text=by time")
    page.wait_for_timeout(300)
    take(page, f"report-{name}")
    if name == "light":
        page.evaluate("window.scrollTo(0, document.getElementById('gantt').offsetTop - 90)")
        page.wait_for_timeout(200)
        take(page, "report-round")


def main() -> None:
    """Train, serve, photograph."""
    if CHROMIUM is None:
        sys.exit("no Chromium here: install it (Debian: apt-get install chromium)")
    TARGET.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder)
        for name, planner_ in (("split", "exact"), ("fedavg", "fedavg")):
            cutwater("train", "examples/digits.toml", "--run", str(runs / name), "--planner", planner_)
        cutwater("report", str(runs / "split"), str(runs / "fedavg"), "--out", str(runs / "report.html"))
        command = [Path(sys.executable).with_name("cutwater"), "web", "examples/paper-ten.toml"]
        command += ["--runs", str(runs), "--port", "0"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        try:
            assert server.stdout is not None
            found = re.search(r"http://\S+", server.stdout.readline())
            assert found is not None
            shoot(found[0], runs / "report.html")
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
