"""What the database and the driver allow, without any queue: no attempts, deadlines or results."""
