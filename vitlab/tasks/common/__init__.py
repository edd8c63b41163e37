"""What several tasks share: batches, losses, metrics, evaluation."""
