"""Fuzzing of everything that reads untrusted files; ``make fuzz`` runs it for as long as you like."""
