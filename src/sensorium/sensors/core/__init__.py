"""The author's contract and the reader's half of every sensor."""
