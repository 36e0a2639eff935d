"""HTTP below the routes: server, middleware, operations, bodies, streams, downloads, problem documents."""
