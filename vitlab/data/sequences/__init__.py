"""Token sequences that models of text read: blocks, pairs, masked tokens, masked spans."""
