"""The paper, reproduced: which runs its figures need, what they measure, and what that says about its claims."""
