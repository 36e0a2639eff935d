"""`fedplcc`, and `python -m fedplcc`: the command line from its first moment to its last.

Only what waits for Ctrl-C is loaded here: the rest takes a tenth of a second, torch many, and whoever changes their mind
meanwhile should read one word and not a traceback.
"""

import signal
import sys


def main() -> None:
    """Run the command that the command line names; ends the process with its exit code."""
    try:
        from fedplcc.interruption import note_interrupts, was_interrupted

        note_interrupts()
    except KeyboardInterrupt:
        _end()
    try:
        from fedplcc.command.all_commands import main as run

        run()
    except SystemExit:
        raise
    except BaseException as error:
        if not (isinstance(error, KeyboardInterrupt) or was_interrupted()):
            raise
        _end()
    finally:
        # What is left to do is the interpreter's; Ctrl-C then ends it at once and silently.
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _end() -> None:
    print("fedplcc: interrupted", file=sys.stderr, flush=True)
    sys.exit(130)


if __name__ == "__main__":
    main()
