"""Where a view stands, in a real kernel."""

from __future__ import annotations

from tests.support.kernel import Kernel

SHORT = """
from nbmastra.widgets.placement import Placement
place = Placement()
shown_as_view = place.add({"x-view": {}}, "live")
place.replace({"text/html": "<b>end</b>", "text/plain": "end"})
"""


def test_plain_output_takes_the_place_of_a_view(kernel: Kernel) -> None:
    shown = kernel.run(SHORT)
    assert [list(content["data"]) for content in shown.of("display_data")] == [["x-view", "text/plain"]]
    assert [content["data"]["text/plain"] for content in shown.of("update_display_data")] == ["end"]


def test_a_run_that_ends_before_its_view_is_shown_is_shown_plain(kernel: Kernel) -> None:
    """A short run: JupyterLab ignores an update of what it doesn't show yet, so the view would stay for ever."""
    shown = kernel.run(SHORT + 'print(place.add({"x-view": {}}, "late"))')
    assert [list(content["data"]) for content in shown.of("display_data")][1:] == [["text/html", "text/plain"]]
    assert shown.text.strip() == "False"
