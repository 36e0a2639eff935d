"""Single sign-on of people at an OpenID provider (OpenID Connect Core 1.0)."""
