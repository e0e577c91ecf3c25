"""Files, folders and what is in them: atomic writes, locks, bounded readers, progress."""
