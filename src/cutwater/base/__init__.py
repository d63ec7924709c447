"""What everything stands on: errors, units, versioned JSON, seeded random numbers, code named by users."""
