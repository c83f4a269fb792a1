"""HTTP API: a POST with an Idempotency-Key, which its client may send again."""
