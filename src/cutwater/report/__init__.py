"""Figures and run reports."""
