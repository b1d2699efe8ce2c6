"""A conversation as plain output: its turns, each as its run's own snapshot."""

from __future__ import annotations

from nbmastra.widgets.chat_model import ChatModel, ChatTurn
from nbmastra.widgets.format import one_line
from nbmastra.widgets.markdown import escape
from nbmastra.widgets.snapshot import escaped, snapshot
from nbmastra.widgets.snapshot_html import LINE

__all__ = ["chat_snapshot"]


def chat_snapshot(chat: ChatModel) -> dict[str, str]:
    """As a mime bundle: text/html, text/markdown, text/plain."""
    thread = f", thread {one_line(chat.thread, 60)}" if chat.thread else ""
    title = f"Chat with {chat.name}{thread}"
    bundles = [_turn(turn) for turn in chat.turns]
    inner = "".join(f'<div style="margin-top:8px">{bundle["text/html"]}</div>' for bundle in bundles)
    none = "" if bundles else '<div style="opacity:.8">Nothing was said.</div>'
    return {
        "text/html": f'<div style="font-size:13px;text-align:left"><b>{escape(title)}</b>{inner}{none}</div>',
        "text/markdown": "\n\n".join([f"**{escaped(title)}**", *(bundle["text/markdown"] for bundle in bundles)]),
        "text/plain": "\n\n".join([title, *(bundle["text/plain"] for bundle in bundles)]),
    }


def _turn(turn: ChatTurn) -> dict[str, str]:
    said = one_line(turn.text, 2000)
    names = ", ".join(f"{one_line(one.name, 80)} ({one_line(one.about, 60)})" for one in turn.attachments)
    attached = f"Attached: {names}" if names else ""
    last = turn.last
    if last is None:
        problem = one_line(turn.problem or "not answered yet", 500)
        style = f"border:{LINE};border-radius:2px;padding:6px 10px"
        return {
            "text/html": f'<div style="{style}"><b>You</b> {escape(said)}<br>{escape(problem)}</div>',
            "text/markdown": f"> {escaped(said)}\n\n{escaped(problem)}",
            "text/plain": f"You: {said}\n{problem}",
        }
    bundle = snapshot(last, turn.out)
    if not attached:
        return bundle
    return {
        "text/html": f'{bundle["text/html"]}<div style="opacity:.8;padding:2px 10px">{escape(attached)}</div>',
        "text/markdown": f"{bundle['text/markdown']}\n{escaped(attached)}\n",
        "text/plain": f"{bundle['text/plain']}\n{attached}",
    }
