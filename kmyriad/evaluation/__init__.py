"""Frozen populations on fresh episodes: measures, selection for a task, comparison over seeds."""
