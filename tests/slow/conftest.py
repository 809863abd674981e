"""Fixtures that slow tests share across workers."""

import fcntl
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest


def chromium():
    """The paths of the browser and its driver; installs them, or skips with the reason."""
    names = ("chromium", "chromedriver")
    with (pathlib.Path(tempfile.gettempdir()) / "chromium.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another worker may install them at this moment
        _install(names)
    return tuple(map(shutil.which, names))


def _install(names):
    if not all(map(shutil.which, names)):
        if not shutil.which("apt-get") or os.geteuid() != 0:
            pytest.skip("no browser: chromium and chromedriver are missing, and this process may not run apt-get")
        install = "apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium chromium-driver"
        done = subprocess.run(install, shell=True, capture_output=True, text=True)
        if done.returncode or not all(map(shutil.which, names)):
            reason = done.stderr.strip().splitlines()[-1:] or ["no message"]
            pytest.skip(f"no browser: apt-get could not install chromium and chromium-driver ({reason[0]})")


@pytest.fixture(scope="module")
def browser():
    """A browser without a window, for a file's tests."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="no browser: selenium is missing")
    binary, driver = chromium()
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    found = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield found
    found.quit()
