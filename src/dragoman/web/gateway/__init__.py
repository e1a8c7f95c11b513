"""Other people's clients on any model, each conversation recorded: what `dragoman serve` runs."""

__all__: list[str] = []
