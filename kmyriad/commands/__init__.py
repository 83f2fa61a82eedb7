"""The commands of the command line, one file each: `Command`, the arguments with their help, and `run`.

Modules here import torch only inside `run`: it takes seconds, and most bad input can be told before.
"""
