"""Messages of fedplcc.v1 to the records of shared/types.py and back, one pair of functions per message.

`x_to_proto(record)` and `x_from_proto(message)` undo each other. A message from outside is believed in nothing: a missing
or impossible field raises `MalformedRequest` whose `metadata["field"]` names it, and texts and lists are bounded. What an
update's numbers mean is not judged here but by the aggregator, which knows the run and refuses with `MalformedUpdate`.

    payloads.py                     blobs, and what is made of them
    membership.py, clients.py       who takes part, and signs of life
    tasks.py                        what a client is to do
    uploads.py, updates.py,         what it hands in
      evaluations.py
    runs.py, rounds.py, events.py,  what people see
      prototype_maps.py
    fields.py, enums.py             how single fields are read, for all of them
"""
