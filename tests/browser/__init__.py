"""The admin in a real browser; the folder is a package so that the browser ends with its tests."""
