"""Agents as moving pictures."""
