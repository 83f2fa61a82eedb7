"""How evenly visited states cover the world: nearest neighbours, entropy estimates, and how far heads differ."""
