"""The HTML of a saved text in a real JupyterLab: typeset where a formula is meant, nowhere else."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.support.lab import NotebookPage

pytestmark = pytest.mark.browser

TEXT = r"""
Costs $5 and $6, or \$7\$; `$code$` and $ a $ and \\(b\\).

$x^2 < y$ and \[E = mc^2\]

| n | $n^2$ |
|---|--:|
| 2 | 4 |

![plot](https://images.example/p.png)
"""
CELL = f"""\
from IPython.display import HTML, display
from nbmastra.widgets.markdown import render_markdown
display(HTML(render_markdown({TEXT!r}, snapshot=True)))"""


def test_B53_a_snapshot_typesets_its_formulas_not_its_prices_and_loads_no_image(notebook_page: NotebookPage) -> None:
    requests: list[str] = []
    notebook_page.page.on("request", lambda request: requests.append(request.url))
    notebook_page.open("snapshot.ipynb", [CELL])
    output = notebook_page.run(0)
    expect(output.locator("mjx-container")).to_have_count(3)
    expect(output).to_contain_text("Costs $5 and $6, or $7$; $code$ and $ a $ and \\(b\\).")
    expect(output.get_by_role("link")).to_have_text("plot (images.example)")
    assert not [url for url in requests if "images.example" in url]
