"""Faces in the browser: the built files of web/."""
