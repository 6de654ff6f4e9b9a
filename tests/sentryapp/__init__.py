"""An app of a project that uses Sentry, for worker processes of the tests."""
