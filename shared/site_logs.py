"""Log lines that a site may let out: which events, and which facts of them. Pure.

The trainer lets no other line and no other fact out, and the aggregator keeps no other. Sentences, names of files, numbers
of images, addresses and errors are in neither list, so that no line has a word that images, people or foreign code chose.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from fedplcc.shared.bounds import RUN_ID_PATTERN
from fedplcc.shared.types import LogLevel, LogLine, TaskKind

MAX_LINES = 20
"""Most lines of a heartbeat."""
MAX_LINE_BYTES = 1024
"""Most bytes of a line's message."""

_TASK = re.compile("|".join(TaskKind))
FACTS: Mapping[str, re.Pattern[str]] = {
    "asked": _TASK,
    "outcome": re.compile("done|cancelled|failed"),
    "reason": re.compile("[A-Za-z][A-Za-z_]{0,63}"),
    "task": _TASK,
}
"""Form of each fact. A trainer lets a reason out only if it is one of fedplcc's own."""
EVENTS: Mapping[str, tuple[str, ...]] = {
    "alone_diverged": (),
    "blob_corrupt": (),
    "certificate_renewed": (),
    "client_model_changed": (),
    "client_state_damaged": (),
    "client_state_lost": (),
    "connected": (),
    "copies_on_two_sides": (),
    "data_changed": (),
    "data_loaded": (),
    "decisions_unreadable": (),
    "device_readings_missing": (),
    "disconnected": ("reason",),
    "egress_lines_dropped": (),
    "encoded_model_of_another": (),
    "feature_cache_unreadable": (),
    "feature_cache_unwritable": (),
    "finished_update_damaged": (),
    "finished_update_found": (),
    "forgetting_waits": ("reason",),
    "idle": ("asked",),
    "inline_blobs_refused": ("reason",),
    "manifest_damaged": (),
    "not_renewed": ("reason",),
    "promotion_waits": ("reason",),
    "result_dropped": ("reason",),
    "retrying": ("reason",),
    "runs_forgotten": (),
    "sent_update_found": (),
    "sent_update_lost": (),
    "stored_images_damaged": (),
    "task_begun": ("task",),
    "task_crashed": (),
    "task_ended": ("task", "outcome"),
    "task_failed": ("task", "reason"),
    "unreadable_files": (),
    "whole_model_received": (),
}
"""Facts of each event, beside time, level, run and round."""

_RUN_ID = re.compile(RUN_ID_PATTERN)
_GRAVITY = {LogLevel.ERROR: 1, LogLevel.WARNING: 2, LogLevel.INFO: 3}


def lets_out(least: LogLevel | None, level: LogLevel) -> bool:
    """Whether a site that lets out lines from one level on lets out one of another."""
    return level in _GRAVITY and least in _GRAVITY and _GRAVITY[level] <= _GRAVITY[least]


def told_line(line: LogLine, least: LogLevel | None) -> LogLine | None:
    """Return what may leave of a line; None where nothing may."""
    names = EVENTS.get(line.event)
    if names is None or not lets_out(least, line.level):
        return None
    if line.run_id and not _RUN_ID.fullmatch(line.run_id):
        return None
    facts = {name: text for name, text in line.facts if name in names and FACTS[name].fullmatch(text)}
    number = line.round if line.run_id and 0 <= line.round < 2**31 else 0
    return replace(line, round=number, facts=tuple(sorted(facts.items())))
