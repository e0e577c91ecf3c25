"""Recipes: `facerts train NAME`, or `facerts train BASE method=NAME` with what is special of a method in methods/.

Those in ours/ made the models and results that ship, from data that cannot be shared: `facerts train ours/NAME`.
"""
