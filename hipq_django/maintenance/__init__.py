"""What workers do at intervals beside their jobs: the duties, and the loop over them."""
