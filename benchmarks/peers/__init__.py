"""The systems that hipq_django is compared with: a package for each, with its own requirements."""
