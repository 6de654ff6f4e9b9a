"""The setting HIPQ: the instances that it declares, and one function for each check id."""
