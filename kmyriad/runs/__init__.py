"""Run folders: settings, metrics, checkpoints, and how a run goes on."""
