"""The `openai` npm SDK against the real stack; its checks are in npm/openai.test.js."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.stack import ROOT, Stack

pytestmark = [pytest.mark.services, pytest.mark.vllm, pytest.mark.timeout(400)]

HERE = Path(__file__).parent / "npm"


def npm() -> str:
    """npm, installed by the system's packages where it is missing and we may."""
    if found := shutil.which("npm"):
        return found
    if os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(["apt-get", "update", "-q"], check=True, capture_output=True)
        subprocess.run(["apt-get", "install", "-qy", "nodejs", "npm"], check=True, capture_output=True)
    return shutil.which("npm") or pytest.fail("npm is needed for this check: install Node.js 18 or newer")


def test_the_npm_sdk_is_content(stack: Stack) -> None:
    work = ROOT / ".triptych" / "npm"
    work.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "openai.test.js"):
        shutil.copy(HERE / name, work / name)
    install = [npm(), "install", "--no-audit", "--no-fund", "--silent"]
    subprocess.run(install, cwd=work, check=True, capture_output=True, timeout=180)
    run = subprocess.run(
        ["node", "--test", "openai.test.js"],
        cwd=work,
        env={**os.environ, "TRIPTYCH_URL": stack.url},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
    assert "# pass 8" in run.stdout
