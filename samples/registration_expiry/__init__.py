"""EventBridge, the main job: expire a registration once for all its events."""
