"""Ray, which is an extra: nothing but `--ray` needs it."""

from __future__ import annotations

from typing import Any


class RayMissing(ImportError):
    """Ray is not installed."""


def import_ray() -> Any:
    """The module `ray`; RayMissing names the extra where it is not installed."""
    try:
        import ray
    except ImportError as error:
        raise RayMissing("--ray needs the package ray: pip install 'holotron[ray]'") from error
    return ray
