"""Proxies that the environment names: for servers elsewhere, and never for one on this machine."""

from __future__ import annotations

import ssl
import urllib.request
from functools import cache
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import httpx

from holotron.env.safety.policy import is_local_name


@cache
def authorities() -> ssl.SSLContext:
    """Whose certificates are believed, read once: for a client of its own that takes longer than most questions."""
    return httpx.create_ssl_context()


def on_this_machine(url: str) -> bool:
    host = (urlsplit(url).hostname or "").lower()
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return is_local_name(host)


def client_options(url: str) -> dict[str, Any]:
    """What a client of this server is made with: a proxy would look for our machine's address on its own."""
    # Certificates that the environment names are trusted all the same.
    return {"verify": authorities()} | ({"trust_env": False} if on_this_machine(url) else {})


def told_proxy(url: str) -> str:
    """For an error: by which proxy the server was asked, if by one."""
    parts = urlsplit(url)
    proxies = urllib.request.getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or on_this_machine(url) or urllib.request.proxy_bypass(parts.hostname or ""):
        return ""
    named = urlsplit(proxy if "://" in proxy else f"//{proxy}")
    where = f"{named.hostname}:{named.port}" if named.port else named.hostname
    return f" (asked by the environment's proxy {where}; NO_PROXY={parts.hostname} does without)"
