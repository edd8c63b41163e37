"""What a study will do and what it costs, on this machine or on one that is described."""
