"""A comparison as plain output: a table of answers in HTML, markdown and text, which needs no kernel."""

from __future__ import annotations

from nbmastra.widgets.comparison import Cell, Comparison
from nbmastra.widgets.format import one_line, seconds
from nbmastra.widgets.icons import look
from nbmastra.widgets.markdown import escape, render_markdown
from nbmastra.widgets.run_words import facts_words, said_words
from nbmastra.widgets.snapshot import escaped
from nbmastra.widgets.snapshot_html import LINE, mark

__all__ = ["comparison_snapshot"]

_CELL = f"vertical-align:top;text-align:left;padding:6px 10px;border:0;border-bottom:{LINE};white-space:normal"
_SHOWN, _WHOLE = 140, 20_000


def comparison_snapshot(comparison: Comparison) -> dict[str, str]:
    """As a mime bundle: text/html, text/markdown, text/plain."""
    return {
        "text/html": _html(comparison),
        "text/markdown": _markdown(comparison),
        "text/plain": _plain(comparison),
    }


def _title(comparison: Comparison) -> str:
    cells = comparison.cells
    done = sum(cell.status == "success" for cell in cells)
    known = [cell.cost_usd for cell in cells if cell.cost_usd is not None]
    spent = f", ${sum(known):.4f}" if known else ""
    size = f"{len(comparison.agents)} agents × {len(comparison.prompts)} prompts"
    return f"{size}, {done} of {len(cells)} completed{spent}"


def _rows(comparison: Comparison) -> list[list[Cell]]:
    count = len(comparison.agents)
    return [comparison.cells[start : start + count] for start in range(0, len(comparison.cells), count)]


def _time(cell: Cell) -> str:
    return seconds(sum(out.elapsed_s for out in cell.chain)) if cell.chain else ""


def _html(comparison: Comparison) -> str:
    head = '<th scope="col" style="{}">{}</th>'
    names = "".join(head.format(f"{_CELL};font-weight:600", escape(name)) for name in comparison.agents)
    first = head.format(f"{_CELL};font-weight:400;opacity:.8", "Prompt")
    rows = ""
    for number, cells in enumerate(_rows(comparison)):
        words = escape(one_line(comparison.words(number), 300))
        rows += f'<tr><th scope="row" style="{_CELL};font-weight:400;min-width:120px">{words}</th>'
        rows += "".join(_html_cell(cell) for cell in cells) + "</tr>"
    return (
        f'<div style="border:{LINE};border-radius:2px;font-size:13px;line-height:1.5;text-align:left">'
        f'<div style="padding:6px 10px;border-bottom:{LINE}"><b>Compare</b> '
        f'<span style="opacity:.8">{escape(_title(comparison))}</span></div>'
        '<div style="overflow-x:auto"><table style="table-layout:auto;width:100%;border-collapse:collapse;margin:0;'
        f'font-size:13px"><thead><tr>{first}{names}</tr></thead><tbody>{rows}</tbody></table></div></div>'
    )


def _html_cell(cell: Cell) -> str:
    word = escape(look(cell.status).word)
    word = word if cell.status == "success" else f"<b>{word}</b>"
    text, failed = said_words(cell)
    edge = ";border-left:3px solid #d32f2f;padding-left:8px" if failed else ""
    said = f'<div style="margin:2px 0{edge}">{escape(one_line(text, _SHOWN))}</div>' if text else ""
    whole = ""
    if len(text) > _SHOWN or "\n" in cell.answer.strip():
        inner = render_markdown(cell.answer[:_WHOLE], snapshot=True)
        summary = '<summary style="cursor:pointer"><span style="opacity:.8">All of it</span></summary>'
        whole = f"<details>{summary}{inner}</details>"
    facts = ", ".join(filter(None, [_time(cell), facts_words(cell)]))
    return (
        f'<td style="{_CELL};border-left:{LINE};min-width:150px">'
        f'<span aria-hidden="true">{mark(cell.status)}</span> {word}{said}'
        f'<span style="opacity:.8">{escape(facts)}</span>{whole}</td>'
    )


def _markdown(comparison: Comparison) -> str:
    lines = [f"Compare: {escaped(_title(comparison))}", ""]
    lines.append("| Prompt | " + " | ".join(map(escaped, comparison.agents)) + " |")
    lines.append("|---" * (len(comparison.agents) + 1) + "|")
    for number, cells in enumerate(_rows(comparison)):
        words = [escaped(one_line(comparison.words(number), 300))]
        for cell in cells:
            text = escaped(one_line(said_words(cell)[0], _SHOWN))
            facts = facts_words(cell)
            words.append(f"{mark(cell.status)} {text}{f' ({escaped(facts)})' if facts else ''}")
        lines.append("| " + " | ".join(words) + " |")
    return "\n".join(lines) + "\n"


def _plain(comparison: Comparison) -> str:
    lines = [f"Compare: {_title(comparison)}"]
    names = list(comparison.agents)
    for number, cells in enumerate(_rows(comparison)):
        lines.append(one_line(comparison.words(number), 300))
        for cell in cells:
            facts = ", ".join(filter(None, [_time(cell), facts_words(cell)]))
            lines.append(
                f"  {mark(cell.status)} {names[cell.agent]} ({facts}): {one_line(said_words(cell)[0], _SHOWN)}"
            )
    return "\n".join(lines)
