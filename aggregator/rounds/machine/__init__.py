"""The two state machines, of a run and of a round, as pure functions over frozen records.

    run      PENDING --roster_met--> RUNNING <--pause/resume--> PAUSED
             RUNNING --finish--> COMPLETED        PENDING, RUNNING, PAUSED --fail--> FAILED
             PENDING, RUNNING, PAUSED --stop--> STOPPING --all_idle--> STOPPED
             PENDING, RUNNING, PAUSED --park--> PAUSED --wait--> PENDING, if it was pending
             COMPLETED --extend--> RUNNING, with more rounds
             (all_idle: no client of the roster says that it works for the run, or the stop is two leases old)

    round 0  INITIALISING --collected--> COMMITTED
    round t  COLLECTING --collected--> AGGREGATING --aggregated--> EVALUATING --evaluated--> COMMITTED
             AGGREGATING --reopened--> COLLECTING

A round that the configuration leaves unevaluated passes EVALUATING within the transaction of its aggregation: no client is
ever asked for a report.

A run is parked if its own next step meets an error: it is paused, its reason names the cause, and it takes no step by itself
until a person resumes it. In a parked run a quarantine also removes what the client sent in the open phase.

A phase closes when all clients that it waits for are done and they make a quorum, by default the whole cohort. With a
smaller quorum, clients that are absent when the phase is overdue are dropped while the others can make it (`drop_absent`).

Every function takes a `Run` and returns the next one, or raises; none reads a clock, a disk or a socket. The ledger writes
the result and its events in one transaction, and only then acts on it.
"""
