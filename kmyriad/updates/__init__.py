"""Update rules: from the entropy estimate of an epoch to a better population."""
