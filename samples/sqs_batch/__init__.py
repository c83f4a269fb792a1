"""SQS: each order of a batch shipped once; only failed messages come back."""
