"""What is made of a study: results, figures, pages, and W&B."""
