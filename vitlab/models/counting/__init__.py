"""What a model costs: parameters, operations, memory."""
