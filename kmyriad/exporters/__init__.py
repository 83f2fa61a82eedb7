"""Policies, populations and data in the formats of other people's libraries. One file per target."""
