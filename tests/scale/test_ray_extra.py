"""Ray is an extra, and only `--ray` asks for it."""

import sys

import pytest

from holotron.cli.main import main


def test_without_ray_the_error_names_the_extra(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setattr(sys, "argv", ["holotron", "serve", "holotron-nano", "--replicas", "2", "--ray", "auto"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert "pip install 'holotron[ray]'" in capsys.readouterr().err
