"""The population: m policies in one network, what they see and what their actions are."""
