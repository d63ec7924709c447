"""Figures, run reports and the planner page."""
