"""Messages to people: what of the history is told, to whom, and how it is delivered once.

The gateway delivers them, with a key of scope read: the aggregator would dial the internet with the authority's keys beside
it. A delivery and its record cannot be one step, so what is sent again after a crash has the same id, a hash of federation,
receiver, kind, run, client, sequence and time of the event (a restored database counts events from an earlier number on),
and nothing of the attempt. The history is durable, ordered and bounded already; a queue would be a second one to keep. A
new kind of message comes from an event and is computed from the history.
"""
