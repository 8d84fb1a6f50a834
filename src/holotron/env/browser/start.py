"""A browser for a task that starts at an address: what it may visit, and whose secrets it may type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import unquote, urlsplit

from holotron.env.browser.environment import complete_address
from holotron.env.browser.options import EnvOptions
from holotron.env.safety.confirm import Confirmation
from holotron.env.safety.policy import SafetyPolicy
from holotron.env.safety.secrets import Login, Secret, Secrets

URL_SECRET = "url-password"


def options_for_address(
    url: str,
    size: tuple[int, int],
    *,
    allow: Sequence[str] = (),
    anywhere: bool = False,
    private: Sequence[str] = (),
    secrets: Mapping[str, str] | None = None,
    confirmation: Confirmation | None = None,
) -> tuple[str, EnvOptions]:
    """The address without its password, and a browser that may visit its origin, what was allowed besides, and no more.

    A password in the address becomes a secret, as does a user who stands there alone, such as a token. ValueError where
    the address is none.
    """
    parts = urlsplit(complete_address(url))
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"the url is {url!r}; it must begin with http:// or https://")
    credentials, _, place = parts.netloc.rpartition("@")
    home = f"{parts.scheme}://{place}"
    safety = SafetyPolicy(None if anywhere else [home, *allow], private or False)
    known, login = {}, None
    if credentials:
        user, _, password = (unquote(part) for part in credentials.partition(":"))
        known[URL_SECRET] = Secret(password or user, (home,))
        login = Login(user if password else "", URL_SECRET)
    known |= {name: Secret(value, (home,)) for name, value in (secrets or {}).items()}
    return parts._replace(netloc=place).geturl(), EnvOptions(
        width=size[0],
        height=size[1],
        safety=safety,
        secrets=Secrets(known),
        login=login,
        confirmation=confirmation,
    )
