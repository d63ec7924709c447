"""Runs on disk: written round by round, read tolerantly, told in a few numbers."""
