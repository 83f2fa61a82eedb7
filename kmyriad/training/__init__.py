"""The two loops: pretraining without reward, and the jump-start."""
