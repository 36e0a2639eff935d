"""HTTP mechanics that know no run: server, middleware, bodies, streams, problem documents."""
