"""`poundlock dashboard` as a process: it answers with its token, and leaves nothing behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from poundlock.cli.main import main


@pytest.mark.slow
def test_it_answers_with_its_token_until_it_is_ended(bare_folder: Path) -> None:
    command = [sys.executable, "-m", "poundlock", "dashboard", "--port", "0", "--root", "checkpoints", "--json"]
    process = subprocess.Popen([*command, "-D", "state_dir=state"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        shown = json.loads(process.stdout.readline())
        token = Path(shown["token_file"]).read_text()
        with urllib.request.urlopen(shown["address"] + "/") as page:
            assert b"poundlock" in page.read()
            assert "script-src 'self'" in page.headers["Content-Security-Policy"]
        asked = urllib.request.Request(shown["address"] + "/dashboard/jobs")
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(asked)
        asked.add_header("Authorization", f"Bearer {token}")
        with urllib.request.urlopen(asked) as answer:
            jobs = json.load(answer)
        assert jobs["jobs"] == []
        assert jobs["unreadable"] == [f"{bare_folder}/checkpoints: no job has written how it goes into it"]
    finally:
        process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    assert not Path(shown["token_file"]).exists()


def test_a_root_that_is_none_is_refused_before_anything_is_served(
    bare_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dashboard", "--root", "s4://nowhere", "-D", "state_dir=state"]) == 2
    assert "there is no file system s4://" in capsys.readouterr().err
    assert not (bare_folder / "state").exists()
