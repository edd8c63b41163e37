"""A study's results: loaded once, aggregated, concluded from, put into tables."""
