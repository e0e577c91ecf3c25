"""Files and folders: atomic writes, locks, bounded readers of untrusted files, progress bars."""
