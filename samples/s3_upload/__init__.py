"""S3: each upload indexed once, by notification, by EventBridge, or by both."""
