"""Replicas of an environment, and what all agents do in them."""
