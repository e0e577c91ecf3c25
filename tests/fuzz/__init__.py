"""Fuzzing of everything that reads what strangers wrote; ``make fuzz`` runs it for as long as you like."""
