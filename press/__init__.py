"""What prints the book: executes chapters, compares figures, builds the site. Imports no torch."""


class UsageError(ValueError):
    """A command was given something that it cannot use; the message says what it expects."""
