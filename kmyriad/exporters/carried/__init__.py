"""What an export carries along: code that runs beside the weights, where kmyriad need not be installed.

These files are copied into exported folders (`folder.py`) as `kmyriad_<name>.py`. They import torch, the target's
library and each other, and nothing else of kmyriad.
"""
