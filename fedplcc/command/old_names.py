"""Names that commands had, or are looked for by, each with the command that does it now. They are in no help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

NEW_NAMES: Mapping[str, str] = {
    "audit": "fedplcc state audit STATE_DIR",
    "backup": "fedplcc state backup STATE_DIR OUT",
    "compare init": "fedplcc config init --comparison",
    "data fetch": "fedplcc data describe NAME:PATH --fetch",
    "health": "fedplcc doctor --serves ADDRESS",
    "logout": "fedplcc login --forget",
    "model calibrate": "fedplcc model adapt MODEL --data DATA",
    "model clusters": "fedplcc model map MODEL",
    "model import": "fedplcc weights add FILE --model MODEL",
    "plugin check": "fedplcc doctor --method NAME",
    "replay": "fedplcc state audit STATE_DIR --replay RUN --round T",
    "model temperature": "fedplcc model adapt MODEL --temperature --data DATA",
    "restore": "fedplcc state restore BACKUP STATE_DIR",
    "run admit": "fedplcc run client admit RUN CLIENT",
    "run advance": "fedplcc run resume RUN --next-stage",
    "run archive": "fedplcc run edit RUN --archive",
    "run extend": "fedplcc run resume RUN --rounds NUMBER",
    "run log": "fedplcc run watch RUN --log KIND",
    "run note": "fedplcc run edit RUN --notes TEXT",
    "run quarantine": "fedplcc run client quarantine RUN CLIENT",
    "run release": "fedplcc run client release RUN CLIENT",
    "run rm": "fedplcc run edit RUN --delete",
    "run retire": "fedplcc run client retire RUN CLIENT",
    "run stages": "fedplcc run status RUN",
    "run tag": "fedplcc run edit RUN --tag TAG",
    "runs": "fedplcc run list --local",
    "site budget": "fedplcc site log --budget",
    "site policy check": "fedplcc config check FILE --run CONFIG",
    "site policy init": "fedplcc config init --policy FILE",
    "site withdraw": "fedplcc site reject RUN",
    "state replay": "fedplcc state audit STATE_DIR --replay RUN --round T",
}
"""By the words of the old name: the command that does it now."""


def answer_to(words: Sequence[str]) -> str | None:
    """Return the sentence for a command line that begins with such a name; None where it begins with none."""
    for count in (1, 2, 3):
        name = " ".join(words[:count])
        if name in NEW_NAMES and len(words) >= count:
            return f"'fedplcc {name}' is '{NEW_NAMES[name]}' now"
    return None
