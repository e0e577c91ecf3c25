"""Recipes: `facerts train NAME`, or `facerts train BASE method=NAME` with what is special of a method in methods/."""
