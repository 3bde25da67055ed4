"""The regression guard: counts and ratios that must not get worse, in less than a minute."""
