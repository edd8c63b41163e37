"""How analyses look into a model: its attention calls, its layers' outputs, a number per head; and what they found."""
