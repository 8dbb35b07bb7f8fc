"""Makes the pictures of README.md from a real demo: `demo.svg`, the end of `make demo`, and `dagster.png`, a table in
Dagster's web interface.

It needs Chromium (on Debian `apt-get install chromium`), and playwright, which no lock holds, since nothing else needs
it. Beside `make ui`, once:

    .venv/bin/python -m pip install --target build/playwright playwright

Then, from the repository's folder:

    PYTHONPATH=build/playwright .venv/bin/python docs/pictures/make.py \
        --demo demo-lakehouse --browser /usr/bin/chromium

Where the folder of `--demo` does not exist, the demo is built there, which takes a minute or two, and both pictures are
made. An existing demo gives `dagster.png` alone: maintained again, it would report that there is nothing to do.

Look at the pictures before they are committed.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.terminal_theme import TerminalTheme

from lakehouse_maintenance.demo.report import draw

if TYPE_CHECKING:
    from playwright.sync_api import Page

PICTURES = Path(__file__).resolve().parent
REPOSITORY = PICTURES.parent.parent
TABLE = "demo.analytics.events"
WIDTH = 1400
SERVER_SECONDS = 120
BROWSER_MILLISECONDS = 60_000

# Readable on a dark ground at the size that README shows: rich's own themes draw dim text too faint for that.
THEME = TerminalTheme(
    background=(22, 27, 34),
    foreground=(225, 230, 236),
    normal=[
        *((72, 79, 88), (255, 123, 114), (86, 211, 100), (227, 179, 65)),
        *((121, 192, 255), (210, 168, 255), (86, 212, 221), (225, 230, 236)),
    ],
)
FONTS = "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', 'Liberation Mono', monospace"


def main() -> None:
    parser = argparse.ArgumentParser(description="Makes the pictures of README.md.")
    parser.add_argument("--demo", type=Path, required=True, help="folder of the demo; built where it does not exist")
    parser.add_argument("--browser", type=Path, required=True, help="Chromium's program, such as /usr/bin/chromium")
    arguments = parser.parse_args()
    demo = arguments.demo.resolve()
    if demo.exists():
        tell(f"{demo} exists: demo.svg stays as it is, since only a demo just built has something to report")
    else:
        draw_report(build_demo(demo), PICTURES / "demo.svg")
    with web_interface(demo) as address:
        photograph(address, arguments.browser, PICTURES / "dagster.png")


def build_demo(into: Path) -> dict[str, Any]:
    """The result of the `demo` verb."""
    command = [sys.executable, "-m", "lakehouse_maintenance", "--json", "demo", "--into", str(into)]
    done = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, check=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def draw_report(result: dict[str, Any], picture: Path) -> None:
    """As a terminal shows it. Only the folder is told from where `make demo` was called, not from the root."""
    console = Console(record=True, width=100, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    draw({**result, "config": "demo-lakehouse/lakehouse.yaml"}, console)
    console.print()
    svg = console.export_svg(title="make demo", theme=THEME, unique_id="demo")
    # Rich's picture asks a server for its font. In README it may not, and it need not.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    svg = svg.replace("font-family: Fira Code, monospace", f"font-family: {FONTS}")
    picture.write_text("\n".join(line.rstrip() for line in svg.splitlines()) + "\n", encoding="utf-8")
    tell(f"wrote {picture}")


@contextmanager
def web_interface(demo: Path) -> Iterator[str]:
    """Dagster on the demo's runs. It is told to stop as by Ctrl-C, so that its code server ends too."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [
            *(sys.executable, "-m", "dagster_webserver"),
            *("-h", "127.0.0.1", "-p", str(port), "-w", str(REPOSITORY / "workspace.yaml")),
        ],
        cwd=demo,
        env={
            **os.environ,
            "DAGSTER_HOME": str(demo / ".dagster"),
            "LAKEHOUSE_MAINTENANCE_CONFIG": str(demo / "lakehouse.yaml"),
        },
        stdout=subprocess.DEVNULL,
    )
    address = f"http://127.0.0.1:{port}"
    try:
        wait_for(address, server)
        yield address
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(timeout=SERVER_SECONDS)


def wait_for(address: str, server: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + SERVER_SECONDS
    while time.monotonic() < end and server.poll() is None:
        try:
            with urllib.request.urlopen(f"{address}/server_info", timeout=5):  # noqa: S310 - our own server
                return
        except (urllib.error.URLError, TimeoutError):
            time.sleep(0.5)
    raise SystemExit("Dagster's web interface did not start; `make ui` shows why")


def photograph(address: str, browser: Path, picture: Path) -> None:
    """The partition of one table of `maintained`, down to the end of its outcome."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=browser,
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"],
        )
        page = chromium.new_page(
            viewport={"width": WIDTH, "height": 1000}, color_scheme="light", locale="en-US", timezone_id="UTC"
        )
        page.set_default_timeout(BROWSER_MILLISECONDS)
        page.goto(f"{address}/assets/lakehouse/maintained?view=partitions&partition={TABLE}")
        outcome = page.get_by_text("live_files_present", exact=True).first
        outcome.wait_for()
        dismiss_dialog(page)
        page.get_by_text("Hide navigation").click()
        page.mouse.move(0, 0)
        page.wait_for_timeout(3000)  # moving panels and checks that are still asked for
        below = page.get_by_text("lakehouse_maintenance/status", exact=True).bounding_box()
        if below is None:
            raise SystemExit("the outcome is not where it used to be: Dagster's page has changed")
        page.set_viewport_size({"width": WIDTH, "height": int(below["y"])})
        page.wait_for_timeout(1000)
        page.screenshot(path=picture)
        chromium.close()
    tell(f"wrote {picture} ({picture.stat().st_size:,} bytes)")


def dismiss_dialog(page: Page) -> None:
    """The dialog that Dagster shows once for each instance, a moment after the page."""
    from playwright.sync_api import TimeoutError as NotThere

    skip = page.get_by_role("button", name="Skip", exact=True)
    try:
        skip.wait_for(timeout=8000)
    except NotThere:
        return
    skip.click()
    skip.wait_for(state="hidden")


def tell(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    main()
