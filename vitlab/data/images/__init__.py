"""Data sets of images, one file each, and how pictures are decoded and resized."""
