"""The commands of `vitlab`, one file each: `main(words)` parses and checks its input before it imports torch."""
