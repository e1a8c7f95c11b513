"""What of a conversation a model is shown: how much fits a budget, at which level of detail. Pure."""

__all__: list[str] = []
