"""What prints the book: executes chapters, compares figures, builds the site. Imports no torch."""
