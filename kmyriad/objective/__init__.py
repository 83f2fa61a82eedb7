"""From visited states to rewards: nearest neighbours, entropy, how far agents differ."""
