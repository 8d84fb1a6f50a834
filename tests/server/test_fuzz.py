"""Whatever is put wherever in a request, the answer says what is wrong with it, and the server goes on."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .hostile import never_broken, send
from .mutations import VALID, mutated

pytestmark = pytest.mark.usefixtures("unharmed")


@pytest.mark.parametrize("path", VALID)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_value_anywhere(http, path, data):
    never_broken(send(http, path, mutated(data, VALID[path])))


@pytest.mark.parametrize("path", VALID)
def test_the_unchanged_body_is_taken(http, path):
    """Or what is put into it would be found behind another error, if at all."""
    answer = send(http, path, VALID[path])
    assert answer.status_code == 200, answer.text
