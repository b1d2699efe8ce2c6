"""axe-core, which finds in a page what keeps people from using it: names, roles, contrast, keyboard."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from playwright.sync_api import Page

AXE = Path(__file__).parents[1] / "mastra_server/node_modules/axe-core/axe.min.js"

_RUN = """async selector => {
    // The order of headings is the model's: all that we show are in its text.
    const rules = { "heading-order": { enabled: false } };
    const { violations } = await axe.run(
        { include: [selector] }, { resultTypes: ["violations"], elementRef: true, rules });
    return violations.flatMap(({ id, nodes }) => nodes.map(({ element, html, failureSummary }) => {
        const where = element.closest(selector)?.dataset.axe ?? "";
        return `${where} ${id}: ${html.slice(0, 300)}\\n    ${failureSummary}`;
    }));
}"""


@cache
def _source() -> str:
    return AXE.read_text("utf-8")


def violations(page: Page, selector: str) -> list[str]:
    """What axe-core's rules find wrong in these elements; each is called by its attribute `data-axe`."""
    if not page.evaluate("() => Boolean(window.axe)"):
        page.evaluate(f"() => {{ {_source()} }}")
    return page.evaluate(_RUN, selector)
