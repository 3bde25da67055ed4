"""Measurements of what the program claims, as ratios and counts from one run. See README.md beside this file."""
