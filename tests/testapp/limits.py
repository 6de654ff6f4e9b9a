"""Where the setting finds the throttlers of a test: `configure_queue` puts them here."""
