"""Background tasks: tool calls that run beside the conversation, kept in a store, and taken over by the next kernel.

pending ─▶ running ─▶ completed, failed, timed_out          any live state ─▶ cancelled
   ▲          │ └───▶ suspended
   └─ retry ──┘          │ resume
   └─────────────────────┘
"""

from __future__ import annotations
