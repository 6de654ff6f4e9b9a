"""What is wrong, and why: counts, trends, the reasons of `explain`, and the doctor."""
