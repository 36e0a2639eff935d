"""The entry point of `fedplcc` and `python -m fedplcc`.

It loads the handler of Ctrl-C first: all other modules take from a tenth of a second to many seconds, and Ctrl-C meanwhile
should print one word and no traceback.
"""

import signal
import sys


def main() -> None:
    """Run the command named on the command line; ends the process with its exit code."""
    try:
        from fedplcc.interruption import note_interrupts, was_interrupted

        note_interrupts()
        from fedplcc.shared.process.resources import hold_streams

        hold_streams()
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
        # Only the interpreter's own work is left; Ctrl-C ends it at once and silently.
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _end() -> None:
    print("fedplcc: interrupted", file=sys.stderr, flush=True)
    sys.exit(130)


if __name__ == "__main__":
    main()
