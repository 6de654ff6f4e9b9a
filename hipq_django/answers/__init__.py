"""What other systems say: an answer is received, classified, stored, and settles its job."""
