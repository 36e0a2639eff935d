"""The headers of requests that the gateway reads; tests/contract/test_request_headers.py finds one that is missing."""

HEADERS = (
    "accept",
    "accept-encoding",
    "authorization",
    "content-length",
    "content-type",
    "cookie",
    "host",
    "idempotency-key",
    "if-none-match",
    "if-range",
    "last-event-id",
    "origin",
    "range",
    "sec-fetch-dest",
    "sec-fetch-site",
    "user-agent",
    "x-fedplcc-console",
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-request-id",
)
