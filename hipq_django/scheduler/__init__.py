"""The five steps of a pass; `batch` is where to begin."""
