"""One attacker as a process: `python -m tests.chaos.siege.attacker WHO [IDENTITY]`.

It reads what it knows as a line of JSON, says `begun`, attacks until its input ends, and prints what came of it as JSON.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path

import grpc

from fedplcc.shared.errors import FedplccError
from tests.chaos.siege.attacks import ATTACKS, SOURCES, Attack, Who
from tests.chaos.siege.foe import Foe, Known, Tally

AGAIN_S = 0.2
"""Wait after an attack that was cut off."""
END_S = 10.0


def carry_out(attack: Attack, foe: Foe, tally: Tally) -> None:
    """Attack again and again until it is over."""
    while not foe.is_over.is_set():
        try:
            for outcome in attack.act(foe):
                tally.add(attack.name, outcome)
                if foe.is_over.is_set():
                    return
                foe.pace(attack.per_s)
        except FedplccError as error:
            tally.add(attack.name, error.reason)
        except grpc.RpcError as error:
            tally.add(attack.name, f"gRPC {error.code().name}")
        except (OSError, HTTPException) as error:
            tally.add(attack.name, type(error).__name__)
        foe.is_over.wait(AGAIN_S)


def main(arguments: list[str]) -> None:
    """Act for the attacker that the command line names."""
    who, *identity = arguments
    logging.disable(logging.WARNING)
    known = Known.of_json(sys.stdin.readline())
    foe, tally = Foe(known, Path(identity[0]) if identity else None, SOURCES[Who(who)]), Tally()
    mine = [attack for attack in ATTACKS if attack.who == who and re.search(known.only, attack.name)]
    threads = [threading.Thread(target=carry_out, args=(attack, foe, tally), daemon=True) for attack in mine]
    for thread in threads:
        thread.start()
    print("begun", flush=True)
    with suppress(OSError):
        sys.stdin.read()
    foe.is_over.set()
    for thread in threads:
        thread.join(END_S / len(threads))
    print(json.dumps(tally.counts), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
