"""vitlab: how transformers compare with the architectures they replaced, as the data grows."""
