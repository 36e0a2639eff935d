"""Code beside a run: callbacks, and trackers, which are callbacks that keep a run's curves elsewhere.

    callbacks.py      what a callback is told: RunStart, RoundResult, RunEnd
    round_events.py   committed rounds from a run's events, of a simulation or through a gateway
    measurements.py   a round's numbers by name, as every tracker keeps them
    observation.py    callbacks of one run, called in order; a tracker that is away holds nothing up
    destinations.py   KIND[:WHERE] of --log, and the trackers by kind:
      jsonl_tracker.py, tensorboard_tracker.py, mlflow_tracker.py, wandb_tracker.py
    deployed_run.py   the follower of a run behind a gateway

A tracker is told a run's rounds from the first again after every restart, and keeps each round once.
"""
