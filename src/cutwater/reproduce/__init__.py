"""Every table and figure of the paper's experiments, each with the paper's claim and our number."""
