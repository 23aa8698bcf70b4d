"""The dashboard in a browser, on a job that runs: each view, what changes meanwhile, what is asked from the page, and a job that dies.

It needs Chromium, which no package index has: `apt-get install chromium`, or the path of one in POUNDLOCK_TEST_CHROMIUM.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from poundlock.cli.main import main
from poundlock.control.registry import Registry

sync_api = pytest.importorskip("playwright.sync_api", reason="the pages need playwright: pip install playwright")
pytestmark = [pytest.mark.engine, pytest.mark.torture]

BROWSERS = (os.environ.get("POUNDLOCK_TEST_CHROMIUM", ""), "chromium", "chromium-browser", "google-chrome")
PATIENCE_MS = 240_000
HOSTILE = "<img src=x onerror=window.hacked=1>"
JOB = f"""
from poundlock import DatagenSource, FileSink, Job, TumblingEventTimeWindows, WatermarkStrategy

job = Job("orders", checkpoint_interval="2 s", checkpoint_dir="checkpoint", dead_letters="dead", parallelism=1,
          spark={{"spark.sql.shuffle.partitions": "1"}})
columns = "id bigint, customer string, amount int, at timestamp"
fields = {{"id": "sequence", "customer": ["ada", "grace", "alan"], "amount": (1, 100)}}
orders = job.from_source(DatagenSource(columns, fields=fields, rate=200), name="orders")

def check(row):
    if row["id"] % 97 == 0:
        raise ValueError("{HOSTILE}")
    return row

timed = orders.map(check, schema=columns, name="check", on_error="bad_record").assign_timestamps_and_watermarks(
    WatermarkStrategy.bounded_out_of_orderness("1 s", timestamp="at"), name="time")
counted = timed.key_by("customer").window(TumblingEventTimeWindows("5 s")).aggregate("count(*) as n", name="per-customer")
counted.sink_to(FileSink("totals", format="json"), name="totals")
timed.where("amount > 90", name="large").sink_to(FileSink("large", format="json"), name="large-out")
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    path = next((there for name in BROWSERS if name and (there := shutil.which(name))), None)
    if path is None:
        pytest.skip("NO BROWSER: the dashboard is not tested. Install one: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        # As root there is no sandbox, and a container's /dev/shm is small.
        made = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield made
        made.close()


@dataclass
class Scene:
    """A job and the dashboard that shows it."""

    folder: Path
    job_id: str
    address: str
    token: str

    @property
    def entry(self) -> Any:
        return Registry(self.folder / "state").resolve("orders")


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("dashboard")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("POUNDLOCK_STATE_DIR", str(folder / "state"))
        patch.setenv("POUNDLOCK_DRIVER_MEMORY", "1g")
        (folder / "job.py").write_text(JOB)
        assert main(["run", "-d", "job.py:job"]) == 0
        command = [sys.executable, "-m", "poundlock", "dashboard", "--port", "0", "--json"]
        dashboard = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert dashboard.stdout is not None
            shown = json.loads(dashboard.stdout.readline())
            token = Path(shown["token_file"]).read_text()
            job_id = json.loads((folder / "checkpoint" / "job.json").read_text())["job_id"]
            while not (folder / "checkpoint" / "ledger" / f"{4:020d}.json").exists():
                time.sleep(0.5)
            yield Scene(folder, job_id, shown["address"], token)
        finally:
            dashboard.terminate()
            assert dashboard.wait(60) == 0
            for left in Registry(folder / "state").running():
                os.killpg(left.pid, signal.SIGKILL)
    assert not Path(shown["token_file"]).exists()


def until(condition: Callable[[], bool]) -> None:
    """Wait for something; the rules of the page do not let playwright's own waiting for a function run there."""
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.3)


