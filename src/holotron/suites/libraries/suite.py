"""Tasks of generated pages in the looks of published libraries: NAME/TEMPLATE, split by library."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any

from holotron.suites.libraries.dressing import draw_library_task
from holotron.suites.libraries.manifest import all_libraries, libraries, require_libraries
from holotron.suites.pages.starts import STOPPING_FROM
from holotron.suites.pages.suite import PagesSuite
from holotron.suites.pages.task import PageTask
from holotron.suites.pages.varied import VariedPage
from holotron.suites.suite import EvalProtocol

# Forms, menus, rows, tabs, switches, searches, questions, and pages of blocks; none is held out in the suite pages.
TEMPLATES = (
    *("any_form", "contact", "login", "settings_switches", "settings_choices", "menu", "menu_nested", "tabs_button"),
    *("tabs_ask", "accordion_open", "table_row", "table_button", "table_ask", "list_button", "search_open"),
    *("todo_tick_add", "dialog_confirm", "page_number", "shop_add", "order_wizard", "press_any"),
    *("mosaic_theme", "mosaic_parts", "mosaic_two", "mosaic_rows", "mosaic_press", "mosaic_ask"),
)


class LibraryPage(VariedPage):
    """One page in the look of a library."""

    def draw(self, name: str, seed: int) -> tuple[PageTask, float]:
        library, _, template = name.partition("/")
        return draw_library_task(all_libraries()[library], template, seed)


class LibrariesSuite(PagesSuite):
    """splits: by library. What a seed for training draws varies in other ways than what others draw."""

    name = "libraries"
    page = LibraryPage

    def names(self, split: str | None = None) -> tuple[str, ...]:
        chosen = [each for held_out in (False, True) for each in libraries(held_out) if each.sheet]
        if split is not None:
            chosen = [each for each in chosen if each.held_out == (split == "held-out")]
        return tuple(f"{library.name}/{template}" for library in chosen for template in TEMPLATES)

    def groups(self, name: str) -> tuple[str, ...]:
        return tuple(name.split("/"))

    def protocols(self) -> tuple[EvalProtocol, ...]:
        return (
            EvalProtocol("held-out", self.names("held-out"), 2, 15),
            EvalProtocol("taught", self.names("train"), 1, 15),
            EvalProtocol("stopping", self.names("held-out"), 1, 15, first=STOPPING_FROM),
        )

    def pool(self, pages: int, browsers: int = 1) -> AbstractAsyncContextManager[Any]:
        require_libraries()
        return super().pool(pages, browsers)
