"""Augmentation and normalisation of whole batches, on the device that holds them."""
