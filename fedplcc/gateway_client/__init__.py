"""The client of a gateway for programs: `fedplcc.Gateway` and `fedplcc.AsyncGateway`."""
