"""The tests of hipq_django: CONTRIBUTING.md says how to run them."""
