"""The pictures in docs/screenshots, taken of the real pages: `make screenshots`.

It trains the digits twice (with the plan's cuts and as FedAvg), serves the planner page, and takes pictures.
"""

import re
import shutil
import subprocess
import sys
import tempfile
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
WIDE, PHONE = (1280, 940), (390, 844)


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
    page.wait_for_selector("html[data-settled]", timeout=60_000)
    page.wait_for_timeout(300)


def step(page: Page, url: str, top: str) -> None:
    """One step in four parts that overlap, its smashed data in eight bits."""
    planner(page, url)
    for act in (
        lambda: (page.fill("#parts", "4"), page.press("#parts", "Tab")),
        lambda: page.select_option("#codec-up", "int8"),
        lambda: (page.fill("[aria-label='round trip of c10']", "20 ms"), page.keyboard.press("Tab")),
    ):
        before = page.evaluate("document.documentElement.dataset.settled")
        act()
        page.wait_for_selector(f"html:not([data-settled='{before}'])", timeout=60_000)
    page.mouse.move(0, 0)
    page.evaluate(f"window.scrollTo(0, document.getElementById('{top}').offsetTop - 14)")
    page.wait_for_timeout(300)


def shoot(url: str, report: Path) -> None:
    """Every picture."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        for name, size, scheme in (
            ("light", WIDE, "light"),
            ("dark", WIDE, "dark"),
            ("phone", PHONE, "light"),
        ):
            context = browser.new_context(
                viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, device_scale_factor=1
            )
            page = context.new_page()
            planner(page, url)
            take(page, f"planner-{name}")
            if name == "light":
                page.locator("#level").scroll_into_view_if_needed()
                page.evaluate("window.scrollTo(0, document.getElementById('level').offsetTop - 14)")
                page.wait_for_timeout(200)
                take(page, "planner-level")
            step(page, url, "step" if name == "phone" else "phases")
            take(page, f"planner-step-{name}")
            page.goto(report.as_uri())
            page.click("text=by time")
            page.wait_for_timeout(300)
            take(page, f"report-{name}")
            if name == "light":
                page.evaluate("window.scrollTo(0, document.getElementById('gantt').offsetTop - 90)")
                page.wait_for_timeout(200)
                take(page, "report-round")
            context.close()
        browser.close()


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
