"""Many runs: a grid of settings in a file, trained on local processes, SLURM or Ray."""