class Watched:
    """A page, and all that went wrong in it."""

    def __init__(self, browser: Any, scene: Scene, width: int = 1440, scheme: str = "light") -> None:
        self.scene = scene
        self.context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.wrong: list[str] = []
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("console", lambda m: self.wrong.append(m.text) if m.type in ("error", "warning") else None)
        self.page.on("request", lambda r: None if r.url.startswith(scene.address) else self.wrong.append(r.url))

    def open(self) -> Any:
        self.page.goto(f"{self.scene.address}/#token={self.scene.token}")
        self.page.get_by_role("link", name="orders").wait_for()
        assert self.scene.token not in self.page.url
        return self.page

    def view(self, name: str) -> Any:
        self.page.goto(f"{self.scene.address}/#/job/{self.scene.job_id}/{name}")
        return self.page.locator("#view")

    def close(self) -> None:
        self.context.close()
        assert self.wrong == []


@pytest.fixture
def watched(browser: Any, scene: Scene) -> Iterator[Watched]:
    made = Watched(browser, scene)
    yield made
    made.close()


SHOWN = {
    "graph": ["per-customer", "key groups", "to Spark", "dead-letter", "stage 2"],
    "checkpoints": ["Phases", "run", "History"],
    "metrics": ["Rows a second", "Phases of checkpoints"],
    "watermarks": ["Behind the latest event", "orders", "time"],
    "state": ["per-customer", "Key groups with the most rows", "contents"],
    "ledger": ["Records 0 to", "checkpoint"],
    "ledger/3": ["What it read", "What became visible", "What changed of the state"],
    "sinks": ["totals", "large-out", "dead-letter", "Last commits", "dead-0-"],
    "dead-letters": ["check raised ValueError", HOSTILE, "datagen"],
    "failures": ["Restarts"],
    "logs": ["completed checkpoint"],
    "savepoints": ["Take a savepoint"],
    "configuration": ["checkpoint_interval", "poundlock run"],
}


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (390, "dark")])
def test_each_view(browser: Any, scene: Scene, width: int, scheme: str) -> None:
    watched = Watched(browser, scene, width, scheme)
    page = watched.open()
    for name, texts in SHOWN.items():
        view = watched.view(name)
        for text in texts:
            view.get_by_text(text).first.wait_for(state="attached")
        if name == "metrics":
            view.locator("canvas").first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{name} is wider than {width}"
        assert page.evaluate("window.hacked") is None
    watched.close()


def test_it_is_alive(watched: Watched) -> None:
    page = watched.open()
    page.get_by_role("link", name="orders").click()
    number = page.locator(".facts div", has_text="Checkpoint").first.locator("dd")
    number.wait_for()
    until(lambda: number.inner_text() != "–")
    first = int(number.inner_text().replace(",", ""))
    until(lambda: int(number.inner_text().replace(",", "")) > first + 1)
    assert "RUNNING" in page.title()


def test_the_keyboard_is_enough(watched: Watched) -> None:
    page = watched.open()
    page.keyboard.press("/")
    page.keyboard.type("nothing of that name")
    page.get_by_text("No running job matches.").wait_for()
    page.keyboard.press("Control+a")
    page.keyboard.type("orders")
    page.get_by_role("link", name="orders").focus()
    page.keyboard.press("Enter")
    page.get_by_role("tab", name="Graph", exact=True).wait_for()
    page.keyboard.press("2")
    page.get_by_role("tab", name="Checkpoints", selected=True).focus()
    page.keyboard.press("ArrowRight")
    page.get_by_role("tab", name="Metrics", selected=True).wait_for()
    before = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    page.keyboard.press("t")
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") != before
    page.keyboard.press("?")
    page.get_by_role("heading", name="Keys").wait_for()
    page.keyboard.press("1")
    page.locator("g.node", has_text="per-customer").focus()
    page.keyboard.press("Enter")
    page.locator("section.card").get_by_text("tumbling windows of 5 s").wait_for()
    page.keyboard.press("j")
    page.get_by_role("heading", name="Jobs").wait_for()


