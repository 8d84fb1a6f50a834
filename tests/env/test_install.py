"""A machine without a browser gets one, and one that has it is left alone."""

from __future__ import annotations

import subprocess
from pathlib import Path

from holotron.env.browser import install


def test_nothing_is_installed_twice(monkeypatch):
    monkeypatch.setattr(install, "find_chromium", lambda: (Path("/some/chromium"), ""))
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: 1 / 0)
    assert install.install() == Path("/some/chromium")


def test_the_next_way_is_tried(monkeypatch):
    tried: list[str] = []

    def run(command, **_):
        tried.append(command[0])
        return subprocess.CompletedProcess(command, 1 if command[0] == "apt-get" else 0)

    monkeypatch.setattr(install, "find_chromium", lambda: (Path("/new") if len(tried) == 2 else None, ""))
    monkeypatch.setattr(install, "_is_debian", lambda: True)
    monkeypatch.setattr(install.os, "geteuid", lambda: 0)
    monkeypatch.setattr(install.shutil, "which", lambda _: "/usr/bin/apt-get")
    monkeypatch.setattr(subprocess, "run", run)
    assert install.install() == Path("/new")
    assert tried[0] == "apt-get"
    assert len(tried) == 2


def test_no_way_works(monkeypatch):
    monkeypatch.setattr(install, "find_chromium", lambda: (None, ""))
    monkeypatch.setattr(subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 1))
    assert install.install() is None


def test_a_window_needs_the_whole_browser(monkeypatch, tmp_path):
    from holotron.env.browser import chromium

    monkeypatch.delenv(chromium.VARIABLE, raising=False)
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path))
    for name in ("chromium-headless-shell", "chromium"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert chromium.find_chromium()[0] == tmp_path / "chromium-headless-shell"
    assert chromium.find_chromium(window=True)[0] == tmp_path / "chromium"
    (tmp_path / "chromium").unlink()
    assert chromium.find_chromium(window=True)[0] is None
