"""Messages of fedplcc.v1 to the records of shared/types and back, one pair of functions per message.

`x_to_proto(record)` and `x_from_proto(message)` are inverse. Every field of a message is checked: a missing or impossible
field raises `MalformedRequest` with its name in `metadata["field"]`, and texts and lists are bounded. The numbers of an
update are checked by the aggregator, which knows the run and refuses with `MalformedUpdate`.

    payloads.py                     blobs and payloads
    membership.py, clients.py       clients, joins and heartbeats
    tasks.py                        tasks of clients
    uploads.py, updates.py,         results of clients
      evaluations.py
    runs.py, rounds.py, events.py,  records shown to people
      prototype_maps.py
    fields.py, enums.py             readers of single fields
"""