def test_a_savepoint_from_the_page_and_its_removal(watched: Watched, scene: Scene) -> None:
    page = watched.open()
    view = watched.view("savepoints")
    view.get_by_role("button", name="Take a savepoint").click()
    page.get_by_role("dialog").get_by_role("button", name="Leave it").click()
    assert not (scene.folder / "state" / "savepoints").exists(), "a question is no order"
    view.get_by_role("button", name="Take a savepoint").click()
    page.get_by_role("dialog").get_by_role("button", name="Take the savepoint").click()
    line = page.get_by_text("Savepoint completed:")
    line.wait_for()
    path = Path(re.search(r"Savepoint completed: (\S+)", line.inner_text())[1])  # type: ignore[index]
    assert (path / "_metadata.json").is_file()
    view.get_by_text(str(path)).first.wait_for()
    view.get_by_role("button", name="Remove").click()
    page.get_by_role("dialog").get_by_role("button", name="Keep it").click()
    assert path.is_dir()
    view.get_by_role("button", name="Remove").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove it").click()
    page.get_by_text(f"Removed {path}").wait_for()
    assert not path.exists()
    view.get_by_role("button", name="Take a savepoint").click()
    page.get_by_role("textbox").fill("s4://nowhere/savepoints")
    page.get_by_role("dialog").get_by_role("button", name="Take the savepoint").click()
    page.get_by_role("dialog").get_by_role("alert").get_by_text("there is no file system s4://").wait_for()
    page.keyboard.press("Escape")
    assert scene.entry.state == "RUNNING"


def test_one_key_of_state(watched: Watched) -> None:
    watched.open()
    view = watched.view("state")
    view.get_by_label("One key").fill("ada")
    view.get_by_role("button", name="Look").click()
    view.get_by_text("entries").first.wait_for()


def test_without_the_token_there_is_nothing_to_see(watched: Watched, scene: Scene) -> None:
    watched.page.goto(scene.address)
    watched.page.get_by_label("Token").fill("wrong-wrong-wrong-wrong")
    watched.page.get_by_role("button", name="Go on").click()
    watched.page.get_by_role("heading", name="Token").wait_for()
    until(lambda: watched.page.evaluate("sessionStorage.length") == 0)
    assert scene.job_id not in watched.page.content()
    watched.page.get_by_label("Token").fill(scene.token)
    watched.page.get_by_role("button", name="Go on").click()
    watched.page.get_by_role("link", name="orders").wait_for()
    assert watched.context.cookies() == []
    watched.wrong[:] = [each for each in watched.wrong if "401" not in each]  # Chromium notes that itself


def test_a_job_that_dies_while_it_is_watched(browser: Any, scene: Scene) -> None:
    """On the job's own page nobody answers any more; the dashboard knows how it ended, and shows the next run."""
    entry = scene.entry
    host, port = entry.rest
    own = Scene(scene.folder, scene.job_id, f"http://{host}:{port}", Path(entry.token_file).read_text())
    page, its = Watched(browser, scene), Watched(browser, own)
    its.open()
    page.open()
    for each in (page, its):
        each.view("graph").get_by_text("per-customer").first.wait_for()
    os.kill(entry.process, signal.SIGKILL)
    page.page.get_by_text("without a last word").first.wait_for()
    page.page.locator(".badge.FAILED").first.wait_for()
    assert page.page.get_by_role("button", name="Cancel").is_disabled()
    page.view("ledger").get_by_text("Records 0 to").wait_for()
    page.view("failures").get_by_text("is gone").first.wait_for()
    its.page.get_by_text("The server does not answer.").first.wait_for()
    assert its.page.locator("g.node").first.is_visible(), "what was read last stays"
    assert its.page.get_by_role("button", name="Cancel").is_disabled()
    assert main(["run", "-d", str(scene.folder / "job.py")]) == 0
    page.page.locator(".badge.RUNNING").first.wait_for()
    its.wrong[:] = [each for each in its.wrong if "ERR_CONNECTION" not in each]
    page.close()
    its.close()
