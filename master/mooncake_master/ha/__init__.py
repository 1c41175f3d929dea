"""Several masters of which one reigns: election, standing by, and stepping down in time."""
